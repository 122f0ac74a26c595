use super::*;
use crate::{
    directory::{Declared, Dial},
    metrics::Metrics,
    room::{House, Limits},
};
use elasti_api::Release;
use elasti_runtime::watch::{Change, Key};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::yield_now,
};

async fn answered(address: SocketAddr, path: &str) -> Value {
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

#[tokio::test]
async fn whoever_asks_is_told_who_waits_and_what_is_known_and_no_secrets() {
    let house = House::new(10, mpsc::channel(1).0);
    let limits = Limits {
        patience: Duration::from_secs(600),
        seats: 10,
    };
    let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
    let (dial, release) = (Dial::default(), Release::default());
    let directory = Directory::new(house, limits, dial, release, Arc::new(metrics));
    let object = serde_json::from_value(json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": "es", "namespace": "shop"},
        "spec": {
            "service": "web",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "triggers": [{"type": "prometheus", "metadata": {"headers": {"Authorization": "secret"}}}],
        },
        "status": {"mode": "proxy"},
    }));
    let declared = Declared::read(object.unwrap()).unwrap();
    let key = Key::new("shop", "es");
    directory.change_declared(Change::Applied(key, Arc::new(declared)));
    let directory = Arc::new(directory);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router(directory.clone())).into_future());

    let known = answered(address, "/crd-cache-status").await;
    assert_eq!(known["count"], 1);
    let service = &known["services"][0];
    assert_eq!(service["namespacedName"], "shop/web");
    assert_eq!(service["name"], "es");
    assert_eq!(service["spec"]["service"], "web");
    assert_eq!(service["status"]["mode"], "proxy");
    assert!(!known.to_string().contains("secret"), "{known}");

    let web = "/queue-status?namespace=shop&service=web";
    assert_eq!(answered(address, web).await, json!({"queueStatus": 0}));
    let room = directory.room("shop", "web").unwrap();
    let mut visit = room.visit();
    let waits = async move { drop(visit.endpoint("http").await) };
    tokio::spawn(waits);
    while room.waiting() == 0 {
        yield_now().await;
    }
    assert_eq!(answered(address, web).await, json!({"queueStatus": 1}));
    for other in [
        "?namespace=other&service=web",
        "?namespace=shop&service=x",
        "",
    ] {
        let status = answered(address, &format!("/queue-status{other}")).await;
        assert_eq!(status, json!({"queueStatus": 0}), "{other}");
    }
}
