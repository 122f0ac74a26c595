use crate::{AutoscalerKind, ElastiServiceSpec, Readiness};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use std::borrow::Cow;

/// What was last seen and done.
// It is owned as a whole: who owns each part of it takes an API server longer to keep track of than all else.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ElastiServiceStatus {
    /// When the ElastiService was last reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconciled_time: Option<Time>,

    /// When the target was last scaled up, or seen to be in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scaled_up_time: Option<Time>,

    /// `serve`: traffic goes straight to the target's pods. `proxy`: the resolver receives it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "mode_or_empty"
    )]
    pub mode: Option<Mode>,

    /// Where the target is in its life: `Awake`, `FallingAsleep`, `Asleep` or `Waking`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// What holds now, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Replicas that the target has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// The last time that traffic woke the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_wake: Option<LastWake>,

    /// Ports of the service and the resolver's port that stands for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["port"]))]
    pub ports: Vec<RoutedPort>,

    /// What it works on. What the spec no longer names is restored before this moves on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,

    /// When a pod of the target is ready, if resolvers may find that out themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,

    /// When requests last waited for it, as far as the replica that leads was not told itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_knock_time: Option<Time>,
}

/// The objects of others that an ElastiService works on. Free of the spec's rules: what an older
/// version stored must be written down, too.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attached {
    /// The service whose traffic it watches.
    pub service: String,

    /// The workload that it scales.
    pub target: AttachedTarget,

    /// The ScaledObject that it pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_object: Option<String>,
}

/// A workload that is scaled.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachedTarget {
    /// Group and version of its kind.
    pub api_version: String,

    /// Its kind.
    pub kind: String,

    /// Its name.
    pub name: String,
}

/// The two ways that a service's traffic can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Straight to the target's pods.
    Serve,
    /// Through the resolver.
    Proxy,
}

/// Where a target is in its life.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    Awake,
    FallingAsleep,
    Asleep,
    Waking,
}

/// A wake that traffic caused.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastWake {
    /// When the first request asked for the target.
    pub time: Time,

    /// From that request until the target was ready, such as `2.3s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

/// A port of the service, and the resolver's port that stands for it.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutedPort {
    /// Port of the service.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,

    /// Port on every resolver pod whose connections mean this port of this service.
    #[schemars(range(min = 1, max = 65_535))]
    pub resolver_port: i32,
}

/// KubeElasti writes an empty string before it has decided.
fn mode_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Mode>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Mode(Mode),
        Undecided(IgnoredAny),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::Mode(mode) => Some(mode),
        Written::Undecided(IgnoredAny) => None,
    })
}

// === impl Attached ===

impl From<&ElastiServiceSpec> for Attached {
    fn from(spec: &ElastiServiceSpec) -> Self {
        let target = &spec.scale_target_ref;
        let keda = spec
            .autoscaler
            .as_ref()
            .filter(|autoscaler| autoscaler.kind == AutoscalerKind::Keda);
        Self {
            service: spec.service.clone(),
            target: AttachedTarget {
                api_version: target.api_version.clone(),
                kind: target.kind().into(),
                name: target.name.clone(),
            },
            scaled_object: keda.map(|autoscaler| autoscaler.name.clone()),
        }
    }
}

// === impl Mode ===

impl JsonSchema for Mode {
    fn schema_name() -> Cow<'static, str> {
        "Mode".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": ["", "serve", "proxy"]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_left_by_kubeelasti_is_read() {
        let status: ElastiServiceStatus = serde_json::from_value(json!({
            "lastReconciledTime": "2025-03-01T10:00:00Z",
            "lastScaledUpTime": null,
            "mode": "",
        }))
        .unwrap();
        assert!(status.last_reconciled_time.is_some());
        assert_eq!(status.mode, None);
        let proxied: ElastiServiceStatus =
            serde_json::from_value(json!({"mode": "proxy"})).unwrap();
        assert_eq!(proxied.mode, Some(Mode::Proxy));
    }

    #[test]
    fn a_status_is_owned_as_a_whole() {
        let schema = schemars::schema_for!(ElastiServiceStatus);
        let kind = schema.get("x-kubernetes-map-type");
        assert_eq!(kind, Some(&json!("atomic")), "or each part has an owner");
    }
}
