//! Real servers of the Debian packages.

use crate::{COOLDOWN, ask_as, asker, assert_failed, server::Server, trigger};
use elasti_core::verdict::{Opinion, Verdict};
use elasti_operator::prometheus::Prometheus;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

struct Interview {
    asker: Prometheus,
    url: String,
}

// === impl Interview ===

impl Interview {
    fn new(url: String) -> Self {
        let asker = asker();
        Self { asker, url }
    }

    /// A server that has just started was not up throughout the cooldown.
    async fn settled(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let opinion = self.ask("vector(0)").await;
            if opinion.verdict == Verdict::Idle {
                return;
            }
            assert!(Instant::now() < deadline, "{opinion:?}");
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn ask(&self, query: &str) -> Opinion {
        let trigger = trigger(&self.url, query, json!({}));
        ask_as(&self.asker, &trigger, COOLDOWN).await
    }

    async fn ask_with(&self, more: Value) -> Opinion {
        let trigger = trigger(&self.url, "vector(0)", more);
        ask_as(&self.asker, &trigger, Duration::from_secs(900)).await
    }

    /// The same for every server.
    async fn assert_verdicts(&self) {
        for (query, verdict, reason) in [
            ("sum(up) * 0", Verdict::Idle, "BelowThreshold"),
            ("sum(up)", Verdict::Active, "AboveThreshold"),
            ("3", Verdict::Active, "AboveThreshold"),
            ("1 / 0", Verdict::Unknown, "InfiniteValue"),
            ("nothing_of_that_name", Verdict::Unknown, "EmptyResult"),
            ("up or vector(2)", Verdict::Unknown, "SeveralResults"),
            ("up[9s]", Verdict::Unknown, "QueryFailed"),
        ] {
            let opinion = self.ask(query).await;
            assert_eq!(opinion.verdict, verdict, "{query}: {opinion:?}");
            assert_eq!(opinion.reason, reason, "{query}: {opinion:?}");
        }
    }

    /// Neither a server younger than the cooldown nor a series that is not there is healthy.
    async fn assert_health(&self) {
        let young = self.ask_with(json!({})).await;
        assert_eq!(young.reason, "PrometheusUnhealthy", "{young:?}");
        let stranger = json!({"uptimeFilter": "container=\"none\""});
        let stranger = self.ask_with(stranger).await;
        assert_eq!(stranger.reason, "PrometheusUnhealthy", "{stranger:?}");
        let unchecked = self.ask_with(json!({"healthCheck": "false"})).await;
        assert_eq!(unchecked.verdict, Verdict::Idle, "{unchecked:?}");
    }
}

#[tokio::test]
#[ignore = "needs prometheus: make e2e"]
async fn prometheus_is_understood() {
    let server = Server::prometheus("/behind/a/prefix");
    let host = format!("http://localhost:{}", server.port);
    let prometheus = Interview::new(format!("{host}/behind/a/prefix/"));
    prometheus.settled().await;
    prometheus.assert_verdicts().await;
    prometheus.assert_health().await;
    let nan = prometheus.ask("0 / 0").await;
    assert_eq!(nan.verdict, Verdict::Active, "{nan:?}");
    let query = prometheus.ask("up{").await;
    assert_failed(&query, "HTTP 400 Bad Request: invalid");
    let filter = prometheus.ask_with(json!({"uptimeFilter": "}"})).await;
    assert_failed(&filter, "parse error");
    let elsewhere = Interview::new(host).ask("up").await;
    assert_failed(&elsewhere, "HTTP 404");
}

#[tokio::test]
#[ignore = "needs victoria-metrics: make e2e"]
async fn victoria_metrics_is_understood() {
    let server = Server::victoria();
    let victoria = Interview::new(format!("http://localhost:{}", server.port));
    victoria.settled().await;
    victoria.assert_verdicts().await;
    victoria.assert_health().await;
    let query = victoria.ask("up{").await;
    assert_failed(&query, "HTTP 422 Unprocessable Entity");
}

#[tokio::test]
#[ignore = "needs prometheus: make e2e"]
async fn prometheus_that_comes_back_is_asked_again() {
    let mut server = Server::prometheus("");
    let prometheus = Interview::new(format!("http://localhost:{}", server.port));
    prometheus.settled().await;
    server.stop();
    let gone = prometheus.ask("vector(0)").await;
    assert_failed(&gone, "Connection refused");
    server.start_prometheus("");
    prometheus.settled().await;
}
