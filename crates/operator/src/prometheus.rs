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
use elasti_api::PrometheusTrigger;
use elasti_core::verdict::{Opinion, Verdict};
use jiff::Timestamp;
use std::time::Duration;

/// Shared by all triggers: connections to a server are kept between questions.
pub struct Prometheus {
    client: Client,
    /// Of triggers that name no server.
    address: Option<String>,
    authorization: Option<http::HeaderValue>,
}

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
        .unwrap_or_else(|| Opinion::unknown("NoTriggers", "there is no trigger to ask"))
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
        })
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
