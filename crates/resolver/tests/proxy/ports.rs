//! Ports that come and go with the table.

use crate::stage::*;
use elasti_resolver::{
    listen::{Listeners, bind},
    route::Table,
};
use elasti_runtime::readiness::Readiness;
use std::{collections::HashMap, sync::Arc};
use tokio::{net::TcpStream, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[tokio::test]
async fn a_port_is_open_for_as_long_as_it_stands_for_a_service() {
    let (stage, _target) = Stage::awake(Setting::default()).await;
    let free = bind(0).unwrap().local_addr().unwrap().port();
    let listeners = Listeners {
        proxy: stage.proxy.clone(),
        tasks: TaskTracker::new(),
        connections: Arc::new(Semaphore::new(10)),
        stop: CancellationToken::new(),
        arrivals: Arc::default(),
    };
    let readiness = Readiness::new();
    let (pending, tables) = (readiness.register("listeners"), stage.tables.subscribe());
    let standing = |for_it| Table {
        by_port: HashMap::from_iter(for_it),
        ..Table::default()
    };
    let days = async {
        let address = ([127, 0, 0, 1], free).into();
        for _ in 0..2 {
            let table = standing(Some((free, stage.way.clone())));
            stage.tables.send_replace(Arc::new(table));
            let mut client = loop {
                match TcpStream::connect(address).await {
                    Ok(_) => break http1(address).await,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            readiness.ready().await;
            let answer = client.send_request(get("/")).await.unwrap();
            assert_eq!(text(answer).await, "GET / ");
            stage.tables.send_replace(Arc::new(standing(None)));
            while TcpStream::connect(address).await.is_ok() {}
        }
    };
    tokio::select! {
        () = listeners.follow(tables, pending) => panic!("it goes on"),
        days = tokio::time::timeout(SOON, days) => days.expect("it opens and closes"),
    }
}
