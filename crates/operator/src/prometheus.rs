//! Asks Prometheus, or whatever speaks its query API, whether a target is idle.

mod address;
mod answer;
mod client;
mod conversation;
mod failure;
mod health;
mod server;

use self::{client::Client, conversation::Conversation, server::Server};
use anyhow::Context;
use elasti_api::{PrometheusTrigger, Trigger};
use elasti_core::verdict::{Opinion, Verdict};
use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Shared by all triggers: connections to a server are kept between questions.
pub struct Prometheus {
    client: Client,
    /// Of triggers that name no server.
    address: Option<String>,
    authorization: Option<http::HeaderValue>,
    /// Questions under way, by server.
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

/// The right to ask the server of each of some triggers.
pub struct Turn(Vec<Option<Arc<Slot>>>);

/// The right to ask one server, given back when it is dropped.
struct Slot {
    server: String,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

/// One server is asked so many things at once: a slow one delays only those who ask it.
const AT_ONCE: usize = 8;

#[derive(Clone)]
pub struct Settings {
    /// `PROMETHEUS_TRIGGER_SERVER_ADDRESS`.
    pub server_address: Option<String>,
    /// `PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER`.
    pub authorization: Option<String>,
    /// For each query, from dialling to the last byte of the answer.
    pub timeout: Duration,
}

/// All must be idle, and one that is active is enough.
pub fn combine(opinions: impl IntoIterator<Item = Opinion>) -> Opinion {
    opinions
        .into_iter()
        .min_by_key(|opinion| match opinion.verdict {
            Verdict::Active => 0,
            Verdict::Unknown => 1,
            Verdict::Idle => 2,
        })
        .unwrap_or_else(|| {
            Opinion::unknown(
                "NoTriggers",
                "Without triggers it is woken by traffic and never put to sleep",
            )
        })
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            server_address: None,
            authorization: None,
            timeout: Duration::from_secs(5),
        }
    }
}

// === impl Prometheus ===

impl Prometheus {
    /// Fails on an authorization that no HTTP header can carry.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let authorization = given(settings.authorization)
            .map(|value| server::secret(&value))
            .transpose()
            .context("PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER is no value of an HTTP header")?;
        Ok(Self {
            client: Client::new(settings.timeout),
            address: given(settings.server_address),
            authorization,
            asked: Arc::default(),
        })
    }

    /// `None` while one of the servers has enough to do.
    pub fn turn(&self, triggers: &[Trigger]) -> Option<Turn> {
        let servers = triggers.iter().map(|trigger| match trigger {
            Trigger::Prometheus(trigger) => self.server_of(trigger),
            Trigger::Invalid(_) => None,
        });
        let servers: Vec<Option<&str>> = servers.collect();
        let mut asked = self.asked.lock();
        let busy = |server: &&str| asked.get(*server).is_some_and(|count| *count >= AT_ONCE);
        if servers.iter().flatten().any(busy) {
            return None;
        }
        let mut slots = HashMap::new();
        for server in servers.iter().copied().flatten() {
            slots.entry(server).or_insert_with(|| {
                *asked.entry(server.into()).or_default() += 1;
                Arc::new(Slot {
                    server: server.into(),
                    asked: self.asked.clone(),
                })
            });
        }
        let slots = servers.iter().map(|server| slots.get((*server)?).cloned());
        Some(Turn(slots.collect()))
    }

    fn server_of<'a>(&'a self, trigger: &'a PrometheusTrigger) -> Option<&'a str> {
        server::own_address(trigger).or(self.address.as_deref())
    }

    /// Of all triggers, asked at once: who has answered is free for others before the slowest has.
    pub async fn opinion(
        &self,
        triggers: &[Trigger],
        turn: Turn,
        cooldown: Duration,
        now: Timestamp,
    ) -> Opinion {
        let answers = triggers.iter().zip(turn.0).map(async |(trigger, slot)| {
            let opinion = match trigger {
                Trigger::Prometheus(trigger) => self.ask(trigger, cooldown, now).await,
                Trigger::Invalid(invalid) => {
                    Opinion::unknown("InvalidTrigger", invalid.error.clone())
                }
            };
            drop(slot);
            opinion
        });
        combine(join_all(answers).await)
    }

    /// Never fails: what went wrong is the reason of an unknown verdict.
    pub async fn ask(
        &self,
        trigger: &PrometheusTrigger,
        cooldown: Duration,
        now: Timestamp,
    ) -> Opinion {
        let server = match Server::of(trigger, self.address.as_deref(), &self.authorization) {
            Ok(server) => server,
            Err(failure) => return failure.opinion(),
        };
        let conversation = Conversation {
            client: &self.client,
            server: &server,
            now,
        };
        match conversation.verdict(trigger, cooldown).await {
            Ok(opinion) => opinion,
            Err(failure) => server.blame(&failure),
        }
    }
}

// === impl Slot ===

impl Drop for Slot {
    fn drop(&mut self) {
        let mut asked = self.asked.lock();
        if let Some(count) = asked.get_mut(&self.server) {
            *count -= 1;
        }
        asked.retain(|_, count| *count > 0);
    }
}

/// A chart passes an empty string where nothing is set.
fn given(setting: Option<String>) -> Option<String> {
    setting
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorization_that_no_header_can_carry_is_refused_and_not_quoted() {
        let settings = |authorization: &str| Settings {
            authorization: Some(authorization.into()),
            ..Settings::default()
        };
        let error = Prometheus::new(settings("hunter2\nX: y")).err().unwrap();
        let error = format!("{error:?}");
        assert!(error.contains("PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER"));
        assert!(!error.contains("hunter2"), "{error}");
        let unset = Prometheus::new(settings("")).unwrap();
        assert!(unset.authorization.is_none());
    }

    #[test]
    fn a_server_with_enough_to_do_is_asked_later_and_others_are_not() {
        let prometheus = Prometheus::new(Settings::default()).unwrap();
        let triggers = |server: &str| -> Vec<Trigger> {
            let metadata =
                serde_json::json!({"serverAddress": server, "query": "up", "threshold": 1});
            let trigger = serde_json::json!([{"type": "prometheus", "metadata": metadata}]);
            serde_json::from_value(trigger).unwrap()
        };
        let (slow, quick) = (triggers("http://slow"), triggers("http://quick"));
        let mut turns: Vec<_> = (0..AT_ONCE).map(|_| prometheus.turn(&slow)).collect();
        assert!(turns.iter().all(Option::is_some));
        assert!(prometheus.turn(&slow).is_none());
        assert!(prometheus.turn(&quick).is_some());
        turns.pop();
        assert!(prometheus.turn(&slow).is_some());
    }

    #[test]
    fn all_must_be_idle_and_one_active_is_enough() {
        let idle = || Opinion::idle("I", "");
        let active = || Opinion::active("A", "");
        let unknown = |reason| Opinion::unknown(reason, "");
        assert_eq!(combine([idle(), idle()]), idle());
        assert_eq!(combine([unknown("U"), idle(), active()]), active());
        assert_eq!(
            combine([idle(), unknown("First"), unknown("Second")]),
            unknown("First")
        );
        assert_eq!(
            combine([]).verdict,
            Verdict::Unknown,
            "silence is no consent"
        );
    }
}
