//! What KubeElasti makes for the service of an ElastiService, and leaves behind.

use elasti_api::{FINALIZER, names};
use serde_json::{Value, json};

pub fn elasti_service(name: &str) -> Value {
    json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": {
            "minTargetReplicas": 1,
            "service": name,
            "cooldownPeriod": 900,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "deployments", "name": name},
            "triggers": [],
        },
    })
}

pub fn status(mode: &str) -> Value {
    json!({"status": {
        "lastReconciledTime": "2026-03-01T10:00:00Z",
        "lastScaledUpTime": "2026-03-01T09:00:00Z",
        "mode": mode,
    }})
}

/// With an address, which ours have not.
pub fn private_service(name: &str, owner: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names::private_service(name),
            "ownerReferences": [{
                "apiVersion": "elasti.truefoundry.com/v1alpha1",
                "kind": "ElastiService",
                "name": name,
                "uid": owner,
                "controller": true,
            }],
        },
        "spec": {
            "selector": {"of": name},
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    })
}

/// Without an owner, and without a word on who manages it.
pub fn slice<'a>(name: &str, resolvers: impl IntoIterator<Item = &'a str>) -> Value {
    let endpoints = resolvers.into_iter();
    let endpoints = endpoints.map(|address| json!({"addresses": [address]}));
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": names::resolver_slice(name),
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "ports": [{"protocol": "TCP", "port": 8012}],
        "endpoints": endpoints.collect::<Value>(),
    })
}
