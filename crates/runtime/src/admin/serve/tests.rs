use super::*;
use axum::{body::Bytes, routing};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinHandle,
    time::Instant,
};

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(10);

struct Server {
    address: SocketAddr,
    shutdown: CancellationToken,
    running: JoinHandle<io::Result<()>>,
}

async fn start(limits: Limits) -> Server {
    let router = Router::new()
        .route("/", routing::get("hello"))
        .route(
            "/large",
            routing::get(async || Bytes::from(vec![b'x'; 64 << 20])),
        )
        .route("/slow", routing::get(async || sleep(SHORT * 2).await))
        .route("/never", routing::get(std::future::pending::<()>));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(serve_within(limits, listener, router, shutdown.clone()));
    Server {
        address,
        shutdown,
        running,
    }
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address).await.unwrap()
}

async fn send(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(server).await;
    stream.write_all(bytes).await.unwrap();
    stream
}

/// All that comes until the other side closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut bytes))
        .await
        .expect("it is closed");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn answers(server: &Server) {
    let mut stream = send(
        server,
        b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    )
    .await;
    let answer = rest(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn idle_connections_by_the_hundred_keep_nobody_out() {
    let server = start(Limits {
        connections: 100,
        ..Limits::default()
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..800 {
        idle.push(connect(&server).await);
    }
    let asked = Instant::now();
    answers(&server).await;
    assert!(asked.elapsed() < Duration::from_secs(1));
    assert_eq!(rest(&mut idle[0]).await, "", "the oldest was shown out");
    let newest = idle.last_mut().unwrap();
    newest.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    assert!(
        rest(newest).await.ends_with("hello"),
        "and the newest was not"
    );
}

#[tokio::test]
async fn an_answer_under_way_outlives_the_need_for_its_seat() {
    let server = start(Limits {
        connections: 1,
        ..Limits::default()
    })
    .await;
    let mut slow = send(&server, b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    sleep(SHORT).await;
    answers(&server).await;
    let answer = rest(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
}

#[tokio::test]
async fn whoever_says_nothing_or_half_a_request_is_let_go() {
    let server = start(Limits {
        head: SHORT,
        ..Limits::default()
    })
    .await;
    for bytes in [b"".as_slice(), b"GET / HTTP/1.1\r\nhost:"] {
        let began = Instant::now();
        rest(&mut send(&server, bytes).await).await;
        assert!(began.elapsed() >= SHORT);
    }
    let kept = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let answer = rest(&mut send(&server, kept).await).await;
    assert!(
        answer.ends_with("hello"),
        "an idle connection is answered before: {answer:?}"
    );
    answers(&server).await;
}

#[tokio::test]
async fn whoever_does_not_read_is_let_go_with_its_age() {
    let limits = Limits {
        age: SHORT,
        grace: SHORT,
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut stuck = send(&server, b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await;
    sleep(SHORT * 4).await;
    let got = rest(&mut stuck).await.len();
    assert!(
        got < 64 << 20,
        "the rest of the answer is not waiting: {got}"
    );
    answers(&server).await;
}

#[tokio::test]
async fn garbage_harms_nobody() {
    let server = start(Limits::default()).await;
    let long = [b"GET /".as_slice(), &[b'a'; 100_000]].concat();
    let garbage = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\n: :\r\n\r\n",
        &long,
    ];
    for bytes in garbage {
        let mut stream = connect(&server).await;
        let _ = stream.write_all(bytes).await;
        let answer = rest(&mut stream).await;
        assert!(!answer.contains("200 OK"), "{answer:?}");
    }
    answers(&server).await;
}

#[tokio::test]
async fn shutdown_finishes_what_is_under_way_and_takes_nothing_new() {
    let server = start(Limits::default()).await;
    let mut idle = connect(&server).await;
    let mut slow = send(&server, b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    sleep(SHORT).await;
    server.shutdown.cancel();
    assert!(rest(&mut slow).await.starts_with("HTTP/1.1 200"));
    assert_eq!(rest(&mut idle).await, "");
    server.running.await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn shutdown_does_not_wait_for_ever() {
    let server = start(Limits {
        grace: SHORT,
        ..Limits::default()
    })
    .await;
    let _never = send(&server, b"GET /never HTTP/1.1\r\nhost: a\r\n\r\n").await;
    sleep(SHORT).await;
    server.shutdown.cancel();
    timeout(LONG, server.running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
