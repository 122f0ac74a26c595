use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When held requests are let go.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Release {
    /// As soon as a pod passes its own readiness probes, which the resolver asks.
    #[default]
    EarliestReady,
    /// When Kubernetes says that a pod is ready.
    KubernetesReady,
}

/// What the target's pod template asks of a pod before it is ready. Resolvers ask it while requests wait.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// All have to pass. None means that the port of a service accepts connections.
    #[serde(default)]
    pub checks: Vec<ReadinessCheck>,
}

/// A probe of one container; one that is neither of HTTP nor of gRPC is a connection.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadinessCheck {
    /// Its name.
    pub container: String,

    /// Whether it has to pass before the others of its container are asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub startup: bool,

    /// Port of the pod.
    pub port: i32,

    /// A request that is answered with a status from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpCheck>,

    /// A service that says that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCheck>,

    /// Seconds before it is asked for the first time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initial_delay_seconds: i32,

    /// Seconds in which it has to answer.
    pub timeout_seconds: i32,

    /// How often in a row it has to pass.
    pub success_threshold: i32,

    /// How often in a row it has to fail before a pod that passed has to pass again.
    #[serde(default = "usual_failures")]
    pub failure_threshold: i32,
}

/// A request over HTTP.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpCheck {
    /// Whether over TLS, with any certificate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,

    /// What is asked for.
    pub path: String,

    /// Headers that are sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HttpCheckHeader>,
}

/// One header.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpCheckHeader {
    /// Its name.
    pub name: String,

    /// Its value.
    pub value: String,
}

/// The health protocol of gRPC.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrpcCheck {
    /// The service that is asked for; none means the whole server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
}

fn is_zero(seconds: &i32) -> bool {
    *seconds == 0
}

/// As Kubernetes has it.
fn usual_failures() -> i32 {
    3
}
