//! The health query: has whoever collects the metrics been there throughout?

use elasti_api::PrometheusTrigger;
use serde_json::Value;
use std::{fmt, time::Duration};

const DEFAULT_FILTER: &str = r#"container="prometheus""#;

/// A count that is low because nobody was counting looks like idleness.
pub(super) struct Health {
    filter: String,
    seconds: u64,
}

// === impl Health ===

impl Health {
    /// None where `healthCheck: false` says that there is no such series.
    pub(super) fn of(trigger: &PrometheusTrigger, cooldown: Duration) -> Option<Self> {
        let off = match trigger.other.get("healthCheck") {
            Some(Value::Bool(on)) => !on,
            Some(Value::String(text)) => text.trim().eq_ignore_ascii_case("false"),
            _ => false,
        };
        let filter = trigger.uptime_filter.as_deref().map(str::trim);
        (!off).then(|| Self {
            filter: filter
                .filter(|filter| !filter.is_empty())
                .unwrap_or(DEFAULT_FILTER)
                .into(),
            seconds: cooldown.as_secs().max(1),
        })
    }

    /// KubeElasti's, to the letter. The sub-query's step is the server's own: the evaluation
    /// interval in Prometheus, 5 minutes in VictoriaMetrics.
    pub(super) fn query(&self) -> String {
        self.over("")
    }

    /// For a window in which no step of the server's own lies, which is an empty result, and for
    /// servers that want a step written out.
    pub(super) fn query_with_step(&self) -> String {
        let step = (self.seconds / 10).clamp(1, 60);
        self.over(&format!("{step}s"))
    }

    fn over(&self, step: &str) -> String {
        let Self { filter, seconds } = self;
        format!("min_over_time((max(up{{{filter}}}) or vector(0))[{seconds}s:{step}])")
    }
}

/// What it means that the result is not 1.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not up throughout the last {} s (see uptimeFilter and healthCheck) by up{{{}}}",
            self.seconds, self.filter
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const QUARTER: Duration = Duration::from_secs(900);

    fn health(metadata: Value) -> Option<Health> {
        let mut trigger = json!({"query": "vector(0)", "threshold": "1"});
        trigger
            .as_object_mut()
            .unwrap()
            .extend(metadata.as_object().unwrap().clone());
        Health::of(&serde_json::from_value(trigger).unwrap(), QUARTER)
    }

    #[test]
    fn query_is_that_of_the_contract() {
        assert_eq!(
            health(json!({})).unwrap().query(),
            r#"min_over_time((max(up{container="prometheus"}) or vector(0))[900s:])"#
        );
        let filter = json!({"uptimeFilter": "job=\"vmagent\""});
        assert_eq!(
            health(filter).unwrap().query(),
            r#"min_over_time((max(up{job="vmagent"}) or vector(0))[900s:])"#
        );
    }

    #[test]
    fn empty_filter_is_the_default() {
        let health = health(json!({"uptimeFilter": " "})).unwrap();
        assert!(health.query().contains(r#"up{container="prometheus"}"#));
    }

    #[test]
    fn second_form_steps_through_any_window_at_least_each_minute() {
        for (seconds, step) in [(0, "[1s:1s]"), (5, "[5s:1s]"), (30, "[30s:3s]")] {
            let trigger = serde_json::from_value(json!({"query": "", "threshold": 1})).unwrap();
            let health = Health::of(&trigger, Duration::from_secs(seconds)).unwrap();
            assert!(health.query_with_step().contains(step));
        }
        let health = health(json!({})).unwrap();
        assert!(health.query_with_step().contains("[900s:60s]"));
    }

    #[test]
    fn health_check_can_be_switched_off() {
        for off in [json!(false), json!("false"), json!("False")] {
            assert!(health(json!({"healthCheck": off})).is_none());
        }
        for on in [json!(true), json!("true"), json!(null), json!(0)] {
            assert!(health(json!({"healthCheck": on})).is_some(), "{on}");
        }
    }
}
