//! What passes as bytes, on the port of a service, is what the parser makes of it, on the port where requests say
//! whose they are.

use crate::stage::*;
use http::StatusCode;
use http_body_util::BodyExt;
use std::{net::SocketAddr, sync::atomic::Ordering, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Requests, without their last empty line.
const REQUESTS: [&str; 32] = [
    "GET / HTTP/1.1\r\nHost: web.shop",
    "GET /a/b?c=d&e=%20f;g=1,2 HTTP/1.1\r\nHost: web.shop",
    "GET //a/../b/./c HTTP/1.1\r\nHost: web.shop",
    "GET /a|b HTTP/1.1\r\nHost: web.shop",
    "GET /a\"b HTTP/1.1\r\nHost: web.shop",
    "GET /a#b HTTP/1.1\r\nHost: web.shop",
    "HEAD / HTTP/1.1\r\nHost: web.shop",
    "OPTIONS / HTTP/1.1\r\nHost: web.shop",
    "OPTIONS * HTTP/1.1\r\nHost: web.shop",
    "DELETE /1 HTTP/1.1\r\nHost: web.shop",
    "PURGE /1 HTTP/1.1\r\nHost: web.shop",
    "GET http://web.shop/x HTTP/1.1\r\nHost: other.shop",
    "GET / HTTP/1.1\r\nhOST:\tweb.shop \r\nX-Own:   1  ",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nX-Empty:\r\nX-Tab: a\tb\r\nX-Far: \u{e9}\u{20ac}",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nCookie: a=1\r\nX-Own: 1\r\ncookie: b=2",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nConnection: Close",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nConnection: X-Hop\r\nX-Hop: 1",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nConnection: Upgrade\r\nUpgrade: h2c",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nProxy-Connection: keep-alive",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nTE: trailers, deflate\r\nConnection: TE",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nContent-Length: 0",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nExpect: 100-continue",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nX-Forwarded-For: 10.0.0.1",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nX-Forwarded-For:",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nX-Forwarded-For: \u{e9}",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nX-Forwarded-For: 10.0.0.1\r\nx-forwarded-for: 10.0.0.2, 10.0.0.3",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nX-Forwarded-Host: www\r\nX-Forwarded-Host: api",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nX-Forwarded-Proto: https\r\nForwarded: for=a",
    "GET / HTTP/1.1\r\nHost: web.shop\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "POST / HTTP/1.1\r\nHost: web.shop\r\nContent-Length: 5\r\n\r\nb",
];

/// Answers to a GET.
const ANSWERS: [&str; 26] = [
    ANSWER,
    "HTTP/1.1 404 Nothing here at all\r\nContent-Length: 0\r\nX-Own: 1\r\nx-own: 2\r\n\r\n",
    "HTTP/1.1 299 \r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 204 No Content\r\nX-Own: 1\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0004;x=\"y\"\r\n\r\n\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nTrailer: X-Sum\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n",
    "HTTP/1.1 200 OK\r\n\r\nuntil the end",
    "HTTP/1.0 200 OK\r\n\r\nuntil the end",
    "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold",
    "HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nold",
    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nConnection: content-length\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: close, keep-alive\r\n\r\nold",
    "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nConnection: Date\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nConnection: X-Hop, close\r\nX-Hop: 1\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-Far: \u{e9}\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
];

/// A target that tells what it hears, and answers once on each connection.
struct Scribe {
    listener: TcpListener,
    answer: &'static str,
    /// Of the answer, at a time.
    piece: usize,
}

impl Scribe {
    async fn start(answer: &'static str, piece: usize) -> (Self, Stage) {
        let (listener, stage) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            Stage::new().await,
        );
        stage.ready(&[listener.local_addr().unwrap()]);
        stage.room.set_proxied(true);
        let scribe = Self {
            listener,
            answer,
            piece,
        };
        (scribe, stage)
    }

    /// A client that has asked, and where the target has begun to hear it.
    async fn asked(&self, stage: &Stage) -> (TcpStream, TcpStream) {
        let mut client = TcpStream::connect(stage.address).await.unwrap();
        let words = b"GET / HTTP/1.1\r\nHost: web.shop\r\n\r\n";
        client.write_all(words).await.unwrap();
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut some = [0; 4];
        stream.read_exact(&mut some).await.unwrap();
        (client, stream)
    }

    async fn serve(&self) -> String {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut heard).await.unwrap() > 0);
        }
        for piece in self.answer.as_bytes().chunks(self.piece) {
            let _ = stream.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        String::from_utf8(heard).unwrap()
    }
}

/// The first line, then the fields by name. Names mean the same in any letters.
fn told(head: &str) -> Vec<String> {
    let (first, fields) = head.split_once("\r\n").unwrap();
    let mut fields: Vec<_> = fields
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| match name.to_lowercase() {
            name if name == "traceparent" && value.ends_with("-00") => name,
            name => format!("{name}: {value}"),
        })
        .collect();
    fields.sort();
    [vec![first.to_owned()], fields].concat()
}

#[tokio::test]
async fn the_target_hears_the_same_of_a_request_that_was_parsed() {
    for request in REQUESTS {
        let (scribe, stage) = Scribe::start(ANSWER, ANSWER.len()).await;
        let mut heard = Vec::new();
        for address in [stage.address, stage.named] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let whole = format!("{request}\r\n\r\n");
            client.write_all(whole.as_bytes()).await.unwrap();
            let served = timeout(SOON, scribe.serve()).await;
            heard.push(served.unwrap_or_else(|_| panic!("nothing came of {request:?}")));
        }
        assert_eq!(told(&heard[0]), told(&heard[1]), "{request:?}");
    }
}

#[tokio::test]
async fn names_keep_their_letters_and_fields_their_order() {
    let (scribe, stage) = Scribe::start(ANSWER, ANSWER.len()).await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let request = "GET / HTTP/1.1\r\nX-B: 1\r\nHost: web.shop\r\nX-a: 2\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let heard = scribe.serve().await;
    let kept = "GET / HTTP/1.1\r\nX-B: 1\r\nHost: web.shop\r\nX-a: 2\r\n";
    assert!(heard.starts_with(kept), "{heard}");
}

/// What a client makes of an answer, but for what is between two that talk to each other.
async fn understood(address: SocketAddr, scribe: &Scribe) -> (StatusCode, Vec<String>, String) {
    let mut client = http1(address).await;
    let (answer, _) = tokio::join!(client.send_request(get("/")), scribe.serve());
    let answer = answer.unwrap_or_else(|error| panic!("{error:?} of {:?}", scribe.answer));
    let (head, body) = answer.into_parts();
    let between = ["connection", "transfer-encoding"];
    let fields = head
        .headers
        .iter()
        .filter(|(name, _)| !between.contains(&name.as_str()));
    let mut fields: Vec<_> = fields
        .map(|(name, value)| match name.as_str() {
            "date" if !scribe.answer.contains("OK\r\nDate") => "date".to_owned(),
            _ => format!("{name}: {value:?}"),
        })
        .collect();
    fields.sort();
    let body = body.collect().await;
    let body = body.unwrap_or_else(|error| panic!("{error:?} of {:?}", scribe.answer));
    let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
    (head.status, fields, text)
}

#[tokio::test]
async fn a_client_understands_the_same_of_an_answer_that_was_parsed_whatever_its_pieces() {
    for answer in ANSWERS {
        let (scribe, stage) = Scribe::start(answer, answer.len()).await;
        let parsed = understood(stage.named, &scribe).await;
        for piece in [answer.len(), 1, 7] {
            let (scribe, stage) = Scribe::start(answer, piece).await;
            let passed = understood(stage.address, &scribe).await;
            assert_eq!(passed, parsed, "{answer:?} in pieces of {piece}");
        }
    }
}

#[tokio::test]
async fn an_answer_to_head_has_the_length_of_a_body_and_none() {
    for fields in [
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "X-Own: 1",
    ] {
        let words = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").leak();
        let (target, _parrot) = parrot(words).await;
        let stage = Stage::new().await;
        stage.ready(&[target]);
        stage.room.set_proxied(true);
        let mut client = TcpStream::connect(stage.address).await.unwrap();
        for last in [false, true] {
            let close = if last { "Connection: close\r\n" } else { "" };
            let words = format!("HEAD / HTTP/1.1\r\nHost: web.shop\r\n{close}\r\n");
            client.write_all(words.as_bytes()).await.unwrap();
            if !last {
                until_end_of_head(&mut client).await;
            }
        }
        let answer = heard(&mut client).await;
        let length = fields.starts_with("Content-Length").then_some(fields);
        assert!(answer.contains(length.unwrap_or_default()), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    }
}

async fn until_end_of_head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(SOON, client.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_a_whole_one() {
    for begun in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhal",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhal\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhal\r\nx\r\n",
        "HTTP/1.1 200 OK\r\n\r\nhal",
    ] {
        let (scribe, stage) = Scribe::start(begun, begun.len()).await;
        let mut client = http1(stage.address).await;
        let sent = tokio::spawn(async move { client.send_request(get("/")).await.unwrap() });
        let (mut stream, _) = scribe.listener.accept().await.unwrap();
        let mut some = [0; 4];
        stream.read_exact(&mut some).await.unwrap();
        let (head, body) = begun.split_at(begun.find("\r\n\r\n").unwrap() + 4);
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = sent.await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        // A close of a target that is not at its end is a reset.
        stream.set_zero_linger().unwrap();
        drop(stream);
        let body = timeout(SOON, answer.into_body().collect()).await;
        assert!(body.unwrap().is_err(), "{begun:?}");
    }
}

#[tokio::test]
async fn an_answer_without_a_length_is_not_cut_short_by_a_client_that_says_no_more() {
    let (scribe, stage) = Scribe::start("", 1).await;
    let (mut client, mut stream) = scribe.asked(&stage).await;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\n\r\npart")
        .await
        .unwrap();
    until_end_of_head(&mut client).await;
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    let _ = timeout(SOON, client.read_to_end(&mut rest)).await.unwrap();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "as if it were whole");
    assert!(
        rest.is_empty() || rest.starts_with(b"4\r\npart"),
        "{rest:?}"
    );
}

#[tokio::test]
async fn a_client_whose_service_is_gone_meanwhile_is_answered_and_shown_out() {
    let (scribe, stage) = Scribe::start("", 1).await;
    let (mut client, stream) = scribe.asked(&stage).await;
    stage.room.close();
    drop((stream, scribe));
    tokio::time::sleep(Duration::from_millis(50)).await;
    tokio::time::pause();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn more_than_was_announced_reaches_nobody_and_ends_the_connection_to_the_target() {
    let longer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood and more";
    let (target, _parrot) = parrot(longer).await;
    let stage = Stage::new().await;
    stage.ready(&[target]);
    stage.room.set_proxied(true);
    let mut client = http1(stage.address).await;
    for _ in 0..5 {
        client.ready().await.unwrap();
        let answer = client.send_request(get("/")).await.unwrap();
        assert_eq!(text(answer).await, "good");
    }
}

#[tokio::test]
async fn a_connection_that_the_target_closed_meanwhile_costs_nobody_an_answer() {
    let (stage, target) = Stage::awake(Setting::default()).await;
    let mut client = http1(stage.address).await;
    text(client.send_request(get("/")).await.unwrap()).await;
    drop(target);
    let again = Target::start().await;
    stage.ready(&[again.address]);
    client.ready().await.unwrap();
    let answer = client.send_request(get("/again")).await.unwrap();
    assert_eq!(text(answer).await, "GET /again ");

    // One that closes without a word after each answer, as if it had not meant to.
    let (scribe, stage) = Scribe::start(ANSWER, ANSWER.len()).await;
    let serving: JoinSet<()> = JoinSet::from_iter([async move {
        loop {
            scribe.serve().await;
        }
    }]);
    let mut client = http1(stage.address).await;
    for _ in 0..50 {
        client.ready().await.unwrap();
        let answer = client.send_request(get("/")).await.unwrap();
        assert_eq!(text(answer).await, "ok");
    }
    drop(serving);
}

#[tokio::test]
async fn what_is_no_get_on_the_same_connection_is_served_and_so_is_what_follows() {
    let (stage, target) = Stage::awake(Setting::default()).await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let field = "Host: web.shop";
    let (get, post) = (
        format!("GET /1 HTTP/1.1\r\n{field}\r\n\r\n"),
        format!("POST /2 HTTP/1.1\r\n{field}\r\nContent-Length: 4\r\n\r\nbody"),
    );
    client.write_all(get.as_bytes()).await.unwrap();
    until_end_of_head(&mut client).await;
    let (begun, rest) = post.split_at(30);
    client.write_all(begun.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let last = format!("GET /3 HTTP/1.1\r\n{field}\r\nConnection: close\r\n\r\n");
    let all = format!("{rest}{last}");
    client.write_all(all.as_bytes()).await.unwrap();
    let answers = heard(&mut client).await;
    assert!(answers.contains("POST /2 body"), "{answers}");
    assert!(answers.ends_with("GET /3 "), "{answers}");
    assert_eq!(target.requests.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn empty_lines_after_an_answer_are_no_request_and_keep_no_connection() {
    let setting = Setting {
        idle: Duration::from_millis(200),
        ..Setting::default()
    };
    let (stage, target) = Stage::awake(setting).await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let words = b"GET / HTTP/1.1\r\nHost: web.shop\r\n\r\n";
    client.write_all(words).await.unwrap();
    until_end_of_head(&mut client).await;
    client.write_all(b"\r\n\r\n").await.unwrap();
    let rest = heard(&mut client).await;
    assert!(!rest.contains("HTTP/1.1"), "{rest}");
    assert_eq!(target.requests.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_target_is_not_kept_busy_for_a_client_that_has_left() {
    for begun in ["", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhal"] {
        let (scribe, stage) = Scribe::start(begun, 1).await;
        let mut client = TcpStream::connect(stage.address).await.unwrap();
        let words = b"GET / HTTP/1.1\r\nHost: web.shop\r\n\r\n";
        client.write_all(words).await.unwrap();
        let (mut stream, _) = scribe.listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut asked).await.unwrap();
        }
        stream.write_all(begun.as_bytes()).await.unwrap();
        if !begun.is_empty() {
            until_end_of_head(&mut client).await;
        }
        drop(client);
        let ended = timeout(SOON, stream.read_u8()).await;
        assert!(ended.expect("it is told").is_err(), "{begun:?}");
    }
}

#[tokio::test]
async fn little_of_an_answer_is_kept_for_a_client_that_does_not_read() {
    let stage = Stage::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.ready(&[listener.local_addr().unwrap()]);
    stage.room.set_proxied(true);
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    let words = b"GET / HTTP/1.1\r\nHost: web.shop\r\n\r\n";
    client.write_all(words).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut some = [0; 4];
    stream.read_exact(&mut some).await.unwrap();
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        .await
        .unwrap();
    let piece = [7; 64 * 1024];
    let mut sent = 0;
    while let Ok(wrote) = timeout(Duration::from_millis(300), stream.write(&piece)).await {
        sent += wrote.unwrap();
        assert!(sent < 64 << 20, "it has no end");
    }
    let mut read = vec![0; 1 << 20];
    until_end_of_head(&mut client).await;
    client.read_exact(&mut read).await.unwrap();
    assert!(read.iter().all(|byte| *byte == 7), "and it goes on");
}
