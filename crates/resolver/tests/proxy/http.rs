use crate::stage::*;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};

async fn awake() -> (Stage, Target) {
    Stage::awake(Setting::default()).await
}

#[tokio::test]
async fn the_target_sees_the_request_as_it_was_and_who_sent_it() {
    let (stage, _target) = awake().await;
    let mut client = http1(stage.address).await;
    let request = Request::post("/form?a=1")
        .header("host", "www.example.com")
        .header("x-own", "1")
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .body(Full::from("body"))
        .unwrap();
    let answer = client.send_request(request).await.unwrap();
    let headers = answer.headers().clone();
    assert_eq!(text(answer).await, "POST /form body");
    assert_eq!(headers["echo-host"], "www.example.com");
    assert_eq!(headers["echo-x-own"], "1");
    assert_eq!(headers["echo-x-forwarded-for"], "127.0.0.1");
    assert_eq!(headers["echo-x-forwarded-host"], "www.example.com");
    assert!(headers.contains_key("echo-traceparent"));
    assert!(!headers.contains_key("echo-x-hop"));
    assert!(!headers.contains_key("x-elasti-held"), "it did not wait");
}

#[tokio::test]
async fn a_kept_connection_serves_request_after_request() {
    let (stage, target) = awake().await;
    let mut client = http1(stage.address).await;
    for n in 0..20 {
        client.ready().await.unwrap();
        let answer = client.send_request(get(&format!("/{n}"))).await.unwrap();
        assert_eq!(text(answer).await, format!("GET /{n} "));
    }
    let dialled = target.connections.load(Ordering::Relaxed);
    assert!(dialled <= 2, "{dialled} connections for one client");
}

#[tokio::test]
async fn once_the_service_serves_clients_are_sent_to_the_pods() {
    let (stage, _target) = awake().await;
    let mut client = http1(stage.address).await;
    let answer = client.send_request(get("/")).await.unwrap();
    assert!(
        !answer.headers().contains_key("connection"),
        "still proxied"
    );
    text(answer).await;
    let mut multiplexed = http2(stage.address).await;
    let mut request = get("http://web.shop/");
    request.headers_mut().clear();
    text(multiplexed.send_request(request).await.unwrap()).await;

    stage.room.set_proxied(false);
    client.ready().await.unwrap();
    let answer = client.send_request(get("/")).await.unwrap();
    assert_eq!(answer.headers()["connection"], "close");
    let gone = async {
        while !multiplexed.is_closed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("GOAWAY");
}

#[tokio::test]
async fn clients_of_a_service_that_is_gone_are_shown_out() {
    let (stage, target) = awake().await;
    let mut kept = http1(stage.address).await;
    text(kept.send_request(get("/")).await.unwrap()).await;
    let mut multiplexed = http2(stage.address).await;
    let mut request = get("http://web.shop/");
    request.headers_mut().clear();
    text(multiplexed.send_request(request).await.unwrap()).await;

    stage.room.close();
    let gone = async {
        while !(kept.is_closed() && multiplexed.is_closed()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("both");

    let mut late = http1(stage.address).await;
    let late = tokio::spawn(async move { late.send_request(get("/")).await.unwrap() });
    stage.waits(1).await;
    tokio::time::pause();
    let late = late.await.unwrap();
    assert_eq!(late.status(), 503);
    assert_eq!(late.headers()["retry-after"], "1");
    assert!(text(late).await.contains("its ElastiService was deleted"));
    assert_eq!(target.requests.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn where_requests_say_whose_they_are_clients_are_sent_to_the_pods_with_their_answer() {
    let (stage, _target) = awake().await;
    let mut client = http2(stage.named).await;
    let request = || {
        let mut request = get("http://web.shop/");
        request.headers_mut().clear();
        request
    };
    text(client.send_request(request()).await.unwrap()).await;
    client.ready().await.expect("still proxied");
    stage.room.set_proxied(false);
    text(client.send_request(request()).await.unwrap()).await;
    let gone = async {
        while !client.is_closed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("GOAWAY");
}

#[tokio::test]
async fn an_endpoint_that_does_not_answer_a_dial_makes_way_for_the_next() {
    let stage = Stage::new().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let full = socket.listen(1).unwrap();
    let silent = full.local_addr().unwrap();
    let mut queue = Vec::new();
    let patience = Duration::from_millis(200);
    while let Ok(taken) = tokio::time::timeout(patience, TcpStream::connect(silent)).await {
        queue.push(taken.unwrap());
    }
    let target = Target::start().await;
    stage.ready(&[silent, target.address]);
    let mut client = http1(stage.address).await;
    let answer = client.send_request(get("/")).await.unwrap();
    assert_eq!(text(answer).await, "GET / ");
    assert_eq!(stage.counted("dial_seconds", "late"), 1);
}

#[tokio::test]
async fn a_request_that_may_be_repeated_survives_a_pod_that_dies() {
    let stage = Stage::new().await;
    let dying = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::start().await;
    stage.ready(&[dying.local_addr().unwrap(), target.address]);
    let mut client = http1(stage.address).await;
    let answer = tokio::spawn(async move { client.send_request(get("/")).await.unwrap() });
    let (mut stream, _) = dying.accept().await.unwrap();
    let mut some = [0; 8];
    stream.read_exact(&mut some).await.unwrap();
    drop((stream, dying));
    assert_eq!(text(answer.await.unwrap()).await, "GET / ");
}

#[tokio::test]
async fn a_request_is_not_repeated_once_an_answer_has_begun() {
    for begun in ["HTTP/1.1 2", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let stage = Stage::new().await;
        let dying = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::start().await;
        stage.ready(&[dying.local_addr().unwrap(), target.address]);
        let mut client = http1(stage.address).await;
        let answer = tokio::spawn(async move { client.send_request(get("/")).await.unwrap() });
        let (mut stream, _) = dying.accept().await.unwrap();
        read_until(&mut stream, "\r\n\r\n").await;
        stream.write_all(begun.as_bytes()).await.unwrap();
        drop((stream, dying));
        assert_eq!(answer.await.unwrap().status(), 502, "{begun:?}");
        assert_eq!(target.requests.load(Ordering::Relaxed), 0, "{begun:?}");
    }
}

#[tokio::test]
async fn a_request_that_may_not_be_repeated_is_sent_once() {
    let stage = Stage::new().await;
    let dying = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::start().await;
    stage.ready(&[dying.local_addr().unwrap(), target.address]);
    let mut client = http1(stage.address).await;
    let post = Request::post("/order").header("host", "web.shop");
    let post = post.body(Full::from("one")).unwrap();
    let answer = tokio::spawn(async move { client.send_request(post).await.unwrap() });
    let (mut stream, _) = dying.accept().await.unwrap();
    let mut some = [0; 8];
    stream.read_exact(&mut some).await.unwrap();
    drop((stream, dying));
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 502);
    assert_eq!(
        target.connections.load(Ordering::Relaxed),
        0,
        "not sent twice"
    );
}

#[tokio::test]
async fn a_body_is_not_read_before_the_target_takes_it() {
    let stage = Stage::new().await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let head =
        "POST /x HTTP/1.1\r\nHost: web.shop\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    stage.waits(1).await;
    let mut byte = [0; 1];
    let early = tokio::time::timeout(Duration::from_millis(100), client.peek(&mut byte)).await;
    assert!(early.is_err(), "nobody asked for the body yet");
    let target = Target::start().await;
    stage.ready(&[target.address]);
    let mut answer = vec![0; 25];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hello").await.unwrap();
    let mut rest = vec![0; 15];
    client.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once() {
    let stage = Stage::new().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.ready(&[target.local_addr().unwrap()]);
    let (frames, body) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
    let body = StreamBody::new(tokio_stream(body));
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut client, connection) = handshake.unwrap();
    tokio::spawn(connection);
    let request = Request::post("/")
        .header("host", "web.shop")
        .body(body)
        .unwrap();
    let answer = tokio::spawn(async move { client.send_request(request).await.unwrap() });
    frames.send(Ok(Frame::data("one".into()))).await.unwrap();
    let (mut upstream, _) = target.accept().await.unwrap();
    read_until(&mut upstream, "one").await;
    upstream
        .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nuno\r\n")
        .await
        .unwrap();
    let mut answer = answer.await.unwrap().into_body();
    let first = answer.frame().await.unwrap().unwrap();
    assert_eq!(
        first.into_data().unwrap(),
        "uno",
        "before the request has ended"
    );
    frames.send(Ok(Frame::data("two".into()))).await.unwrap();
    read_until(&mut upstream, "two").await;
    drop(frames);
    upstream.write_all(b"3\r\ndos\r\n0\r\n\r\n").await.unwrap();
    let last = answer.frame().await.unwrap().unwrap();
    assert_eq!(last.into_data().unwrap(), "dos");
}

#[tokio::test]
async fn an_upload_goes_on_though_its_answer_has_ended() {
    let stage = Stage::new().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.ready(&[target.local_addr().unwrap()]);
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let head = b"POST / HTTP/1.1\r\nHost: web.shop\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.write_all(head).await.unwrap();
    client.write_all(b"3\r\none\r\n").await.unwrap();
    let (mut upstream, _) = target.accept().await.unwrap();
    read_until(&mut upstream, "one").await;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nheard";
    upstream.write_all(answer).await.unwrap();
    read_until(&mut client, "heard").await;
    client.write_all(b"3\r\ntwo\r\n0\r\n\r\n").await.unwrap();
    read_until(&mut upstream, "two").await;
}

#[tokio::test]
async fn an_upload_goes_on_though_nobody_takes_its_answer() {
    let stage = Stage::new().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.ready(&[target.local_addr().unwrap()]);
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let length = 32 << 20;
    let head = format!("POST / HTTP/1.1\r\nHost: web.shop\r\nContent-Length: {length}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let (mut upstream, _) = target.accept().await.unwrap();
    read_until(&mut upstream, "\r\n\r\n").await;
    let (mut reader, mut writer) = upstream.split();
    let answering = async {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        writer.write_all(head.as_bytes()).await.unwrap();
        let _ = writer.write_all(&vec![b'a'; length]).await;
        std::future::pending::<()>().await;
    };
    let uploading = async {
        client.write_all(&vec![b'u'; length]).await.unwrap();
        std::future::pending::<()>().await;
    };
    let mut taken = 0;
    let taking = async {
        let mut buffer = vec![0; 64 * 1024];
        while taken < length {
            taken += reader.read(&mut buffer).await.unwrap();
        }
    };
    let all = async {
        tokio::select! {
            () = taking => {}
            () = answering => {}
            () = uploading => {}
        }
    };
    let in_time = tokio::time::timeout(SOON, all).await;
    assert!(in_time.is_ok(), "only {taken} of {length} bytes came");
}

fn tokio_stream<T>(
    mut receiver: tokio::sync::mpsc::Receiver<T>,
) -> impl futures::Stream<Item = T> + Send
where
    T: Send,
{
    futures::stream::poll_fn(move |cx| receiver.poll_recv(cx))
}

async fn read_until(stream: &mut TcpStream, wanted: &str) {
    let mut seen = String::new();
    let mut buffer = [0; 1024];
    while !seen.contains(wanted) {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "ended after {seen:?}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

#[tokio::test]
async fn a_websocket_passes() {
    let target = Target::serving(|mut request| async move {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgraded.await.unwrap());
            let mut word = [0; 4];
            io.read_exact(&mut word).await.unwrap();
            io.write_all(b"pong").await.unwrap();
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .body(Full::default())
            .unwrap()
    })
    .await;
    let stage = Stage::new().await;
    let mut client = http1(stage.address).await;
    let request = Request::get("/ws")
        .header("host", "web.shop")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(Full::default())
        .unwrap();
    let answer = tokio::spawn(async move { client.send_request(request).await.unwrap() });
    stage.waits(1).await;
    stage.ready(&[target.address]);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 101);
    assert_eq!(stage.counted("incoming_requests", "101"), 1);
    let mut io = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    io.write_all(b"ping").await.unwrap();
    let mut word = [0; 4];
    io.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"pong");
}

#[tokio::test]
async fn an_offer_of_h2c_is_not_passed_on() {
    let (stage, _target) = awake().await;
    let mut client = http1(stage.address).await;
    let request = Request::get("/")
        .header("host", "web.shop")
        .header("connection", "Upgrade, HTTP2-Settings")
        .header("upgrade", "h2c")
        .header("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA")
        .body(Full::default())
        .unwrap();
    let answer = client.send_request(request).await.unwrap();
    assert!(!answer.headers().contains_key("echo-upgrade"));
    assert!(!answer.headers().contains_key("echo-http2-settings"));
    assert_eq!(text(answer).await, "GET / ");
}

#[tokio::test]
async fn trailers_reach_the_client_of_a_grpc_call() {
    let stage = Stage::new().await;
    let target = grpc_target(stage.room.clone()).await;
    stage.ready(&[target]);
    let mut client = http2(stage.address).await;
    let request = Request::post("http://web.shop/pkg.Service/Call")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::from("message"))
        .unwrap();
    let answer = client.send_request(request).await.unwrap();
    let collected = answer.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(collected.to_bytes(), "message");
}

async fn grpc_target(keep: Arc<elasti_resolver::room::Room>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let _keep = keep;
        let (stream, _) = listener.accept().await.unwrap();
        let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let frames = [
                Ok::<_, Infallible>(Frame::data(body)),
                Ok(Frame::trailers(trailers)),
            ];
            Ok::<_, Infallible>(Response::new(StreamBody::new(futures::stream::iter(
                frames,
            ))))
        });
        let executor = hyper_util::rt::TokioExecutor::new();
        let http = hyper::server::conn::http2::Builder::new(executor);
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    });
    address
}

#[tokio::test]
async fn draining_ends_connections_when_their_request_is_done() {
    let stage = Stage::new().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let target = Target::serving(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            echo(request).await
        }
    })
    .await;
    stage.ready(&[target.address]);
    let mut client = http1(stage.address).await;
    let answer = tokio::spawn(async move { client.send_request(get("/")).await.unwrap() });
    while asked.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stage.drain.cancel();
    let answer = answer.await.unwrap();
    assert_eq!(answer.headers()["connection"], "close");
    assert_eq!(text(answer).await, "GET / ");
}
