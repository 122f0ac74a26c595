use crate::{GoDuration, Release};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How requests are held while the target wakes.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// How long a request may wait for the target, such as `2m`; then it gets a 504. Left out: the
    /// resolver's own `REQ_TIMEOUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,

    /// How many requests one resolver holds for this service; the next one gets a 503. Left out:
    /// the resolver's own `QUEUE_SIZE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_pending: Option<i32>,

    /// When requests are let go: `EarliestReady`, as soon as a pod passes its own readiness probes, which the
    /// resolver asks, or `KubernetesReady`, when Kubernetes has asked them. Left out: the resolver's own
    /// `ELASTI_RELEASE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
}
