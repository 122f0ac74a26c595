use crate::stage::*;
use bytes::Bytes;
use elasti_api::ProbeRule;
use elasti_core::probe::ProbeRules;
use futures::future::join_all;
use http::Request;
use http_body_util::Full;
use serde_json::json;
use std::{collections::HashMap, sync::atomic::Ordering, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn rules(rules: serde_json::Value) -> ProbeRules {
    let rules: Vec<ProbeRule> = serde_json::from_value(rules).unwrap();
    ProbeRules::compile(&rules).0
}

#[tokio::test]
async fn a_request_waits_for_the_target_and_gets_its_answer() {
    let mut stage = Stage::new().await;
    let target = Target::start().await;
    let mut client = http1(stage.address).await;
    let answer = tokio::spawn(async move { client.send_request(get("/x")).await.unwrap() });
    stage.waits(1).await;
    assert!(stage.knocks.recv().await.is_some(), "the operator is told");
    stage.ready(&[target.address]);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().contains_key("x-elasti-held"));
    assert!(answer.headers().contains_key("server-timing"));
    assert_eq!(text(answer).await, "GET /x ");
}

#[tokio::test]
async fn nobody_is_told_of_the_wait_where_that_is_switched_off() {
    let stage = Stage::with(Setting {
        mark_held: false,
        ..Setting::default()
    })
    .await;
    let target = Target::start().await;
    let mut client = http1(stage.address).await;
    let answer = tokio::spawn(async move { client.send_request(get("/")).await.unwrap() });
    stage.waits(1).await;
    stage.ready(&[target.address]);
    let answer = answer.await.unwrap();
    assert!(!answer.headers().contains_key("x-elasti-held"));
    assert!(!answer.headers().contains_key("server-timing"));
}

#[tokio::test]
async fn where_requests_say_whose_they_are_they_wait_too_and_strangers_are_told() {
    let stage = Stage::new().await;
    let target = Target::start().await;
    let mut client = http1(stage.named).await;
    let answer = tokio::spawn(async move {
        let answer = client.send_request(get("/x")).await.unwrap();
        (answer, client)
    });
    stage.waits(1).await;
    stage.room.set_proxied(true);
    stage.ready(&[target.address]);
    let (answer, mut client) = answer.await.unwrap();
    assert!(answer.headers().contains_key("x-elasti-held"));
    assert_eq!(text(answer).await, "GET /x ");

    let mut stranger = get("/");
    let host = "nobody.shop".parse().unwrap();
    stranger.headers_mut().insert("host", host);
    let unknown = client.send_request(stranger).await.unwrap();
    assert_eq!(unknown.status(), 404);
    let words = text(unknown).await;
    assert!(words.contains("no ElastiService speaks for"), "{words}");
    assert_eq!(stage.counted("host_extraction_count", "name"), 2);
    let again = client.send_request(get("/y")).await.unwrap();
    assert_eq!(text(again).await, "GET /y ", "on the same connection");
}

#[tokio::test]
async fn many_wait_and_none_is_lost() {
    let stage = Stage::new().await;
    let target = Target::start().await;
    let clients = (0..500).map(|n| {
        let address = stage.address;
        tokio::spawn(async move {
            let mut client = http1(address).await;
            let answer = client.send_request(get(&format!("/{n}"))).await.unwrap();
            text(answer).await == format!("GET /{n} ")
        })
    });
    let clients: Vec<_> = clients.collect();
    stage.waits(500).await;
    stage.ready(&[target.address]);
    let answers = join_all(clients).await;
    assert!(answers.into_iter().all(|right| right.unwrap()));
    stage.waits(0).await;
}

#[tokio::test]
async fn http2_streams_wait_while_their_connection_lives() {
    let stage = Stage::new().await;
    let target = Target::start().await;
    let client = http2(stage.address).await;
    let streams: Vec<_> = (0..50)
        .map(|n| {
            let mut client = client.clone();
            let mut request = get(&format!("http://web.shop/{n}"));
            request.headers_mut().clear();
            tokio::spawn(async move { client.send_request(request).await.unwrap() })
        })
        .collect();
    stage.waits(50).await;
    stage.ready(&[target.address]);
    for (n, stream) in streams.into_iter().enumerate() {
        assert_eq!(text(stream.await.unwrap()).await, format!("GET /{n} "));
    }
    let dialled = target.connections.load(Ordering::Relaxed);
    assert!(dialled < 50, "{dialled} connections for one client");
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_seat() {
    let stage = Stage::new().await;
    let mut client = TcpStream::connect(stage.address).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: web.shop\r\n\r\n")
        .await
        .unwrap();
    stage.waits(1).await;
    drop(client);
    stage.waits(0).await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_what_it_says_frees_its_seat() {
    let post = "POST / HTTP/1.1\r\nHost: web.shop\r\nContent-Length: 9\r\n\r\nhalf";
    let two = "GET / HTTP/1.1\r\nHost: web.shop\r\n\r\nGET / HTTP/1.1\r\nHost: web.shop\r\n\r\n";
    for words in [post, two] {
        let stage = Stage::with(Setting {
            rules: rules(json!([{"method": "PATCH", "response": {"status": 200}}])),
            ..Setting::default()
        })
        .await;
        for (address, where_) in [
            (stage.address, "behind rules"),
            (stage.named, "on the proxy port"),
        ] {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(words.as_bytes()).await.unwrap();
            stage.waits(1).await;
            drop(client);
            until(where_, || stage.room.waiting() == 0).await;
        }

        let (stage, _target) = Stage::awake(Setting::default()).await;
        let mut client = TcpStream::connect(stage.address).await.unwrap();
        let first = "GET / HTTP/1.1\r\nHost: web.shop\r\n\r\n";
        client.write_all(first.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"GET / ") {
            client.read_buf(&mut answer).await.unwrap();
        }
        stage.room.publish(&HashMap::new());
        client.write_all(words.as_bytes()).await.unwrap();
        stage.waits(1).await;
        drop(client);
        until("on a kept connection", || stage.room.waiting() == 0).await;
    }
}

#[tokio::test]
async fn whoever_waits_in_the_middle_of_what_it_says_is_served() {
    let stage = Stage::new().await;
    let target = Target::start().await;
    let mut client = TcpStream::connect(stage.named).await.unwrap();
    let head = "POST / HTTP/1.1\r\nHost: web.shop\r\nContent-Length: 9\r\n\
                Connection: close\r\n\r\nhalf ";
    client.write_all(head.as_bytes()).await.unwrap();
    stage.waits(1).await;
    client.write_all(b"fu").await.unwrap();
    stage.ready(&[target.address]);
    client.write_all(b"ll").await.unwrap();
    let answer = heard(&mut client).await;
    assert!(answer.ends_with("POST / half full"), "{answer}");
}

#[tokio::test]
async fn an_http2_stream_that_is_reset_frees_its_seat() {
    let stage = Stage::new().await;
    let mut client = http2(stage.address).await;
    let mut request = get("http://web.shop/");
    request.headers_mut().clear();
    let waiting = tokio::spawn(async move { client.send_request(request).await });
    stage.waits(1).await;
    waiting.abort();
    stage.waits(0).await;
}

#[tokio::test]
async fn whoever_waits_when_the_resolver_ends_is_answered_before() {
    let stage = Stage::new().await;
    let target = Target::start().await;
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let address = stage.address;
            tokio::spawn(async move { http1(address).await.send_request(get("/x")).await })
        })
        .collect();
    stage.waits(50).await;
    stage.drain.cancel();
    stage.ready(&[target.address]);
    for client in clients {
        assert_eq!(text(client.await.unwrap().unwrap()).await, "GET /x ");
    }
}

#[tokio::test]
async fn clients_are_sent_elsewhere_as_soon_as_the_resolver_is_to_end() {
    let stage = Stage::new().await;
    let target = Target::start().await;
    stage.ready(&[target.address]);
    stage.room.set_proxied(true);
    let mut client = http1(stage.address).await;
    let before = client.send_request(get("/before")).await.unwrap();
    assert!(!before.headers().contains_key("connection"));
    assert_eq!(text(before).await, "GET /before ");
    stage.leaving.cancel();
    let after = client.send_request(get("/after")).await.unwrap();
    assert_eq!(after.headers()["connection"], "close");
    assert_eq!(text(after).await, "GET /after ");
}

#[tokio::test]
async fn a_full_room_says_so_and_when_to_come_back() {
    let stage = Stage::with(Setting {
        seats: 1,
        ..Setting::default()
    })
    .await;
    let mut first = http1(stage.address).await;
    let _waits = tokio::spawn(async move { first.send_request(get("/")).await });
    stage.waits(1).await;
    let mut second = http1(stage.address).await;
    let mut request = get("/");
    request
        .headers_mut()
        .insert("accept", "application/json".parse().unwrap());
    let refused = second.send_request(request).await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    let body: serde_json::Value = serde_json::from_str(&text(refused).await).unwrap();
    assert_eq!(body["service"], "shop/web");
}

#[tokio::test]
async fn whoever_waits_too_long_gets_a_504_and_grpc_its_own_words() {
    let stage = Stage::with(Setting {
        patience: Duration::from_millis(200),
        ..Setting::default()
    })
    .await;
    let mut client = http1(stage.address).await;
    let late = client.send_request(get("/")).await.unwrap();
    assert_eq!(late.status(), 504);
    assert!(
        text(late)
            .await
            .starts_with("shop/web: it did not become ready in time")
    );

    let mut client = http2(stage.address).await;
    let mut request = get("http://web.shop/pkg.Service/Call");
    request.headers_mut().clear();
    let grpc = "application/grpc".parse().unwrap();
    request.headers_mut().insert("content-type", grpc);
    let late = client.send_request(request).await.unwrap();
    assert_eq!(late.status(), 200);
    assert_eq!(late.headers()["grpc-status"], "4");
}

#[tokio::test]
async fn a_probe_is_answered_in_the_sleepers_name_and_wakes_nobody() {
    let mut stage = Stage::with(Setting {
        rules: rules(json!([{
            "path": {"type": "Exact", "value": "/healthz"},
            "response": {"status": 200, "body": "{\"ok\":true}"},
        }])),
        ..Setting::default()
    })
    .await;
    let mut client = http1(stage.address).await;
    let answer = client.send_request(get("/healthz")).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/json");
    assert_eq!(text(answer).await, "{\"ok\":true}");
    assert!(stage.knocks.try_recv().is_err());
    assert_eq!(stage.counted("incoming_requests", "probe"), 1);
    let other = tokio::spawn(async move { client.send_request(get("/x")).await.unwrap() });
    stage.waits(1).await;
    let target = Target::start().await;
    stage.ready(&[target.address]);
    assert_eq!(text(other.await.unwrap()).await, "GET /x ");
}

#[tokio::test]
async fn a_probe_keeps_nobody_from_falling_asleep() {
    let probes = json!([{
        "path": {"type": "Exact", "value": "/healthz"},
        "response": {"status": 200, "body": "asleep"},
    }]);
    let (mut stage, _target) = Stage::awake(Setting {
        rules: rules(probes),
        ..Setting::default()
    })
    .await;
    for path in ["/healthz", "http://web.shop/healthz"] {
        let answer = match path.starts_with('/') {
            true => http1(stage.address).await.send_request(get(path)).await,
            false => http2(stage.address).await.send_request(get(path)).await,
        };
        let answer = text(answer.unwrap()).await;
        assert_eq!(answer, "GET /healthz ", "its target is up, and answers");
        let told = stage.knocks.try_recv();
        assert!(told.is_err(), "{path} was told to the operator as traffic");
    }
    let answer = http1(stage.address).await.send_request(get("/x")).await;
    assert_eq!(text(answer.unwrap()).await, "GET /x ");
    assert!(stage.knocks.try_recv().is_ok(), "this is traffic");
}

#[tokio::test]
async fn a_sleepers_answer_has_a_body_where_one_may_be() {
    let mut stage = Stage::with(Setting {
        rules: rules(json!([
            {
                "path": {"type": "Exact", "value": "/empty"},
                "response": {"status": 204, "body": "none may be here"},
            },
            {"response": {"status": 503, "body": "asleep"}},
        ])),
        ..Setting::default()
    })
    .await;
    let ask = |method: &str, path: &str| {
        let request = Request::builder().method(method);
        let request = request.uri(format!("http://web.shop{path}"));
        request.body(Full::<Bytes>::default()).unwrap()
    };
    let mut old = http1(stage.address).await;
    let mut new = http2(stage.address).await;
    for (method, path, status, body) in [
        ("GET", "/", 503, "asleep"),
        ("HEAD", "/", 503, ""),
        ("GET", "/empty", 204, ""),
        ("HEAD", "/empty", 204, ""),
    ] {
        old.ready().await.unwrap();
        for answer in [
            old.send_request(ask(method, path)).await,
            new.send_request(ask(method, path)).await,
        ] {
            let answer = answer.unwrap();
            let version = answer.version();
            assert_eq!(answer.status(), status, "{method} {path} in {version:?}");
            assert_eq!(text(answer).await, body, "{method} {path} in {version:?}");
        }
    }
    assert!(stage.knocks.try_recv().is_err(), "nobody is woken");
}

#[tokio::test]
async fn an_endpoint_that_refuses_at_first_is_tried_again() {
    let stage = Stage::new().await;
    let place = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    stage.ready(&[address]);
    let mut client = http1(stage.address).await;
    let answer = tokio::spawn(async move { client.send_request(get("/")).await.unwrap() });
    stage.waits(1).await;
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        .await
        .unwrap();
    assert_eq!(text(answer.await.unwrap()).await, "hi");
}

#[tokio::test]
async fn whoever_only_connects_wakes_nobody() {
    let mut stage = Stage::new().await;
    let probe = TcpStream::connect(stage.address).await.unwrap();
    drop(probe);
    let later = TcpStream::connect(stage.address).await.unwrap();
    drop(later);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(stage.knocks.try_recv().is_err());
}
