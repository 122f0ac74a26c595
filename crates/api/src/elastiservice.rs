use crate::{
    Autoscaler, ElastiServiceStatus, EnabledPeriod, GoDuration, Hold, ProbeRule, ScaleTargetRef,
    Trigger, duration::WELL_FORMED,
};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Keeps an ElastiService until its target is back and its objects are gone.
pub const FINALIZER: &str = "elasti.truefoundry.com/finalizer";

/// Lets one service and the workload behind it sleep while nobody asks for them.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "elasti.truefoundry.com",
    version = "v1alpha1",
    kind = "ElastiService",
    plural = "elastiservices",
    shortname = "es",
    category = "all",
    category = "elasti",
    namespaced,
    status = "ElastiServiceStatus",
    derive = "PartialEq",
    doc = "An ElastiService lets one service and the workload behind it sleep at zero replicas while nobody asks for them, and wakes them on the first connection.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".status.mode", description = "serve: straight to the pods; proxy: through the resolver"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Where the target is in its life"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.scaleTargetRef.name", description = "What is scaled"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas", description = "Replicas that the target has now"),
    printcolumn(name = "Idle", type_ = "string", json_path = ".status.conditions[?(@.type=='Idle')].status", description = "What the triggers say now"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Time since creation"),
    validation = Rule::new("!has(self.spec.wakeWith) || !(self.metadata.name in self.spec.wakeWith)")
        .message("must name other ElastiServices of this namespace, not this one: it wakes anyway")
        .field_path(".spec.wakeWith"),
)]
pub struct ElastiServiceSpec {
    /// The workload that is scaled: anything with a `/scale` subresource.
    pub scale_target_ref: ScaleTargetRef,

    /// Name of the Service, in the same namespace, whose traffic wakes the target. It is never
    /// modified.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("must be the name of a Service in this namespace: lower-case letters, digits and '-', at most 63, such as 'my-service'"))]
    pub service: String,

    /// Replicas to wake to. A target that already has more keeps them.
    #[serde(default = "default_min_target_replicas")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub min_target_replicas: i32,

    /// Seconds that the target must have been idle, and up, before it is put to sleep; at most a
    /// week. 0 means the default, 900.
    #[serde(default = "default_cooldown_period")]
    #[schemars(range(min = 0, max = 604_800))]
    pub cooldown_period: i32,

    /// What decides whether the target is idle. All of them must say so. Without triggers the
    /// target is never put to sleep, only woken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub triggers: Vec<Trigger>,

    /// An autoscaler that works on the same target and has to rest while the target sleeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler: Option<Autoscaler>,

    /// When the target may sleep. Outside this period it is kept awake. Left out: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled_period: Option<EnabledPeriod>,

    /// Requests that are answered in the target's name while it sleeps, without waking it: health
    /// checks, mostly. The first rule that matches answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.all(a, self.exists_one(b, a == b))")
        .message("two rules are equal: the second can never answer, remove it"))]
    pub probe_response: Vec<ProbeRule>,

    /// Leaves the target as it is: it is neither put to sleep nor scaled, except that a request for
    /// a sleeping target still wakes it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,

    /// Only says, in events and conditions, what would be done: nothing is put to sleep, and no
    /// traffic is redirected. What slept before is still woken by a request.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,

    /// How often the triggers are asked, such as `30s`; at least `1s`. Left out: the operator's own
    /// interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new(format!("!{WELL_FORMED} || duration(self) >= duration('1s')"))
        .message("must be at least '1s'"))]
    pub polling_interval: Option<GoDuration>,

    /// How requests are held while the target wakes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,

    /// Names of other ElastiServices in this namespace that are woken together with this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 253)), extend("x-kubernetes-list-type" = "set"))]
    #[x_kube(validation = Rule::new("self.all(name, name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))")
        .message("must be names of ElastiServices in this namespace, such as 'my-service'"))]
    pub wake_with: Vec<String>,
}

fn default_min_target_replicas() -> i32 {
    1
}

fn default_cooldown_period() -> i32 {
    900
}

fn is_false(value: &bool) -> bool {
    !value
}
