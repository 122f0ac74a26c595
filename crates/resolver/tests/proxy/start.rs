//! A resolver whose API server does not answer.

use crate::stage::SOON;
use elasti_api::Release;
use elasti_resolver::{
    Parts, Settings, directory::Dial, listen::bind, proxy, room::Limits, route::Naming,
};
use elasti_runtime::readiness::Readiness;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn nobody_is_told_that_a_service_is_unknown_before_all_are_known() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let client = kube::Client::try_from(kube::Config::new(server.parse().unwrap())).unwrap();
    let free = bind(0).unwrap().local_addr().unwrap().port();
    let (registry, readiness) = (prometheus::Registry::new(), Readiness::new());
    let parts = Parts::new(client, settings(free), &registry, readiness.clone()).unwrap();
    let early = async {
        let mut client = loop {
            match TcpStream::connect(("127.0.0.1", free)).await {
                Ok(client) => break client,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let words = b"GET / HTTP/1.1\r\nHost: web.shop\r\n\r\n";
        client.write_all(words).await.unwrap();
        let answered = timeout(Duration::from_millis(500), client.read(&mut [0; 64])).await;
        assert!(!readiness.is_ready());
        answered
    };
    let answered = tokio::select! {
        ended = parts.run(CancellationToken::new()) => panic!("{ended:?}"),
        early = timeout(SOON, early) => early.unwrap(),
    };
    assert!(answered.is_err(), "it waits");
}

fn settings(proxy_port: u16) -> Settings {
    Settings {
        proxy_port,
        proxy: proxy::Settings {
            naming: Naming {
                headers: Vec::new(),
                domain: "cluster.local".into(),
            },
            mark_held: true,
            first_word: SOON,
            head: SOON,
            idle: SOON,
        },
        dial: Dial::default(),
        release: Release::default(),
        limits: Limits {
            patience: SOON,
            seats: 10,
        },
        seats: 10,
        connections: 10,
        watch_namespaces: Vec::new(),
        operator_namespace: "elasti".into(),
        operator_service: "operator".into(),
        operator_port: 8013,
        token: None,
        farewell: Duration::ZERO,
        grace: Duration::ZERO,
    }
}
