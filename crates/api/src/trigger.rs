use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};
use std::{borrow::Cow, collections::BTreeMap, str::FromStr};

/// Something that says whether the target is idle.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    Prometheus(PrometheusTrigger),
    /// Stored before it was validated: it says nothing, and harms nothing else of its ElastiService.
    Invalid(InvalidTrigger),
}

#[derive(Clone, Debug, PartialEq)]
pub struct InvalidTrigger {
    /// What is wrong with it.
    pub error: String,
    written: Value,
}

/// A trigger as it is written when it is right.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", content = "metadata", rename_all = "lowercase")]
enum Valid {
    Prometheus(PrometheusTrigger),
}

/// Idle while the query's value is below the threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusTrigger {
    /// Left out: the operator's `PROMETHEUS_TRIGGER_SERVER_ADDRESS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_address: Option<String>,
    pub query: String,
    pub threshold: Threshold,
    /// Label matchers of the `up` series that tell whether Prometheus itself is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_filter: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Keys that mean nothing to us; the field is free-form.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// A finite number, written as a number or as a string; printed as a string, which is all that
/// KubeElasti reads.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Threshold(f64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("threshold {0} is not a number such as 0.5 or \"0.5\"")]
pub struct InvalidThreshold(String);

// === impl Trigger ===

impl<'de> Deserialize<'de> for Trigger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Value::deserialize(deserializer)?;
        Ok(match Valid::deserialize(&written) {
            Ok(Valid::Prometheus(prometheus)) => Self::Prometheus(prometheus),
            Err(error) => Self::Invalid(InvalidTrigger {
                error: error.to_string(),
                written,
            }),
        })
    }
}

impl Serialize for Trigger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Prometheus(prometheus) => {
                Valid::Prometheus(prometheus.clone()).serialize(serializer)
            }
            Self::Invalid(invalid) => invalid.written.serialize(serializer),
        }
    }
}

/// A tagged enum has no structural schema of its own, and `metadata` is free-form: declared keys
/// are checked, others kept.
impl JsonSchema for Trigger {
    fn schema_name() -> Cow<'static, str> {
        "Trigger".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Something that says whether the target is idle.",
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": {
                    "description": "Kind of trigger.",
                    "type": "string",
                    "enum": ["prometheus"],
                },
                "metadata": PrometheusTrigger::metadata_schema(generator),
            },
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.metadata) && has(self.metadata.query) && self.metadata.query.matches('\\\\S')",
                    "message": "a prometheus trigger needs metadata.query, such as 'sum(rate(http_requests_total[1m])) or vector(0)'",
                },
            ],
        })
    }
}

// === impl PrometheusTrigger ===

impl PrometheusTrigger {
    fn metadata_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What the trigger needs to know. Idle while the value of `query` is below `threshold`.",
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "required": ["threshold"],
            "properties": {
                "serverAddress": {
                    "description": "Address of the Prometheus server, such as `http://prometheus.monitoring:9090`. Left out: the operator's own.",
                    "type": "string",
                    "maxLength": 2048,
                    "x-kubernetes-validations": [{
                        "rule": "self == '' || self.matches('^https?://[^/]')",
                        "message": "must be an address with http:// or https://, such as 'http://prometheus.monitoring:9090'",
                    }],
                },
                "query": {
                    "description": "PromQL expression with exactly one result.",
                    "type": "string",
                    "maxLength": 16384,
                },
                "threshold": generator.subschema_for::<Threshold>(),
                "uptimeFilter": {
                    "description": "Label matchers of the `up` series that tell whether Prometheus itself was healthy, without which nothing falls asleep. Left out: `container=\"prometheus\"`.",
                    "type": "string",
                    "maxLength": 4096,
                },
                "healthCheck": {
                    "description": "Whether Prometheus's own health is asked for first. Left out: yes.",
                    "type": "boolean",
                },
                "headers": {
                    "description": "HTTP headers of the query, such as `X-Scope-OrgID`.",
                    "type": "object",
                    "maxProperties": 32,
                    "additionalProperties": {"type": "string", "maxLength": 8192},
                },
            },
        })
    }
}

// === impl Threshold ===

impl Threshold {
    pub fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Threshold {
    type Err = InvalidThreshold;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.trim()
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite())
            .map(Self)
            .ok_or_else(|| InvalidThreshold(format!("{text:?}")))
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => text.parse(),
            Value::Number(number) => number.to_string().parse(),
            other => Err(InvalidThreshold(other.to_string())),
        }
        .map_err(de::Error::custom)
    }
}

impl Serialize for Threshold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A structural schema has no "number or string". A value validation holds for every value of
/// another type than its own, so `not` with one that nothing of its own type meets is a test of the
/// type itself. The enum matches nothing: it is there for its message, which is reported first.
impl JsonSchema for Threshold {
    fn schema_name() -> Cow<'static, str> {
        "Threshold".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let what_is_right = json!({"enum": ["a number, such as 0.5, or a string that holds one"]});
        let is_a_number = json!({"not": {"minimum": 0, "maximum": -1}});
        let is_a_string = json!({"not": {"minLength": 65}});
        json_schema!({
            "description": "Idle below this value. A number, or a string that holds one.",
            "x-kubernetes-preserve-unknown-fields": true,
            "anyOf": [what_is_right, is_a_number, is_a_string],
            "pattern": r"^(?P<a_number_such_as_0_dot_5>\s*[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,2})?\s*)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(threshold: &Value) -> Trigger {
        let metadata = json!({"query": "vector(0)", "threshold": threshold, "note": "mine"});
        serde_json::from_value(json!({"type": "prometheus", "metadata": metadata})).unwrap()
    }

    #[test]
    fn threshold_is_a_number_or_a_string_that_holds_one() {
        for (written, value) in [
            (json!("0.5"), 0.5),
            (json!(0.5), 0.5),
            (json!(3), 3.0),
            (json!("1e2"), 100.0),
            (json!("-1"), -1.0),
        ] {
            let Trigger::Prometheus(prometheus) = trigger(&written) else {
                panic!("{written} is a threshold");
            };
            assert_eq!(prometheus.threshold.get(), value);
        }
    }

    #[test]
    fn threshold_that_is_no_number_is_named_in_the_error() {
        for written in [
            json!("many"),
            json!(""),
            json!("NaN"),
            json!("inf"),
            json!(true),
            json!([1]),
        ] {
            let Trigger::Invalid(invalid) = trigger(&written) else {
                panic!("{written} is no threshold");
            };
            let error = &invalid.error;
            assert!(
                error.contains("threshold") && error.contains("0.5"),
                "{written}: {error}"
            );
        }
    }

    #[test]
    fn an_invalid_trigger_is_kept_as_it_was_written() {
        for written in [
            json!({"type": "prometheus"}),
            json!({"type": "prometheus", "metadata": {"query": "vector(0)"}}),
            json!({"type": "somebody-elses", "metadata": {"a": 1}}),
        ] {
            let trigger: Trigger = serde_json::from_value(written.clone()).unwrap();
            assert!(matches!(trigger, Trigger::Invalid(_)), "{written}");
            assert_eq!(serde_json::to_value(trigger).unwrap(), written);
        }
    }

    #[test]
    fn free_form_metadata_survives() {
        let kept = serde_json::to_value(trigger(&json!(0.5))).unwrap();
        assert_eq!(kept["metadata"]["note"], "mine");
        assert_eq!(
            kept["metadata"]["threshold"], "0.5",
            "KubeElasti reads only strings"
        );
    }
}
