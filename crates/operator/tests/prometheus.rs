//! Triggers against servers: made-up ones that behave badly, and real ones.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "the lint knows the tests, not what they share"
)]

#[path = "prometheus/behaviour.rs"]
mod behaviour;
#[path = "prometheus/listener.rs"]
mod listener;
#[path = "prometheus/real.rs"]
mod real;
#[path = "prometheus/server.rs"]
mod server;
#[path = "prometheus/trust.rs"]
mod trust;

use elasti_api::PrometheusTrigger;
use elasti_core::verdict::{Opinion, Verdict};
use elasti_operator::prometheus::{Prometheus, Settings};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

const COOLDOWN: Duration = Duration::from_secs(3);

fn asker() -> Prometheus {
    Prometheus::new(Settings {
        authorization: Some("Bearer operator-token".into()),
        ..Settings::default()
    })
    .unwrap()
}

fn trigger(address: &str, query: &str, more: Value) -> PrometheusTrigger {
    let mut metadata = json!({
        "serverAddress": address, "query": query, "threshold": "0.5",
    });
    let more = more.as_object().unwrap().clone();
    metadata.as_object_mut().unwrap().extend(more);
    serde_json::from_value(metadata).unwrap()
}

async fn ask(trigger: &PrometheusTrigger, cooldown: Duration) -> Opinion {
    ask_as(&asker(), trigger, cooldown).await
}

async fn ask_as(asker: &Prometheus, trigger: &PrometheusTrigger, cooldown: Duration) -> Opinion {
    #[expect(clippy::disallowed_methods, reason = "real servers have a real clock")]
    let now = Timestamp::now();
    asker.ask(trigger, cooldown, now).await
}

fn assert_failed(opinion: &Opinion, cause: &str) {
    assert_eq!(opinion.verdict, Verdict::Unknown, "{opinion:?}");
    assert_eq!(opinion.reason, "QueryFailed", "{opinion:?}");
    assert!(opinion.message.contains(cause), "{opinion:?}");
    assert!(opinion.message.chars().count() < 250, "{opinion:?}");
}
