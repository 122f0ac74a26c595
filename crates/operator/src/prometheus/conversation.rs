//! What one server is asked for one trigger, and what its answers mean.

use super::{answer, client::Client, failure::Failure, health::Health, server::Server};
use elasti_api::{PrometheusTrigger, Threshold};
use elasti_core::verdict::Opinion;
use jiff::Timestamp;
use std::time::Duration;

/// One question to one server, as of one moment.
pub(super) struct Conversation<'a> {
    pub(super) client: &'a Client,
    pub(super) server: &'a Server,
    pub(super) now: Timestamp,
}

/// NaN is not below anything, and so active.
fn judge(value: f64, threshold: Threshold) -> Opinion {
    let (shown, limit) = (answer::shown(value), answer::shown(threshold.get()));
    if value < threshold.get() {
        Opinion::idle(
            "BelowThreshold",
            format!("{shown} is below the threshold {limit}"),
        )
    } else {
        Opinion::active(
            "AboveThreshold",
            format!("{shown} is not below the threshold {limit}"),
        )
    }
}

// === impl Conversation ===

impl Conversation<'_> {
    pub(super) async fn verdict(
        &self,
        trigger: &PrometheusTrigger,
        cooldown: Duration,
    ) -> Result<Opinion, Failure> {
        if let Some(health) = Health::of(trigger, cooldown) {
            self.check(&health).await?;
        }
        let value = self.value(&trigger.query).await?;
        Ok(judge(value, trigger.threshold))
    }

    async fn check(&self, health: &Health) -> Result<(), Failure> {
        let value = match self.value(&health.query()).await {
            Err(Failure::Empty | Failure::Rejected(..)) => {
                self.value(&health.query_with_step()).await
            }
            answered => answered,
        };
        match value {
            Ok(1.0) => Ok(()),
            Ok(_) | Err(Failure::Empty) => Err(Failure::Unhealthy(health.to_string())),
            Err(failure) => Err(failure),
        }
    }

    async fn value(&self, query: &str) -> Result<f64, Failure> {
        let request = self.server.request(query, self.now)?;
        let (status, body) = self.client.fetch(request).await?;
        answer::value(status, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasti_core::verdict::Verdict;

    const IDLE: (Verdict, &str) = (Verdict::Idle, "BelowThreshold");
    const ACTIVE: (Verdict, &str) = (Verdict::Active, "AboveThreshold");

    fn judged(value: f64) -> (Verdict, &'static str) {
        let opinion = judge(value, "0.5".parse().unwrap());
        (opinion.verdict, opinion.reason)
    }

    #[test]
    fn only_a_value_below_the_threshold_is_idle() {
        assert_eq!(judged(0.0), IDLE);
        assert_eq!(judged(-3.0), IDLE);
        assert_eq!(judged(0.5), ACTIVE, "the threshold itself is not below it");
        assert_eq!(judged(f64::NAN), ACTIVE);
    }

    #[test]
    fn message_names_value_and_threshold() {
        let message = judge(0.0, "0.5".parse().unwrap()).message;
        assert_eq!(message, "0 is below the threshold 0.5");
    }
}
