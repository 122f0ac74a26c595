//! What is asked, and what becomes of answers that no server should give.

use crate::{
    COOLDOWN, ask, asker, assert_failed,
    listener::{HANG_UP, HEALTHY, Listener, http, is_health, vector},
    trigger,
};
use elasti_api::Trigger;
use elasti_core::verdict::{Opinion, Verdict};
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::{net::TcpListener, time::Instant};

/// Of a server that gives this answer to everything.
async fn opinion_on(answer: String) -> Opinion {
    let listener = Listener::new(move |_| answer.clone()).await;
    ask(&trigger(&listener.url(), "vector(0)", json!({})), COOLDOWN).await
}

/// Healthy, and gives this answer to the query.
async fn healthy(answer: String) -> Listener {
    Listener::new(move |head| match is_health(head) {
        true => http("200 OK", HEALTHY),
        false => answer.clone(),
    })
    .await
}

#[tokio::test]
async fn health_is_asked_first_and_connections_are_kept() {
    let listener = healthy(vector(&["0"])).await;
    let trigger = trigger(&listener.url(), "vector(0)", json!({}));
    let (asker, now) = (asker(), Timestamp::UNIX_EPOCH);
    for _ in 0..3 {
        let opinion = asker.ask(&trigger, COOLDOWN, now).await;
        assert_eq!(opinion.verdict, Verdict::Idle, "{opinion:?}");
        assert_eq!(opinion.message, "0 is below the threshold 0.5");
    }
    let heads = listener.heads();
    assert_eq!(heads.len(), 6);
    assert!(is_health(&heads[0]) && !is_health(&heads[1]));
    assert!(
        heads[1].starts_with(
            "GET /api/v1/query?query=vector%280%29&time=1970-01-01T00:00:00Z HTTP/1.1"
        )
    );
    assert!(heads[1].contains("authorization: Bearer operator-token\r\n"));
    assert_eq!(listener.connections(), 1, "one connection serves all");
}

#[tokio::test]
async fn a_slow_server_holds_up_no_other_that_is_asked_with_it() {
    let slow = Listener::new(|_| String::new()).await;
    let quick = healthy(vector(&["1"])).await;
    let both: Vec<Trigger> = [slow.url(), quick.url()]
        .map(|url| Trigger::Prometheus(trigger(&url, "vector(1)", json!({}))))
        .into();
    let (_, alone) = both.split_at(1);
    let (asker, now) = (asker(), Timestamp::UNIX_EPOCH);
    let mut askers: Vec<_> = std::iter::from_fn(|| asker.turn(&both))
        .map(|turn| Box::pin(asker.opinion(&both, turn, COOLDOWN, now)))
        .collect();
    assert!(asker.turn(alone).is_none(), "both are asked by many");
    let freed = async {
        while asker.turn(alone).is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = freed => {}
        _ = join_all(&mut askers) => panic!("only the slow one was waited for"),
    }
    assert!(asker.turn(&both).is_none(), "the slow one is still asked");
}

#[tokio::test]
async fn query_of_an_unhealthy_server_is_not_asked() {
    for value in ["0", "NaN", "0.5"] {
        let listener = Listener::new(move |_| vector(&[value])).await;
        let opinion = ask(&trigger(&listener.url(), "vector(0)", json!({})), COOLDOWN).await;
        assert_eq!(opinion.verdict, Verdict::Unknown);
        assert_eq!(opinion.reason, "PrometheusUnhealthy");
        assert!(opinion.message.contains(r#"up{container="prometheus"}"#));
        assert_eq!(listener.heads().len(), 1);
    }
}

#[tokio::test]
async fn health_check_that_is_off_is_not_asked() {
    let listener = healthy(vector(&["1"])).await;
    let off = json!({"healthCheck": false});
    let opinion = ask(&trigger(&listener.url(), "vector(1)", off), COOLDOWN).await;
    assert_eq!(opinion.verdict, Verdict::Active);
    assert_eq!(opinion.reason, "AboveThreshold");
    assert_eq!(listener.heads().len(), 1);
}

#[tokio::test]
async fn health_without_an_answer_is_asked_again_with_a_step() {
    for first in [vector(&[]), http("422 Unprocessable Entity", "no step")] {
        let listener = Listener::new(move |head| match head.contains("%5B3s%3A%5D") {
            true => first.clone(),
            false => vector(&["1"]),
        })
        .await;
        let opinion = ask(&trigger(&listener.url(), "vector(1)", json!({})), COOLDOWN).await;
        assert_eq!(opinion.verdict, Verdict::Active, "{opinion:?}");
        assert!(listener.heads()[1].contains("%5B3s%3A1s%5D"));
    }
}

#[tokio::test]
async fn health_that_stays_without_an_answer_is_no_health() {
    assert_eq!(opinion_on(vector(&[])).await.reason, "PrometheusUnhealthy");
    let rejected = opinion_on(http("400 Bad Request", "parse error")).await;
    assert_failed(&rejected, "HTTP 400 Bad Request: parse error");
}

#[tokio::test]
async fn results_that_are_not_one_number_are_unknown() {
    for (values, reason) in [
        (&[] as &[&str], "EmptyResult"),
        (&["1", "2"], "SeveralResults"),
        (&["+Inf"], "InfiniteValue"),
    ] {
        let listener = healthy(vector(values)).await;
        let opinion = ask(&trigger(&listener.url(), "up", json!({})), COOLDOWN).await;
        assert_eq!(opinion.verdict, Verdict::Unknown);
        assert_eq!(opinion.reason, reason);
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_says_nothing_is_given_five_seconds() {
    let unfinished = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{";
    for silence in ["", unfinished] {
        let asked = Instant::now();
        let opinion = opinion_on(silence.into()).await;
        assert_failed(&opinion, "no answer within 5s");
        assert_eq!(asked.elapsed().as_secs(), 5);
    }
}

#[tokio::test]
async fn bad_answers_are_unknown_and_not_quoted() {
    let page = http("200 OK", "<html>secret</html>");
    assert_failed(&opinion_on(page).await, "not that of a query API");
    let huge = http("200 OK", &"x".repeat(2 << 20));
    assert_failed(&opinion_on(huge).await, "longer than 1048576 bytes");
    let not_http = "220 smtp.example ESMTP\r\n\r\n".into();
    assert_failed(&opinion_on(not_http).await, "HTTP");
}

#[tokio::test]
async fn refusal_quotes_at_most_a_line_of_the_server() {
    let error = json!({"status": "error", "errorType": "timeout", "error": "late ".repeat(999)});
    let refused = opinion_on(http("503 Service Unavailable", &error.to_string())).await;
    assert_failed(&refused, "HTTP 503 Service Unavailable: late late");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let stranger = healthy(vector(&["0"])).await;
    let url = stranger.url();
    let answer = format!("HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n");
    assert_failed(&opinion_on(answer).await, "redirects are not followed");
    assert_eq!(stranger.connections(), 0, "the token stays at home");
}

#[tokio::test]
async fn server_that_quotes_the_authorization_is_not_quoted() {
    let listener = Listener::new(|head| http("401 Unauthorized", head)).await;
    let opinion = ask(&trigger(&listener.url(), "up", json!({})), COOLDOWN).await;
    assert_failed(&opinion, "HTTP 401 Unauthorized: GET");
    assert!(!opinion.message.contains("operator-token"), "{opinion:?}");
}

#[tokio::test]
async fn server_that_is_not_there_is_unknown() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let refused = ask(&trigger(&url, "up", json!({})), COOLDOWN).await;
    assert_failed(&refused, "Connection refused");
    let nowhere = trigger("http://nowhere.invalid", "up", json!({}));
    assert_failed(&ask(&nowhere, COOLDOWN).await, "nowhere.invalid: ");
}

#[tokio::test]
async fn connection_that_ends_as_it_is_used_is_not_the_end() {
    let once = Arc::new(AtomicBool::new(true));
    let listener = Listener::new(move |_| match once.swap(false, Ordering::Relaxed) {
        true => HANG_UP.into(),
        false => vector(&["1"]),
    })
    .await;
    let opinion = ask(&trigger(&listener.url(), "vector(1)", json!({})), COOLDOWN).await;
    assert_eq!(opinion.verdict, Verdict::Active, "{opinion:?}");
}

#[tokio::test]
async fn plain_server_behind_https_is_a_tls_error() {
    let listener = healthy(vector(&["0"])).await;
    let url = listener.url().replace("http:", "https:");
    let opinion = ask(&trigger(&url, "up", json!({})), COOLDOWN).await;
    assert_failed(&opinion, "corrupt message");
}

#[tokio::test]
async fn slow_server_delays_no_other() {
    let slow = Listener::new(|_| String::new()).await;
    let quick = healthy(vector(&["0"])).await;
    let (asker, now) = (asker(), Timestamp::UNIX_EPOCH);
    let waiting = trigger(&slow.url(), "up", json!({}));
    let served = trigger(&quick.url(), "up", json!({}));
    tokio::select! {
        biased;
        opinion = asker.ask(&waiting, COOLDOWN, now) => panic!("{opinion:?} before its time"),
        opinion = asker.ask(&served, COOLDOWN, now) => assert_eq!(opinion.verdict, Verdict::Idle),
    }
}
