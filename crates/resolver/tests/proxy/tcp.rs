use crate::stage::*;
use elasti_resolver::route::Speaks;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

#[tokio::test]
async fn bytes_of_any_protocol_wait_and_pass() {
    let stage = Stage::new().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client.write_all(b"\x16\x03\x01hello").await.unwrap();
    stage.waits(1).await;
    stage.ready(&[target.local_addr().unwrap()]);
    let (mut upstream, _) = target.accept().await.unwrap();
    let mut all = [0; 8];
    upstream.read_exact(&mut all).await.unwrap();
    assert_eq!(&all, b"\x16\x03\x01hello");
    upstream.write_all(b"answer").await.unwrap();
    let mut answer = [0; 6];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"answer");
}

#[tokio::test]
async fn either_side_may_close_first() {
    let stage = Stage::new().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client.write_all(b"\0question").await.unwrap();
    client.shutdown().await.unwrap();
    stage.waits(1).await;
    stage.ready(&[target.local_addr().unwrap()]);
    let (mut upstream, _) = target.accept().await.unwrap();
    let mut asked = Vec::new();
    upstream.read_to_end(&mut asked).await.unwrap();
    assert_eq!(asked, b"\0question");
    upstream.write_all(b"answer").await.unwrap();
    drop(upstream);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"answer");
}

#[tokio::test]
async fn a_server_that_speaks_first_is_woken_by_a_silent_client() {
    for speaks in [Speaks::Anything, Speaks::Opaque] {
        let stage = Stage::with(Setting {
            speaks,
            ..Setting::default()
        })
        .await;
        let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(stage.address).await.unwrap();
        stage.waits(1).await;
        stage.ready(&[target.local_addr().unwrap()]);
        let (mut upstream, _) = target.accept().await.unwrap();
        upstream.write_all(b"220 ready\r\n").await.unwrap();
        let mut greeting = [0; 11];
        client.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"220 ready\r\n");
    }
}

#[tokio::test]
async fn whoever_is_turned_away_sees_an_orderly_close() {
    let stage = Stage::with(Setting {
        patience: Duration::from_millis(100),
        ..Setting::default()
    })
    .await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client.write_all(b"\0").await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.expect("no reset");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn whoever_finds_no_seat_sees_an_orderly_close() {
    let stage = Stage::with(Setting {
        seats: 1,
        ..Setting::default()
    })
    .await;
    let mut first = TcpStream::connect(stage.address).await.unwrap();
    first.write_all(b"\0first").await.unwrap();
    stage.waits(1).await;
    assert_eq!(said(stage.address, b"\0second").await, "");
    stage.counts("refused_count", "full", 1).await;
    assert_eq!(stage.room.waiting(), 1, "the first still waits");
}

#[tokio::test]
async fn whoever_only_looks_whether_a_declared_port_is_open_wakes_nobody() {
    let mut stage = Stage::with(Setting {
        speaks: Speaks::Opaque,
        ..Setting::default()
    })
    .await;
    drop(TcpStream::connect(stage.address).await.unwrap());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(stage.knocks.try_recv().is_err());
    let _client = TcpStream::connect(stage.address).await.unwrap();
    assert!(stage.knocks.recv().await.is_some(), "whoever stays does");
}
