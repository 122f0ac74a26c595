//! What can be read in two ways is answered with 400 and a close, and no target hears of it.

use crate::stage::*;
use elasti_resolver::route::Speaks;
use http::Request;
use http_body_util::Full;
use std::sync::atomic::Ordering;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const GOOD: &str = "GET /good HTTP/1.1\r\nHost: web.shop\r\n\r\n";

const HEADS: [&str; 20] = [
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5, 5",
    "Content-Length: -1",
    "Content-Length: +5",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: x-chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding : chunked",
    "Content-Length : 5",
    "X-Long: a\r\n b",
    "X-Long: a\r\n\tTransfer-Encoding: chunked",
    "X-Line: a\rContent-Length: 5",
    "X-Line: a\nContent-Length: 5",
    "X-Nul: a\0b",
    "X Space: a",
    "Host: other.shop",
    "No colon here",
];

async fn awake() -> (Stage, Target) {
    Stage::awake(Setting::default()).await
}

fn request(fields: &str) -> String {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: web.shop\r\n\r\n";
    format!("POST / HTTP/1.1\r\nHost: web.shop\r\n{fields}\r\n\r\n0\r\n\r\n{smuggled}")
}

#[tokio::test]
async fn a_head_that_can_be_read_in_two_ways_is_refused() {
    for fields in HEADS {
        let (stage, target) = awake().await;
        let answer = said(stage.address, request(fields).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{fields:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{fields:?}");
        let heard = target.requests.load(Ordering::Relaxed);
        assert_eq!(heard, 0, "{fields:?} reached the target");
        stage.counts("refused_count", "malformed", 1).await;
    }
}

#[tokio::test]
async fn it_is_refused_on_a_kept_connection_and_behind_other_requests_too() {
    for fields in HEADS {
        let (stage, target) = awake().await;
        let mut client = TcpStream::connect(stage.address).await.unwrap();
        client.write_all(GOOD.as_bytes()).await.unwrap();
        let mut first = [0; 15];
        client.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        let body = "POST /body HTTP/1.1\r\nHost: web.shop\r\nContent-Length: 4\r\n\r\n\r\n\r\n";
        let chunks = "POST /chunks HTTP/1.1\r\nHost: web.shop\r\nTransfer-Encoding: chunked\r\n\r\n\
                      2\r\n\r\n\r\n0\r\n\r\n";
        let all = format!("{body}{chunks}{GOOD}{}", request(fields));
        client.write_all(all.as_bytes()).await.unwrap();
        let rest = heard(&mut client).await;
        assert_eq!(
            rest.matches("HTTP/1.1 200 OK").count(),
            3,
            "{fields:?}: {rest}"
        );
        assert_eq!(
            rest.matches("HTTP/1.1 400 ").count(),
            1,
            "{fields:?}: {rest}"
        );
        assert!(rest.find(" 400 ") > rest.rfind(" 200 "), "in order: {rest}");
        assert_eq!(target.requests.load(Ordering::Relaxed), 4, "{fields:?}");
    }
}

#[tokio::test]
async fn it_is_refused_however_slowly_it_comes() {
    let (stage, target) = awake().await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client.set_nodelay(true).unwrap();
    let head =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    for piece in head.as_bytes().chunks(7) {
        client.write_all(piece).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let answer = heard(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(target.connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn chunks_that_are_none_end_the_request_and_nothing_follows_them() {
    for chunks in [
        "x\r\n",
        "5\r\nhelloworld\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff1\r\nhello\r\n",
        "0\r\nX: 1\r\n folded\r\n\r\n",
    ] {
        let (stage, target) = awake().await;
        let head = "POST / HTTP/1.1\r\nHost: web.shop\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer = said(stage.address, format!("{head}{chunks}{GOOD}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{chunks:?}");
        let heard = target.requests.load(Ordering::Relaxed);
        assert!(heard <= 1, "{chunks:?}: something followed");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_as_such() {
    let (stage, target) = awake().await;
    let long = format!("GET / HTTP/1.1\r\nX-Long: {}\r\n\r\n", "a".repeat(70_000));
    let answer = said(stage.address, long.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer:.200}");
    let with_fields = |count| {
        let fields: String = (0..count).map(|n| format!("X-{n}: 1\r\n")).collect();
        format!("GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n{fields}\r\n")
    };
    let answer = said(stage.address, with_fields(99).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(target.connections.load(Ordering::Relaxed), 0);
    stage.counts("refused_count", "too_large", 2).await;
    // Some are added, and the target has the same limit.
    let answer = said(stage.address, with_fields(90).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn equal_lengths_are_passed_on_as_one() {
    for multiplexed in [false, true] {
        let stage = Stage::with(Setting {
            speaks: Speaks::Http1,
            ..Setting::default()
        })
        .await;
        let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
        stage.ready(&[target.local_addr().unwrap()]);
        let mut request = Request::post("http://web.shop/");
        for _ in 0..2 {
            request = request.header("content-length", "2");
        }
        let request = request.body(Full::from("hi")).unwrap();
        let answer = if multiplexed {
            let mut client = http2(stage.address).await;
            tokio::spawn(async move { client.send_request(request).await.unwrap() })
        } else {
            let mut client = http1(stage.address).await;
            tokio::spawn(async move { client.send_request(request).await.unwrap() })
        };
        let (mut upstream, _) = target.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"hi") {
            upstream.read_buf(&mut asked).await.unwrap();
        }
        let asked = String::from_utf8(asked).unwrap();
        assert_eq!(asked.matches("content-length: 2\r\n").count(), 1, "{asked}");
        let words = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nho";
        upstream.write_all(words.as_bytes()).await.unwrap();
        let answer = answer.await.unwrap();
        let lengths = answer.headers().get_all("content-length").iter();
        assert_eq!(lengths.count(), 1, "{:?}", answer.version());
    }
}

#[tokio::test]
async fn what_the_first_line_names_goes_before_host() {
    let (stage, _target) = awake().await;
    let words =
        "GET http://me@web.shop:80/x HTTP/1.1\r\nHost: other.shop\r\nConnection: close\r\n\r\n";
    let answer = said(stage.address, words.as_bytes()).await;
    assert!(answer.contains("echo-host: web.shop:80\r\n"), "{answer}");
    assert!(answer.ends_with("GET /x "), "{answer}");
}

#[tokio::test]
async fn an_answer_that_can_be_read_in_two_ways_is_not_passed_on() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nX-Long: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-Line: a\rb\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let stage = Stage::new().await;
        let (target, _parrot) = parrot(answer).await;
        stage.ready(&[target]);
        let mut client = http1(stage.address).await;
        let refused = client.send_request(get("/")).await.unwrap();
        assert_eq!(refused.status(), 502, "{answer:?}");
    }
}

#[tokio::test]
async fn an_answer_to_nobodys_question_reaches_nobody() {
    let stage = Stage::new().await;
    let twice = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood\
                 HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    let (target, _parrot) = parrot(twice).await;
    stage.ready(&[target]);
    stage.room.set_proxied(true);
    let mut client = http1(stage.address).await;
    for _ in 0..20 {
        client.ready().await.unwrap();
        let answer = client.send_request(get("/")).await.unwrap();
        assert_eq!(text(answer).await, "good");
    }
}
