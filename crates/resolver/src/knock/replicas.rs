use super::*;
use crate::room::{House, Limits};
use prometheus::Registry;
use std::{env, fs, process};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::Instant,
};

/// A replica that hears one knock, and what it was told.
async fn replica(status: &'static str) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hears = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut told = Vec::new();
        while !told.ends_with(b"}") {
            stream.read_buf(&mut told).await.unwrap();
        }
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(told).unwrap()
    });
    (address, hears)
}

#[tokio::test]
async fn a_replica_that_fails_is_followed_by_the_next_at_once_and_each_is_shown_the_token() {
    let (refuses, refused) = replica("503 Service Unavailable").await;
    let (listens, heard) = replica("200 OK").await;
    let gone = replica("").await;
    gone.1.abort();
    let _ = gone.1.await;
    let token = env::temp_dir().join(format!("elasti-token-{}", process::id()));
    fs::write(&token, "secret\n").unwrap();
    let metrics = Arc::new(Metrics::new(&Registry::new()).unwrap());
    let (_, addresses) = watch::channel(vec![gone.0, refuses, listens]);
    let operators = Operators::new(addresses, Some(token.clone()), metrics);
    let limits = Limits {
        patience: Duration::ZERO,
        seats: 1,
    };
    let room = Room::new(&House::new(1, mpsc::channel(1).0), "shop", "web", limits);
    let begun = Instant::now();
    assert!(operators.knock(&room).await);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    fs::remove_file(token).unwrap();
    for told in [refused.await.unwrap(), heard.await.unwrap()] {
        let request = format!("POST {INCOMING_REQUEST_PATH} HTTP/1.1\r\n");
        assert!(told.starts_with(&request), "{told}");
        assert!(told.contains("authorization: Bearer secret\r\n"), "{told}");
        let (_, body) = told.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let expected = serde_json::json!({"count": 1, "svc": "web", "namespace": "shop"});
        assert_eq!(body, expected);
    }
    assert!(!operators.knock(&room).await, "by now all are gone");
}
