use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An autoscaler that works on the same target.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Autoscaler {
    /// `keda` is paused while the target sleeps; `hpa` rests by itself at zero replicas.
    #[serde(rename = "type")]
    pub kind: AutoscalerKind,

    /// Name of the ScaledObject or HorizontalPodAutoscaler, in the same namespace.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("must be the name of a ScaledObject or HorizontalPodAutoscaler in this namespace"))]
    pub name: String,
}

#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AutoscalerKind {
    Hpa,
    Keda,
}
