use crate::{
    limits::frame,
    protocols::{AnyBody, serving},
    stage::{SOON, Setting, Stage, Target, get, http1, http2, parrot, text},
};
use bytes::Bytes;
use elasti_resolver::route::Speaks;
use futures::future::join_all;
use h2::{Reason, SendStream, client::ResponseFuture};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming};
use std::{net::SocketAddr, sync::atomic::Ordering, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{pause, sleep, timeout},
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status 200`.
const FINE: &[u8] = &[0x88];

/// A target that writes its frames itself, and remembers what it reads.
struct Scribe {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Scribe {
    async fn meet(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        let mut scribe = Self {
            stream,
            heard: Vec::new(),
        };
        scribe.say(SETTINGS, 0, 0, &[]).await;
        scribe
    }

    async fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let words = frame(kind, flags, stream, payload);
        self.stream.write_all(&words).await.unwrap();
    }

    async fn hears(&mut self, kind: u8) {
        self.hears_so_often(kind, 1).await;
    }

    async fn hears_so_often(&mut self, kind: u8, times: usize) {
        while self.kinds().iter().filter(|heard| **heard == kind).count() < times {
            assert!(self.stream.read_buf(&mut self.heard).await.unwrap() > 0);
        }
    }

    /// Of the whole frames that came behind the preface.
    fn kinds(&self) -> Vec<u8> {
        let mut kinds = Vec::new();
        let mut rest = self.heard.get(24..).unwrap_or_default();
        while let [high, middle, low, kind, ..] = *rest {
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            let Some(next) = rest.get(9 + length..) else {
                break;
            };
            kinds.push(kind);
            rest = next;
        }
        kinds
    }
}

/// Behind the resolver, and where its target is to be met.
async fn before_a_scribe() -> (Stage, TcpListener) {
    let stage = Stage::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.ready(&[listener.local_addr().unwrap()]);
    stage.room.set_proxied(true);
    (stage, listener)
}

/// A client that may end its request in any way.
async fn upload(address: SocketAddr) -> (ResponseFuture, SendStream<Bytes>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://web.shop/").body(()).unwrap();
    client.send_request(request, false).unwrap()
}

fn empty() -> Response<AnyBody> {
    Response::new(Full::default().boxed_unsync())
}

#[tokio::test]
async fn a_target_that_is_silent_for_long_is_not_pinged() {
    let (stage, listener) = before_a_scribe().await;
    let mut client = http2(stage.address).await;
    tokio::spawn(async move { client.send_request(get("/")).await });
    let mut target = Scribe::meet(&listener).await;
    target.hears(HEADERS).await;
    pause();
    tokio::select! {
        () = sleep(Duration::from_mins(10)) => {}
        () = target.hears(PING) => panic!("servers of gRPC take that for an attack"),
    }
}

#[tokio::test]
async fn an_upload_that_its_client_gives_up_is_not_taken_for_whole() {
    for (speaks, reason) in [
        (Speaks::Http1, Reason::CANCEL),
        (Speaks::Http1, Reason::NO_ERROR),
        (Speaks::Http2, Reason::CANCEL),
        (Speaks::Http2, Reason::NO_ERROR),
    ] {
        let stage = Stage::with(Setting {
            speaks,
            ..Setting::default()
        })
        .await;
        let (came, mut coming) = mpsc::unbounded_channel();
        let (target, _tasks) = serving(move |request: Request<Incoming>| {
            let (came, mut body) = (came.clone(), request.into_body());
            let read = tokio::spawn(async move {
                let first = body.frame().await;
                came.send(first.is_some_and(|frame| frame.is_ok())).unwrap();
                came.send(body.collect().await.is_ok()).unwrap();
            });
            async {
                read.await.unwrap();
                empty()
            }
        })
        .await;
        stage.ready(&[target]);
        stage.room.set_proxied(true);
        let (_answer, mut body) = upload(stage.address).await;
        body.send_data(Bytes::from("half of it"), false).unwrap();
        assert_eq!(coming.recv().await, Some(true));
        body.send_reset(reason);
        let end = timeout(SOON, coming.recv()).await.expect("it ends");
        assert_eq!(end, Some(false), "{speaks:?}, {reason}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_whole() {
    let (stage, listener) = before_a_scribe().await;
    let (answer, mut body) = upload(stage.address).await;
    body.send_data(Bytes::new(), true).unwrap();
    let mut target = Scribe::meet(&listener).await;
    target.hears(HEADERS).await;
    target.say(HEADERS, END_HEADERS, 1, FINE).await;
    target.say(DATA, 0, 1, b"half of it").await;
    let mut answer = answer.await.unwrap().into_body();
    assert_eq!(answer.data().await.unwrap().unwrap(), "half of it");
    let cancel = u32::from(Reason::CANCEL).to_be_bytes();
    target.say(RST_STREAM, 0, 1, &cancel).await;
    let end = timeout(SOON, answer.data()).await.expect("it ends");
    let reason = end.and_then(|end| end.unwrap_err().reason());
    assert_eq!(reason, Some(Reason::CANCEL));
}

#[tokio::test]
async fn a_request_goes_elsewhere_when_its_target_is_gone_before_it_takes_any() {
    let stage = Stage::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = Target::start().await;
    stage.ready(&[listener.local_addr().unwrap(), other.address]);
    stage.room.set_proxied(true);
    let mut client = http2(stage.address).await;
    let request = Request::post("http://web.shop/").body(Full::from("words"));
    let asked = tokio::spawn(async move { client.send_request(request.unwrap()).await });
    drop(listener.accept().await.unwrap());
    let answer = timeout(SOON, asked).await.expect("at once");
    assert_eq!(text(answer.unwrap().unwrap()).await, "POST / words");
}

#[tokio::test]
async fn an_upload_goes_on_behind_an_answer_that_is_whole() {
    let stage = Stage::new().await;
    let (came, mut coming) = mpsc::unbounded_channel();
    let (target, _tasks) = serving(move |request: Request<Incoming>| {
        let came = came.clone();
        tokio::spawn(async move {
            let whole = request.into_body().collect().await;
            came.send(whole.map(|body| body.to_bytes())).unwrap();
        });
        async { empty() }
    })
    .await;
    stage.ready(&[target]);
    stage.room.set_proxied(true);
    let (answer, mut body) = upload(stage.address).await;
    assert!(answer.await.unwrap().into_body().is_end_stream());
    body.send_data(Bytes::from("and then this"), true).unwrap();
    let came = timeout(SOON, coming.recv()).await.expect("it goes on");
    assert_eq!(came.unwrap().unwrap(), "and then this");
}

#[tokio::test]
async fn an_answer_is_whole_though_its_target_ends_the_connection_before_the_upload() {
    /// `:status 200` and `content-length: 4`.
    const WITH_LENGTH: &[u8] = &[0x88, 0x0f, 0x0d, 0x01, b'4'];
    for farewell in [None, Some(Reason::NO_ERROR)] {
        let (stage, listener) = before_a_scribe().await;
        let (answer, mut body) = upload(stage.address).await;
        body.send_data(Bytes::from("half of it"), false).unwrap();
        let mut target = Scribe::meet(&listener).await;
        target.hears(DATA).await;
        target.say(HEADERS, END_HEADERS, 1, WITH_LENGTH).await;
        target.say(DATA, END_STREAM, 1, b"seen").await;
        if let Some(reason) = farewell {
            let reason = u32::from(reason).to_be_bytes();
            target.say(RST_STREAM, 0, 1, &reason).await;
        }
        drop(target);
        let answer = timeout(SOON, answer).await.expect("at once").unwrap();
        let mut answer = answer.into_body();
        let mut came = Vec::new();
        while let Some(data) = timeout(SOON, answer.data()).await.expect("it ends") {
            came.extend_from_slice(&data.unwrap());
        }
        assert_eq!(came, b"seen", "{farewell:?}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_told_of_to_the_target() {
    let (stage, listener) = before_a_scribe().await;
    let mut client = http2(stage.address).await;
    let asked = tokio::spawn(async move { client.send_request(get("/")).await });
    let mut target = Scribe::meet(&listener).await;
    target.hears(HEADERS).await;
    asked.abort();
    let told = timeout(SOON, target.hears(RST_STREAM)).await;
    told.expect("it works for nobody");
}

#[tokio::test]
async fn thousands_that_leave_before_their_answers_come_take_nobody_along() {
    const ROUNDS: u32 = 12;
    const TOGETHER: u32 = 100;
    let (stage, listener) = before_a_scribe().await;
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let ask = |client: &mut h2::client::SendRequest<Bytes>| {
        let request = Request::get("http://web.shop/").body(()).unwrap();
        client.send_request(request, true).unwrap().0
    };
    let mut asked = vec![ask(&mut client)];
    let mut target = Scribe::meet(&listener).await;
    let mut first = 1;
    for round in 1..=ROUNDS {
        while asked.len() < TOGETHER as usize {
            client = client.ready().await.unwrap();
            asked.push(ask(&mut client));
        }
        let so_far = (round * TOGETHER) as usize;
        target.hears_so_often(HEADERS, so_far).await;
        asked.clear();
        target.hears_so_often(RST_STREAM, so_far).await;
        for stream in (first..).step_by(2).take(TOGETHER as usize) {
            target.say(HEADERS, END_HEADERS, stream, FINE).await;
            target.say(DATA, END_STREAM, stream, b"late").await;
        }
        first += 2 * TOGETHER;
    }
    client = client.ready().await.unwrap();
    let answer = ask(&mut client);
    let so_far = (ROUNDS * TOGETHER) as usize;
    target.hears_so_often(HEADERS, so_far + 1).await;
    target
        .say(HEADERS, END_HEADERS | END_STREAM, first, FINE)
        .await;
    let answer = timeout(SOON, answer).await.expect("at once").unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_target_that_takes_connections_and_says_nothing_holds_up_nobody_for_long() {
    let stage = Stage::new().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = Target::start().await;
    stage.ready(&[silent.local_addr().unwrap(), other.address]);
    stage.room.set_proxied(true);
    let asked = (0..8).map(async |_| {
        let mut client = http2(stage.address).await;
        let request = Request::post("http://web.shop/").body(Full::from("words"));
        text(client.send_request(request.unwrap()).await.unwrap()).await
    });
    let answers = timeout(SOON, join_all(asked)).await;
    let answers = answers.expect("the other is there");
    assert!(answers.iter().all(|answer| answer == "POST / words"));
}

#[tokio::test]
async fn a_connection_that_has_nothing_to_do_does_not_outlive_its_resolver() {
    let (stage, listener) = before_a_scribe().await;
    let mut client = http2(stage.address).await;
    let asked = tokio::spawn(async move { client.send_request(get("/")).await });
    let mut target = Scribe::meet(&listener).await;
    target.hears(HEADERS).await;
    stage.proxy.upstreams.close();
    target.say(HEADERS, END_HEADERS | END_STREAM, 1, FINE).await;
    assert_eq!(asked.await.unwrap().unwrap().status(), 200);
    let ended = timeout(SOON, target.stream.read_to_end(&mut target.heard)).await;
    ended.expect("nobody waits for it").unwrap();
}

#[tokio::test]
async fn uploads_that_wait_for_one_service_leave_room_for_those_to_others() {
    let (stage, _target) = Stage::awake(Setting::default()).await;
    stage.stands_beside_a_sleeper();
    let mut client = http2(stage.named).await;
    let bodies = || Full::from(vec![b'x'; 32 * 1024]);
    let waiting: Vec<_> = (0..64)
        .map(|_| {
            let upload = Request::post("http://sleeper.shop/").body(bodies());
            tokio::spawn(client.send_request(upload.unwrap()))
        })
        .collect();
    let other = Request::post("http://web.shop/").body(bodies());
    let answer = timeout(SOON, client.send_request(other.unwrap())).await;
    let answer = answer.expect("nobody here sleeps").unwrap();
    assert_eq!(answer.status(), 200);
    assert!(waiting.iter().all(|upload| !upload.is_finished()));
}

#[tokio::test]
async fn a_handshake_of_a_websocket_is_a_plain_request_to_a_target_that_speaks_http2() {
    let stage = Stage::with(Setting {
        speaks: Speaks::Http2,
        ..Setting::default()
    })
    .await;
    let target = Target::start().await;
    stage.ready(&[target.address]);
    stage.room.set_proxied(true);
    for body in ["", "words"] {
        let request = Request::get("/chat")
            .header("host", "web.shop")
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .body(Full::from(body))
            .unwrap();
        let mut client = http1(stage.address).await;
        let answer = timeout(SOON, client.send_request(request));
        let answer = answer.await.expect("at once").unwrap();
        assert_eq!(text(answer).await, format!("GET /chat {body}"));
    }
}

#[tokio::test]
async fn a_target_that_does_not_speak_http2_is_not_asked_again_and_again() {
    let stage = Stage::new().await;
    let (target, _tasks) = parrot("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    stage.ready(&[target]);
    stage.room.set_proxied(true);
    let mut client = http2(stage.address).await;
    for body in ["", "words"] {
        let request = Request::post("http://web.shop/").body(Full::from(body));
        let answer = timeout(SOON, client.send_request(request.unwrap()));
        let answer = answer.await.expect("at once").unwrap();
        assert_eq!(answer.status(), 502, "{body:?}");
    }
}

#[tokio::test]
async fn a_request_that_came_is_not_sent_again_when_its_target_allows_no_more() {
    let stage = Stage::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = Target::start().await;
    stage.ready(&[listener.local_addr().unwrap(), other.address]);
    stage.room.set_proxied(true);
    let (answer, mut body) = upload(stage.address).await;
    body.send_data(Bytes::new(), true).unwrap();
    let mut target = Scribe::meet(&listener).await;
    target.hears(HEADERS).await;
    const MAX_CONCURRENT_STREAMS: u8 = 3;
    target
        .say(SETTINGS, 0, 0, &[0, MAX_CONCURRENT_STREAMS, 0, 0, 0, 0])
        .await;
    target
        .say(
            RST_STREAM,
            0,
            1,
            &u32::from(Reason::INTERNAL_ERROR).to_be_bytes(),
        )
        .await;
    let answer = timeout(SOON, answer).await.expect("at once").unwrap();
    assert_eq!(answer.status(), 502);
    assert_eq!(other.requests.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_target_that_takes_connections_and_no_request_is_asked_ever_more_seldom() {
    let stage = Stage::with(Setting {
        patience: Duration::from_secs(3),
        ..Setting::default()
    })
    .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.ready(&[listener.local_addr().unwrap()]);
    stage.room.set_proxied(true);
    let mut client = http2(stage.address).await;
    let request = Request::post("http://web.shop/").body(Full::from("words"));
    let mut asked = tokio::spawn(async move { client.send_request(request.unwrap()).await });
    let mut dialled = 0;
    let answer = loop {
        tokio::select! {
            answer = &mut asked => break answer.unwrap().unwrap(),
            taken = listener.accept() => {
                drop(taken.unwrap());
                dialled += 1;
            }
        }
    };
    assert_eq!(answer.status(), 504);
    assert!((4..=9).contains(&dialled), "{dialled}");
}
