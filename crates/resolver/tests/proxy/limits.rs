//! What one client may take, and for how long.

use crate::stage::*;
use elasti_resolver::{
    listen::{Listeners, bind},
    route::Speaks,
};
use http::{Request, Response};
use http_body_util::{Full, StreamBody};
use hyper::{body::Frame, service::service_fn};
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
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const SHORT: Duration = Duration::from_millis(300);

async fn patient_for(head: Duration, idle: Duration) -> (Stage, Target) {
    Stage::awake(Setting {
        head,
        idle,
        ..Setting::default()
    })
    .await
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_not_waited_for() {
    let (stage, target) = patient_for(SHORT, SOON).await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nX-Slow: ")
        .await
        .unwrap();
    let (mut reader, mut writer) = client.split();
    let mut answer = String::new();
    let drip = async {
        loop {
            sleep(Duration::from_millis(20)).await;
            if writer.write_all(b"a").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let ended = async {
        tokio::select! {
            read = reader.read_to_string(&mut answer) => drop(read.unwrap()),
            () = drip => {}
        }
    };
    timeout(SOON, ended).await.expect("it is not waited for");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(target.connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_slow_answer_is_not_taken_for_an_idle_connection() {
    let stage = Stage::with(Setting {
        head: SHORT,
        idle: SHORT,
        ..Setting::default()
    })
    .await;
    let target = Target::serving(|request| async move {
        sleep(SHORT * 3).await;
        echo(request).await
    })
    .await;
    stage.ready(&[target.address]);
    let mut client = http1(stage.address).await;
    let answer = client.send_request(get("/slow")).await.unwrap();
    assert_eq!(text(answer).await, "GET /slow ");
    let mut client = http2(stage.address).await;
    let answer = client.send_request(absolute("/slow")).await.unwrap();
    assert_eq!(text(answer).await, "GET /slow ");
}

fn absolute(path: &str) -> Request<Full<bytes::Bytes>> {
    let request = Request::get(format!("http://web.shop{path}"));
    request.body(Full::default()).unwrap()
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_after_a_while() {
    let (stage, _target) = patient_for(SOON, SHORT).await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: web.shop\r\n\r\n")
        .await
        .unwrap();
    let begun = Instant::now();
    let answer = heard(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(begun.elapsed() >= SHORT, "but not before");
}

#[tokio::test]
async fn whoever_sends_without_end_is_not_listened_to_for_ever() {
    let (stage, _target) = patient_for(SOON, SOON).await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let words = b"GET / HTTP/1.1\r\nHost: web.shop\r\nConnection: close\r\n\r\n";
    client.write_all(words).await.unwrap();
    let ended = async { while client.write_all(&[0; 1 << 20]).await.is_ok() {} };
    timeout(SOON, ended).await.expect("it is cut");
}

#[tokio::test]
async fn an_http2_connection_without_streams_is_told_to_go() {
    let (stage, _target) = patient_for(SOON, SHORT).await;
    let client = http2(stage.address).await;
    closed(&client).await;
    let mut client = http2(stage.address).await;
    text(client.send_request(absolute("/")).await.unwrap()).await;
    closed(&client).await;
}

async fn closed(client: &hyper::client::conn::http2::SendRequest<Full<bytes::Bytes>>) {
    let gone = async {
        while !client.is_closed() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, gone).await.expect("GOAWAY");
}

#[tokio::test]
async fn half_a_preface_is_not_waited_for() {
    let (stage, _target) = patient_for(SHORT, SOON).await;
    let answer = said(stage.address, b"PRI * HTTP/2.0\r\n\r\nS").await;
    assert_eq!(answer, "");
}

#[tokio::test]
async fn whoever_says_nothing_on_a_port_that_speaks_http_wakes_nobody() {
    let mut stage = Stage::with(Setting {
        speaks: Speaks::Http1,
        head: SHORT,
        ..Setting::default()
    })
    .await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    assert_eq!(heard(&mut client).await, "");
    assert!(stage.knocks.try_recv().is_err());
}

/// Frames of HTTP/2, written by hand.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn preface() -> Vec<u8> {
    let mut words = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    words.extend(frame(4, 0, 0, &[]));
    words
}

/// `GET http://x/`, by the static table.
const ASK: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 0x01, b'x'];

#[tokio::test]
async fn an_http2_client_that_comes_late_is_answered_before_it_is_sent_to_the_pods() {
    let (stage, _target) = patient_for(SOON, SOON).await;
    stage.room.set_proxied(false);
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client.write_all(&preface()).await.unwrap();
    // After the first answer all is done that is to be done at once.
    for _ in 0..2 {
        client
            .write_all(&frame(6, 0, 0, b"are here"))
            .await
            .unwrap();
        let kinds = kinds_until(&mut client, &[PONG]).await;
        assert!(!kinds.contains(&GOAWAY), "{kinds:?}");
    }
    client.write_all(&frame(1, 5, 1, &ASK)).await.unwrap();
    kinds_until(&mut client, &[HEADERS, GOAWAY]).await;
}

const HEADERS: (u8, u8) = (1, 4);
const GOAWAY: (u8, u8) = (7, 0);
const PONG: (u8, u8) = (6, 1);

/// Kinds and flags of the frames that come until all of these have.
async fn kinds_until(client: &mut TcpStream, wanted: &[(u8, u8)]) -> Vec<(u8, u8)> {
    let mut kinds = Vec::new();
    while !wanted.iter().all(|kind| kinds.contains(kind)) {
        kinds.push(next_kind(client).await);
    }
    kinds
}

async fn next_kind(client: &mut TcpStream) -> (u8, u8) {
    next_frame(client).await.0
}

/// Kind and flags of the next frame, and what is in it.
async fn next_frame(client: &mut TcpStream) -> ((u8, u8), Vec<u8>) {
    let mut head = [0; 9];
    let read = timeout(SOON, client.read_exact(&mut head)).await;
    read.expect("there is more to come").unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    client.read_exact(&mut payload).await.unwrap();
    ((head[3], head[4]), payload)
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

#[tokio::test]
async fn little_of_a_body_may_be_sent_before_somebody_takes_it() {
    let stage = Stage::new().await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client.write_all(&preface()).await.unwrap();
    let (mut of_one, mut of_all) = (65_535, 65_535);
    while of_one == 65_535 || of_all == 65_535 {
        match next_frame(&mut client).await {
            ((SETTINGS, 0), payload) => {
                let mut settings = payload.chunks(6);
                let window = settings.find(|setting| setting[..2] == [0, 4]);
                of_one = number(&window.unwrap()[2..]);
            }
            ((WINDOW_UPDATE, 0), payload) => of_all += number(&payload),
            _ => {}
        }
    }
    assert_eq!((of_one, of_all), (32 * 1024, 1024 * 1024));
}

const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;

#[tokio::test]
async fn little_of_an_answer_is_kept_for_a_client_that_does_not_read() {
    const STREAMS: u32 = 100;
    let stage = Stage::new().await;
    let (target, sent) = endless().await;
    stage.ready(&[target]);
    let mut words = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let all = i32::MAX as u32;
    let window = [&[0, 4][..], &all.to_be_bytes()].concat();
    words.extend(frame(SETTINGS, 0, 0, &window));
    words.extend(frame(WINDOW_UPDATE, 0, 0, &(all - 65_535).to_be_bytes()));
    for stream in 0..STREAMS {
        words.extend(frame(1, 5, 2 * stream + 1, &ASK));
    }
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client.write_all(&words).await.unwrap();
    let mut before = 0;
    let stalled = async {
        while before == 0 || before != sent.load(Ordering::Relaxed) {
            before = sent.load(Ordering::Relaxed);
            sleep(SHORT).await;
        }
    };
    timeout(SOON, stalled).await.expect("it ends");
    let each = before / STREAMS as usize;
    assert!(each < 300 * 1024, "{each} bytes of each");
}

/// A target whose answers have no end, and what it could send of them.
async fn endless() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, sent) = (listener.local_addr().unwrap(), Arc::default());
    let count: Arc<AtomicUsize> = Arc::clone(&sent);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let count = count.clone();
            let service = service_fn(move |_| {
                let count = count.clone();
                let frames = futures::stream::repeat_with(move || {
                    count.fetch_add(16 * 1024, Ordering::Relaxed);
                    let data = bytes::Bytes::from_static(&[7; 16 * 1024]);
                    Ok::<_, Infallible>(Frame::data(data))
                });
                async { Ok::<_, Infallible>(Response::new(StreamBody::new(frames))) }
            });
            let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            http.max_send_buf_size(16 * 1024);
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, sent)
}

#[tokio::test]
async fn an_http2_request_with_two_hosts_is_refused() {
    let (stage, target) = patient_for(SOON, SOON).await;
    // GET, http, `/`, and a Host of one letter.
    let host = |name: u8| [0x0f, 0x17, 0x01, name];
    let one = [&ASK[..3], &host(b'a')].concat();
    let two = [&one[..], &host(b'b')].concat();
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client.write_all(&preface()).await.unwrap();
    for (stream, asked, status) in [(1, one, OK), (3, two, BAD_REQUEST)] {
        client
            .write_all(&frame(1, 5, stream, &asked))
            .await
            .unwrap();
        let head = loop {
            if let (HEADERS, payload) = next_frame(&mut client).await {
                break payload;
            }
        };
        assert_eq!(head[0], status);
    }
    assert_eq!(target.requests.load(Ordering::Relaxed), 1);
    stage.counts("refused_count", "malformed", 1).await;
}

/// In the static table.
const OK: u8 = 0x88;
const BAD_REQUEST: u8 = 0x8c;

#[tokio::test]
async fn streams_that_are_reset_as_fast_as_they_come_end_their_connection() {
    let stage = Stage::new().await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let mut words = preface();
    for stream in (1..20_001).step_by(2) {
        words.extend(frame(1, 5, stream, &ASK));
        words.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    let (mut reader, mut writer) = client.split();
    let write = async { drop(writer.write_all(&words).await) };
    let mut answer = Vec::new();
    let read = async { drop(reader.read_to_end(&mut answer).await) };
    timeout(SOON, async { tokio::join!(write, read) })
        .await
        .expect("it is closed");
    let calm_down = 11_u32.to_be_bytes();
    assert!(
        answer.windows(4).any(|code| code == calm_down),
        "GOAWAY says why"
    );
    stage.waits(0).await;
}

#[tokio::test]
async fn more_streams_than_allowed_are_refused_and_the_others_live() {
    let stage = Stage::new().await;
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let handshake = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_max_send_streams(2_000)
        .handshake::<_, Full<bytes::Bytes>>(TokioIo::new(stream))
        .await;
    let (client, connection) = handshake.unwrap();
    tokio::spawn(connection);
    let asked: Vec<_> = (0..1_500)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move { client.send_request(absolute("/")).await.is_ok() })
        })
        .collect();
    stage.waits(1_024).await;
    let target = Target::start().await;
    stage.ready(&[target.address]);
    let mut answered = 0;
    for one in asked {
        answered += usize::from(one.await.unwrap());
    }
    assert!(answered >= 1_024, "{answered}");
}

#[tokio::test]
async fn a_header_list_that_is_too_large_is_refused_with_431() {
    let (stage, target) = patient_for(SOON, SOON).await;
    let mut client = http2(stage.address).await;
    let mut request = absolute("/");
    for n in 0..20 {
        let name: http::HeaderName = format!("x-long-{n}").parse().unwrap();
        request
            .headers_mut()
            .insert(name, "a".repeat(4_000).parse().unwrap());
    }
    let refused = client.send_request(request).await;
    let status = refused.map(|refused| refused.status().as_u16());
    assert!(matches!(status, Ok(431) | Err(_)), "{status:?}");
    assert_eq!(target.requests.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_peer_that_is_dead_is_noticed_by_its_silence() {
    let stage = Stage::new().await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let mut words = preface();
    words.extend(frame(1, 5, 1, &ASK));
    client.write_all(&words).await.unwrap();
    stage.waits(1).await;
    tokio::time::pause();
    let mut answer = Vec::new();
    let closed = timeout(Duration::from_secs(100), client.read_to_end(&mut answer)).await;
    assert!(closed.is_ok(), "no PING was answered");
    stage.waits(0).await;
}

#[tokio::test]
async fn clients_that_say_nothing_do_not_hinder_others() {
    let stage = Stage::with(Setting {
        speaks: Speaks::Http1,
        head: Duration::from_secs(60),
        ..Setting::default()
    })
    .await;
    let mut silent = Vec::new();
    for _ in 0..5_000 {
        silent.push(TcpStream::connect(stage.address).await.unwrap());
    }
    let target = Target::start().await;
    stage.ready(&[target.address]);
    let begun = Instant::now();
    let mut client = http1(stage.address).await;
    let answer = client.send_request(get("/")).await.unwrap();
    assert_eq!(text(answer).await, "GET / ");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(target.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn whoever_is_in_the_queue_when_a_port_is_closed_is_served() {
    let (stage, _target) = patient_for(SOON, SOON).await;
    let listeners = Listeners {
        proxy: stage.proxy.clone(),
        tasks: TaskTracker::new(),
        connections: Arc::new(Semaphore::new(10)),
        stop: CancellationToken::new(),
        arrivals: Arc::default(),
    };
    let listener = bind(0).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut queue = Vec::new();
    for _ in 0..5 {
        let mut client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let words = b"GET / HTTP/1.0\r\nHost: web.shop\r\n\r\n";
        client.write_all(words).await.unwrap();
        queue.push(client);
    }
    listeners.stop.cancel();
    listeners.named(listener).await;
    for mut client in queue {
        let answer = heard(&mut client).await;
        assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    }
    let late = TcpStream::connect(("127.0.0.1", port)).await;
    assert!(late.is_err(), "it is closed");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_their_turn_and_unused_ports_take_none() {
    let stage = Stage::new().await;
    let stranger = || {
        let mut request = get("/");
        let host = request.headers_mut().get_mut("host").unwrap();
        *host = "nobody.shop".parse().unwrap();
        request
    };
    let listeners = Listeners {
        proxy: stage.proxy.clone(),
        tasks: TaskTracker::new(),
        connections: Arc::new(Semaphore::new(1)),
        stop: CancellationToken::new(),
        arrivals: Arc::default(),
    };
    let mut addresses = Vec::new();
    for _ in 0..3 {
        let listener = bind(0).unwrap();
        let port = listener.local_addr().unwrap().port();
        addresses.push(([127, 0, 0, 1], port).into());
        let listeners = listeners.clone();
        tokio::spawn(async move { listeners.named(listener).await });
    }
    let mut first = http1(addresses[0]).await;
    let unknown = first.send_request(stranger()).await.unwrap();
    assert_eq!(
        unknown.status(),
        404,
        "nobody is known here, and it says so"
    );
    text(unknown).await;
    let mut second = http1(addresses[1]).await;
    let mut waits = Box::pin(second.send_request(stranger()));
    assert!(timeout(SHORT, &mut waits).await.is_err(), "it waits");
    drop(first);
    let answer = timeout(SOON, waits).await.expect("its turn").unwrap();
    assert_eq!(answer.status(), 404);
}
