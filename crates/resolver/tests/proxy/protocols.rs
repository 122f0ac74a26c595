//! Each protocol, from a client through the resolver to a target and back.

use crate::{limits::frame, stage::*};
use bytes::Bytes;
use elasti_resolver::route::Speaks;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};

async fn awake(speaks: Speaks) -> (Stage, Target) {
    Stage::awake(Setting {
        speaks,
        ..Setting::default()
    })
    .await
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_an_answer_that_ends_with_the_connection() {
    let (stage, _target) = awake(Speaks::Anything).await;
    let answer = said(
        stage.address,
        b"GET /old HTTP/1.0\r\nHost: web.shop\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nGET /old "), "{answer}");

    let (target, _parrot) =
        parrot("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nold\r\n0\r\n\r\n").await;
    stage.ready(&[target]);
    let answer = said(stage.address, b"GET / HTTP/1.0\r\n\r\n").await;
    assert!(
        answer.ends_with("\r\n\r\nold"),
        "no chunks for it: {answer}"
    );
}

#[tokio::test]
async fn a_request_without_host_is_given_that_of_its_service() {
    let stage = Stage::new().await;
    let target = Target::serving(|request| async move {
        Response::new(Full::from(request.headers()["host"].as_bytes().to_vec()))
    })
    .await;
    stage.ready(&[target.address]);
    let answer = said(stage.address, b"GET / HTTP/1.0\r\n\r\n").await;
    assert!(answer.ends_with("\r\n\r\nweb.shop"), "{answer}");
}

#[tokio::test]
async fn a_client_of_http_1_0_may_keep_its_connection() {
    let (stage, _target) = awake(Speaks::Anything).await;
    let kept = "GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let last = "GET /2 HTTP/1.0\r\n\r\n";
    let answer = said(stage.address, format!("{kept}{last}").as_bytes()).await;
    assert_eq!(answer.matches("200 OK").count(), 2, "{answer}");
    assert!(
        answer.contains("GET /1 ") && answer.ends_with("GET /2 "),
        "{answer}"
    );
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let stage = Stage::new().await;
    let target = Target::serving(|request| async move {
        if request.uri().path() == "/0" {
            sleep(Duration::from_millis(100)).await;
        }
        echo(request).await
    })
    .await;
    let mut words = String::new();
    for n in 0..10 {
        let close = if n == 9 { "Connection: close\r\n" } else { "" };
        words += &format!(
            "POST /{n} HTTP/1.1\r\nHost: web.shop\r\n{close}Content-Length: 3\r\n\r\n<{n}>"
        );
    }
    let address = stage.address;
    let answer = tokio::spawn(async move { said(address, words.as_bytes()).await });
    stage.waits(1).await;
    stage.room.set_proxied(true);
    stage.ready(&[target.address]);
    let answer = answer.await.unwrap();
    let at: Vec<_> = (0..10)
        .map(|n| answer.find(&format!("POST /{n} <{n}>")))
        .collect();
    assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{answer}");
}

#[tokio::test]
async fn trailers_of_http_1_pass_both_ways() {
    let stage = Stage::new().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.ready(&[target.local_addr().unwrap()]);
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let request = "POST / HTTP/1.1\r\nHost: web.shop\r\nTE: trailers\r\nTrailer: X-Sum\r\n\
                   Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                   2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut upstream, _) = target.accept().await.unwrap();
    let asked = until(&mut upstream, "x-sum: 1\r\n\r\n").await;
    assert!(asked.contains("te: trailers\r\n"), "{asked}");
    let answer = "HTTP/1.1 200 OK\r\nTrailer: X-Total\r\nTransfer-Encoding: chunked\r\n\r\n\
                  2\r\nho\r\n0\r\nX-Total: 2\r\n\r\n";
    upstream.write_all(answer.as_bytes()).await.unwrap();
    let answer = heard(&mut client).await;
    assert!(answer.ends_with("0\r\nx-total: 2\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn a_body_without_a_length_reaches_the_target_whatever_the_method() {
    let (stage, _target) = awake(Speaks::Http1).await;
    for method in ["GET", "POST", "DELETE"] {
        let words = format!(
            "{method} /x HTTP/1.1\r\nHost: web.shop\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
        );
        let answer = said(stage.address, words.as_bytes()).await;
        assert!(answer.ends_with(&format!("{method} /x body")), "{answer}");

        let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from("body")))];
        let request = Request::builder()
            .method(method)
            .uri("http://web.shop/x")
            .body(StreamBody::new(futures::stream::iter(frames)))
            .unwrap();
        let stream = TcpStream::connect(stage.address).await.unwrap();
        let (executor, io) = (TokioExecutor::new(), TokioIo::new(stream));
        let handshake = hyper::client::conn::http2::handshake(executor, io).await;
        let (mut client, connection) = handshake.unwrap();
        tokio::spawn(connection);
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(text(answer).await, format!("{method} /x body"));
    }
}

async fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut all = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&all).to_lowercase().ends_with(end) {
            assert!(stream.read_buf(&mut all).await.unwrap() > 0, "it ended");
        }
    };
    let ended = timeout(SOON, read).await;
    let text = String::from_utf8_lossy(&all).to_lowercase();
    assert!(ended.is_ok(), "{text}");
    text
}

#[tokio::test]
async fn events_reach_the_client_one_by_one() {
    let stage = Stage::new().await;
    for multiplexed in [false, true] {
        let (events, source) = mpsc::channel(1);
        let (target, _tasks) = streaming(source).await;
        stage.ready(&[target]);
        let answer = if multiplexed {
            let mut client = http2(stage.address).await;
            let request = Request::get("http://web.shop/").body(Full::default());
            client.send_request(request.unwrap()).await.unwrap()
        } else {
            let mut client = http1(stage.address).await;
            client.send_request(get("/")).await.unwrap()
        };
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let mut body = answer.into_body();
        for n in 0..3 {
            let event = format!("data: {n}\n\n");
            events.send(Bytes::from(event.clone())).await.unwrap();
            let frame = timeout(SOON, body.frame()).await.expect("at once");
            assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), event);
        }
    }
}

/// Answers each request with what comes out of the channel, for as long as somebody listens.
async fn streaming(source: mpsc::Receiver<Bytes>) -> (SocketAddr, JoinSet<()>) {
    let source = Arc::new(tokio::sync::Mutex::new(source));
    serving(move |_| {
        let source = source.clone();
        let frames = futures::stream::unfold(source, |source| async {
            let data = source.lock().await.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(data)), source))
        });
        async {
            let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
            let kind = "text/event-stream".parse().unwrap();
            answer.headers_mut().insert("content-type", kind);
            answer
        }
    })
    .await
}

pub(crate) type AnyBody = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// A target of either protocol whose answers have bodies of any kind.
pub(crate) async fn serving<F, R>(answer: F) -> (SocketAddr, JoinSet<()>)
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<AnyBody>> + Send + 'static,
{
    serving_at_most(100, answer).await
}

/// So many streams at once.
async fn serving_at_most<F, R>(streams: u32, answer: F) -> (SocketAddr, JoinSet<()>)
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<AnyBody>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut preface = [0; 3];
                let _ = stream.peek(&mut preface).await;
                let io = TokioIo::new(stream);
                let service = service_fn(move |request| {
                    let answered = answer(request);
                    async move { Ok::<_, Infallible>(answered.await) }
                });
                if &preface == b"PRI" {
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .max_concurrent_streams(streams)
                        .to_owned();
                    let _ = http.serve_connection(io, service).await;
                } else {
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(io, service).await;
                }
            });
        }
    });
    (address, tasks)
}

#[tokio::test]
async fn a_websocket_carries_words_both_ways_until_either_side_ends() {
    let stage = Stage::new().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.ready(&[target.local_addr().unwrap()]);
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let request = "GET /ws HTTP/1.1\r\nHost: web.shop\r\nConnection: keep-alive, Upgrade\r\n\
                   Upgrade: WebSocket\r\nSec-WebSocket-Key: a\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut upstream, _) = target.accept().await.unwrap();
    let asked = until(&mut upstream, "\r\n\r\n").await;
    for kept in [
        "connection: upgrade\r\n",
        "upgrade: websocket\r\n",
        "sec-websocket-key: a\r\n",
    ] {
        assert!(asked.contains(kept), "{asked}");
    }
    let granted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Accept: b\r\n\r\nfirst";
    upstream.write_all(granted.as_bytes()).await.unwrap();
    let answer = until(&mut client, "\r\n\r\nfirst").await;
    assert!(answer.contains("sec-websocket-accept: b\r\n"), "{answer}");
    for n in 0..20 {
        // Not HTTP at all, with lines that a check of requests would refuse.
        let word = format!("\u{1}{n}\n Content-Length: 1\n");
        client.write_all(word.as_bytes()).await.unwrap();
        until(&mut upstream, &word.to_lowercase()).await;
        upstream.write_all(word.as_bytes()).await.unwrap();
        until(&mut client, &word.to_lowercase()).await;
    }
    client.shutdown().await.unwrap();
    upstream.write_all(b"last words").await.unwrap();
    until(&mut client, "last words").await;
    let mut rest = Vec::new();
    upstream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn a_websocket_is_granted_though_its_client_is_to_go_elsewhere_next() {
    let stage = Stage::new().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.ready(&[target.local_addr().unwrap()]);
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let request = "GET /ws HTTP/1.1\r\nHost: web.shop\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut upstream, _) = target.accept().await.unwrap();
    until(&mut upstream, "\r\n\r\n").await;
    stage.drain.cancel();
    tokio::task::yield_now().await;
    let granted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Accept: b\r\n\r\n";
    upstream.write_all(granted.as_bytes()).await.unwrap();
    let answer = until(&mut client, "\r\n\r\n").await;
    assert!(answer.contains("connection: upgrade\r\n"), "{answer}");
    assert!(!answer.contains("close"), "{answer}");
    client.write_all(b"word").await.unwrap();
    until(&mut upstream, "word").await;
}

#[tokio::test]
async fn the_port_decides_what_the_target_is_spoken_to_in() {
    let versions = |speaks| async move {
        let stage = Stage::with(Setting {
            speaks,
            ..Setting::default()
        })
        .await;
        let target = Target::serving(|request| async move {
            Response::new(Full::from(format!("{:?}", request.version())))
        })
        .await;
        stage.ready(&[target.address]);
        let mut old = http1(stage.address).await;
        let old = text(old.send_request(get("/")).await.unwrap()).await;
        let mut new = http2(stage.address).await;
        let request = Request::get("http://web.shop/").body(Full::default());
        let new = text(new.send_request(request.unwrap()).await.unwrap()).await;
        (old, new)
    };
    let pair = |old: &str, new: &str| (old.to_owned(), new.to_owned());
    assert_eq!(
        versions(Speaks::Anything).await,
        pair("HTTP/1.1", "HTTP/2.0")
    );
    assert_eq!(versions(Speaks::Http1).await, pair("HTTP/1.1", "HTTP/1.1"));
    assert_eq!(versions(Speaks::Http2).await, pair("HTTP/2.0", "HTTP/2.0"));
    for (declared, speaks) in [
        ("http", Speaks::Http1),
        ("kubernetes.io/ws", Speaks::Http1),
        ("kubernetes.io/h2c", Speaks::Http2),
        ("grpc", Speaks::Http2),
        ("", Speaks::Anything),
        ("https", Speaks::Opaque),
        ("mysql", Speaks::Opaque),
    ] {
        assert_eq!(Speaks::from(declared), speaks, "{declared}");
    }
}

#[tokio::test]
async fn a_bidirectional_grpc_stream_passes_message_by_message() {
    let stage = Stage::new().await;
    let (target, _tasks) = serving(|request: Request<Incoming>| async {
        let frames = futures::stream::unfold(Some(request.into_body()), |body| async {
            let mut body = body?;
            match body.frame().await {
                Some(frame) => {
                    let data = frame.ok()?.into_data().unwrap_or_default();
                    Some((Ok::<_, Infallible>(Frame::data(data)), Some(body)))
                }
                None => {
                    let status = HeaderMap::from_iter([(
                        http::HeaderName::from_static("grpc-status"),
                        http::HeaderValue::from_static("0"),
                    )]);
                    Some((Ok(Frame::trailers(status)), None))
                }
            }
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    })
    .await;
    let (messages, source) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
    let source = Arc::new(tokio::sync::Mutex::new(source));
    let frames = futures::stream::unfold(source, |source| async {
        let next = source.lock().await.recv().await?;
        Some((next, source))
    });
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut client, connection) = handshake.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://web.shop/pkg.Service/Chat")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(StreamBody::new(frames).boxed_unsync())
        .unwrap();
    let answer = tokio::spawn(async move { client.send_request(request).await.unwrap() });
    stage.waits(1).await;
    stage.ready(&[target]);
    let mut body = answer.await.unwrap().into_body();
    for n in 0..5 {
        let message = Bytes::from(format!("message {n}"));
        messages
            .send(Ok(Frame::data(message.clone())))
            .await
            .unwrap();
        let echoed = timeout(SOON, body.frame()).await.expect("at once");
        assert_eq!(echoed.unwrap().unwrap().into_data().unwrap(), message);
    }
    drop(messages);
    let last = timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap();
    assert_eq!(last.into_trailers().unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn grpc_is_refused_in_its_own_words() {
    let stage = Stage::with(Setting {
        seats: 0,
        ..Setting::default()
    })
    .await;
    let mut client = http2(stage.address).await;
    let request = Request::post("http://web.shop/pkg.Service/Call")
        .header("content-type", "application/grpc+proto")
        .body(Full::default())
        .unwrap();
    let refused = client.send_request(request).await.unwrap();
    assert_eq!(refused.status(), 200);
    assert_eq!(refused.headers()["content-type"], "application/grpc");
    assert_eq!(refused.headers()["grpc-status"], "14");
    assert!(refused.headers().contains_key("grpc-message"));
    assert_eq!(refused.headers()["retry-after"], "1");
    let body = refused.into_body().collect().await.unwrap();
    assert!(body.trailers().is_none(), "there are no others");
    assert!(body.to_bytes().is_empty());
}

#[tokio::test]
async fn nobody_is_connected_to_what_they_name() {
    let (stage, target) = awake(Speaks::Anything).await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let name = elsewhere.local_addr().unwrap().to_string();
    for address in [stage.address, stage.named] {
        let mut client = http2(address).await;
        let request = Request::connect(&name).body(Full::default()).unwrap();
        let refused = client.send_request(request).await.unwrap();
        // On the proxy port it names no service.
        let status = if address == stage.named { 404 } else { 501 };
        assert_eq!(refused.status(), status);
    }
    let words = format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n");
    assert_eq!(said(stage.named, words.as_bytes()).await, "");
    let called = timeout(Duration::from_millis(100), elsewhere.accept()).await;
    assert!(called.is_err(), "nobody is dialled");
    assert_eq!(target.requests.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_trace_is_passed_on_or_begun() {
    let (stage, _target) = awake(Speaks::Anything).await;
    let mut client = http1(stage.address).await;
    let known = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut request = get("/");
    let headers = request.headers_mut();
    headers.insert("traceparent", known.parse().unwrap());
    headers.insert("tracestate", "vendor=1".parse().unwrap());
    let answer = client.send_request(request).await.unwrap();
    assert_eq!(answer.headers()["echo-traceparent"], known);
    assert_eq!(answer.headers()["echo-tracestate"], "vendor=1");
    text(answer).await;

    let mut seen = std::collections::HashSet::new();
    for _ in 0..5 {
        client.ready().await.unwrap();
        let answer = client.send_request(get("/")).await.unwrap();
        let trace = answer.headers()["echo-traceparent"].to_str().unwrap();
        let parts: Vec<_> = trace.split('-').collect();
        let lengths: Vec<_> = parts.iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [2, 32, 16, 2], "{trace}");
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        assert!(parts.concat().bytes().all(lower_hex), "{trace}");
        assert_eq!((parts[0], parts[3]), ("00", "00"), "not recorded by us");
        assert!(parts[1].bytes().any(|byte| byte != b'0'), "{trace}");
        assert!(parts[2].bytes().any(|byte| byte != b'0'), "{trace}");
        assert!(seen.insert(parts[1].to_owned()), "each its own");
        text(answer).await;
    }
}

#[tokio::test]
async fn all_proxies_on_the_way_are_named() {
    let (stage, _target) = awake(Speaks::Anything).await;
    let words = "GET / HTTP/1.1\r\nHost: a.b\r\nX-Forwarded-For: 10.0.0.1\r\n\
                 X-Forwarded-For: 10.0.0.2, 10.0.0.3\r\nConnection: close\r\n\r\n";
    let answer = said(stage.address, words.as_bytes()).await;
    let chain = "echo-x-forwarded-for: 10.0.0.1, 10.0.0.2, 10.0.0.3, 127.0.0.1\r\n";
    assert!(answer.contains(chain), "{answer}");
}

#[tokio::test]
async fn streams_beyond_what_one_connection_of_a_target_carries_get_another() {
    let stage = Stage::new().await;
    let reached = Arc::new(AtomicUsize::new(0));
    let count = reached.clone();
    let (target, _tasks) = serving(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::pending()
    })
    .await;
    stage.ready(&[target]);
    stage.room.set_proxied(true);
    let client = http2(stage.address).await;
    let _asked: Vec<_> = (0..350)
        .map(|_| {
            let mut client = client.clone();
            let request = Request::get("http://web.shop/").body(Full::default());
            tokio::spawn(async move { client.send_request(request.unwrap()).await.is_ok() })
        })
        .collect();
    let all = async {
        while reached.load(Ordering::Relaxed) < 350 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = timeout(SOON, all).await;
    assert!(waited.is_ok(), "{} of 350", reached.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_target_is_not_given_more_streams_at_once_than_it_allows() {
    let stage = Stage::new().await;
    let reached = Arc::new(AtomicUsize::new(0));
    let count = reached.clone();
    let (target, _tasks) = serving_at_most(5, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::pending()
    })
    .await;
    let client = http2(stage.address).await;
    let mut asked = JoinSet::new();
    for _ in 0..40 {
        let mut client = client.clone();
        let request = Request::post("http://web.shop/").body(Full::from("body"));
        asked.spawn(async move { client.send_request(request.unwrap()).await });
    }
    stage.waits(40).await;
    stage.ready(&[target]);
    let all = crate::stage::until("all reach it", || reached.load(Ordering::Relaxed) == 40);
    tokio::select! {
        () = all => {}
        answer = asked.join_next() => panic!("{answer:?} of {reached:?}"),
    }
}

#[tokio::test]
async fn a_request_that_fells_targets_is_not_sent_for_ever() {
    let stage = Stage::new().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.ready(&[target.local_addr().unwrap()]);
    let fallen = Arc::new(AtomicUsize::new(0));
    let count = fallen.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = target.accept().await.unwrap();
            let mut some = [0; 8];
            let _ = stream.read(&mut some).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut client = http1(stage.address).await;
    let answer = timeout(SOON, client.send_request(get("/"))).await;
    assert_eq!(answer.unwrap().unwrap().status(), 502);
    let fallen = fallen.load(Ordering::Relaxed);
    assert_eq!(fallen, 6);
}

/// Ends what it is asked with these frames, on each connection.
async fn refusing(frames: &'static [(u8, u32, &'static [u8])]) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut words = frame(4, 0, 0, &[]);
            stream.write_all(&words).await.unwrap();
            let mut heard = Vec::new();
            while !has_head(heard.get(24..).unwrap_or_default()) {
                stream.read_buf(&mut heard).await.unwrap();
            }
            words.clear();
            for (kind, stream, payload) in frames {
                words.extend(frame(*kind, 0, *stream, payload));
            }
            stream.write_all(&words).await.unwrap();
            tokio::spawn(
                async move { while stream.read_buf(&mut heard).await.unwrap_or(0) > 0 {} },
            );
        }
    });
    (address, tasks)
}

/// Whether there is one in these frames.
fn has_head(mut frames: &[u8]) -> bool {
    while let [high, middle, low, kind, ..] = *frames {
        if kind == 1 {
            return true;
        }
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        frames = frames.get(9 + length..).unwrap_or_default();
    }
    false
}

const REFUSED_STREAM: &[(u8, u32, &[u8])] = &[(3, 1, &[0, 0, 0, 7])];
const GOAWAY: &[(u8, u32, &[u8])] = &[(7, 0, &[0; 8])];
const CANCEL: &[(u8, u32, &[u8])] = &[(3, 1, &[0, 0, 0, 8])];

#[tokio::test]
async fn a_stream_that_a_target_did_not_touch_goes_to_another() {
    let ask = |body: &'static str| {
        let request = Request::post("http://web.shop/ask");
        request.body(Full::from(body)).unwrap()
    };
    for frames in [REFUSED_STREAM, GOAWAY] {
        let stage = Stage::new().await;
        let (refusing, _tasks) = refusing(frames).await;
        let target = Target::start().await;
        stage.ready(&[refusing, target.address]);
        let mut client = http2(stage.address).await;
        let answer = client.send_request(ask("")).await.unwrap();
        assert_eq!(text(answer).await, "POST /ask ");

        let stage = Stage::new().await;
        stage.ready(&[refusing]);
        let mut client = http2(stage.address).await;
        let refused = client.send_request(ask("body")).await.unwrap_err();
        let cause = std::error::Error::source(&refused).unwrap();
        let reason = cause.downcast_ref::<h2::Error>().unwrap().reason();
        let words = "the client may send it again itself";
        assert_eq!(reason, Some(h2::Reason::REFUSED_STREAM), "{words}");
        stage.counts("refused_count", "broken", 1).await;
    }
    let stage = Stage::new().await;
    let (refusing, _tasks) = refusing(CANCEL).await;
    let target = Target::start().await;
    stage.ready(&[refusing, target.address]);
    let mut client = http2(stage.address).await;
    let answer = client.send_request(ask("")).await.unwrap();
    assert_eq!(answer.status(), 502, "it may have been touched");
    assert_eq!(target.requests.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn what_was_measured_can_be_read() {
    let stage = Stage::new().await;
    let target = Target::start().await;
    let mut client = http1(stage.address).await;
    let held = tokio::spawn(async move { client.send_request(get("/")).await.unwrap() });
    stage.waits(1).await;
    stage.ready(&[target.address]);
    text(held.await.unwrap()).await;
    assert_eq!(stage.counted("held_seconds", "web"), 1);
    assert_eq!(stage.counted("dial_seconds", "success"), 1);
    assert_eq!(stage.counted("incoming_requests", "web"), 1);
    assert_eq!(stage.counted("host_extraction_count", "port"), 1);
}

fn frames(parts: Vec<Bytes>) -> AnyBody {
    let frames = parts.into_iter().map(|part| Ok(Frame::data(part)));
    StreamBody::new(futures::stream::iter(frames)).boxed_unsync()
}

#[tokio::test]
async fn a_target_whose_answers_have_empty_parts_keeps_those_who_share_its_connection() {
    let stage = Stage::new().await;
    let (events, source) = mpsc::channel(1);
    let source = Arc::new(tokio::sync::Mutex::new(source));
    let (target, _tasks) = serving(move |request: Request<Incoming>| {
        let source = source.clone();
        async move {
            if request.uri().path() != "/events" {
                return Response::new(frames(vec![Bytes::new(), Bytes::from("said")]));
            }
            let events = futures::stream::unfold(source, |source| async {
                let data = source.lock().await.recv().await?;
                Some((Ok::<_, Infallible>(Frame::data(data)), source))
            });
            Response::new(StreamBody::new(events).boxed_unsync())
        }
    })
    .await;
    stage.ready(&[target]);
    stage.room.set_proxied(true);
    let mut client = http2(stage.address).await;
    let request = |path| Request::get(path).body(Full::default()).unwrap();
    let listening = client.send_request(request("http://web.shop/events")).await;
    let mut listening = listening.unwrap().into_body();
    for _ in 0..150 {
        let answer = client.send_request(request("http://web.shop/")).await;
        assert_eq!(text(answer.unwrap()).await, "said");
    }
    events.send(Bytes::from("news")).await.unwrap();
    let heard = timeout(SOON, listening.frame()).await.expect("at once");
    assert_eq!(heard.unwrap().unwrap().into_data().unwrap(), "news");
}

#[tokio::test]
async fn a_body_with_many_empty_parts_arrives() {
    let (stage, _target) = Stage::awake(Setting::default()).await;
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut client, connection) = handshake.unwrap();
    tokio::spawn(connection);
    let mut parts = vec![Bytes::new(); 150];
    parts.push(Bytes::from("words"));
    let request = Request::post("http://web.shop/").body(frames(parts));
    let answer = client.send_request(request.unwrap()).await.unwrap();
    assert_eq!(text(answer).await, "POST / words");
}
