//! What a pod template says of when a pod is ready, as far as somebody else than the kubelet can ask.

use elasti_api::{GrpcCheck, HttpCheck, HttpCheckHeader, Readiness, ReadinessCheck};
use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction, PodSpec, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde::Deserialize;
use serde_json::Value;

/// Why Kubernetes has to say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unaskable {
    NoTemplate,
    Exec,
    Gate,
    Elsewhere,
    UnknownPort,
}

/// By the spec of a target.
pub(crate) fn readiness(spec: &Value) -> Result<Readiness, Unaskable> {
    let pod = PodSpec::deserialize(&spec["template"]["spec"]).map_err(|_| Unaskable::NoTemplate)?;
    if pod.readiness_gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(Unaskable::Gate);
    }
    // Those that go on beside the others count, too.
    let sidecars = pod.init_containers.iter().flatten();
    let sidecars =
        sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let mut checks = Vec::new();
    for container in sidecars.chain(&pod.containers) {
        if let Some(probe) = &container.startup_probe {
            checks.push(check(container, probe, true)?);
        }
        if let Some(probe) = &container.readiness_probe {
            checks.push(check(container, probe, false)?);
        }
    }
    Ok(Readiness { checks })
}

fn check(container: &Container, probe: &Probe, startup: bool) -> Result<ReadinessCheck, Unaskable> {
    let (port, http_get, grpc) = if let Some(action) = &probe.http_get {
        (number(container, &action.port)?, Some(http(action)?), None)
    } else if let Some(action) = &probe.tcp_socket {
        if action.host.as_deref().is_some_and(|host| !host.is_empty()) {
            return Err(Unaskable::Elsewhere);
        }
        (number(container, &action.port)?, None, None)
    } else if let Some(action) = &probe.grpc {
        let service = action.service.clone().unwrap_or_default();
        (action.port, None, Some(GrpcCheck { service }))
    } else {
        return Err(Unaskable::Exec);
    };
    let or = |given: Option<i32>, usual: i32| given.filter(|given| *given > 0).unwrap_or(usual);
    Ok(ReadinessCheck {
        container: container.name.clone(),
        startup,
        port,
        http_get,
        grpc,
        initial_delay_seconds: or(probe.initial_delay_seconds, 0),
        timeout_seconds: or(probe.timeout_seconds, 1),
        success_threshold: or(probe.success_threshold, 1),
        failure_threshold: or(probe.failure_threshold, 3),
    })
}

/// Another host is asked from the node, where we are not.
fn http(action: &HTTPGetAction) -> Result<HttpCheck, Unaskable> {
    if action.host.as_deref().is_some_and(|host| !host.is_empty()) {
        return Err(Unaskable::Elsewhere);
    }
    let headers = action.http_headers.iter().flatten();
    let path = action.path.as_deref().filter(|path| !path.is_empty());
    let path = path.unwrap_or("/");
    Ok(HttpCheck {
        tls: action
            .scheme
            .as_deref()
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
        path: if path.starts_with('/') {
            path.into()
        } else {
            format!("/{path}")
        },
        headers: headers
            .map(|header| HttpCheckHeader {
                name: header.name.clone(),
                value: header.value.clone(),
            })
            .collect(),
    })
}

fn number(container: &Container, port: &IntOrString) -> Result<i32, Unaskable> {
    match port {
        IntOrString::Int(number) => Ok(*number),
        IntOrString::String(name) => {
            let ports = container.ports.iter().flatten();
            let mut named = ports.filter(|port| port.name.as_ref() == Some(name));
            let number = named.next().map(|port| port.container_port);
            number
                .or_else(|| name.parse().ok())
                .ok_or(Unaskable::UnknownPort)
        }
    }
}

// === impl Unaskable ===

impl Unaskable {
    /// As a condition says it.
    pub(crate) fn reason(self) -> (&'static str, &'static str) {
        match self {
            Self::NoTemplate => (
                "NoPodTemplate",
                "The target has no pod template that tells when a pod is ready",
            ),
            Self::Exec => (
                "ExecProbe",
                "A probe runs a command in its container, which nobody else can ask",
            ),
            Self::Gate => (
                "ReadinessGate",
                "Pods have readiness gates, of which others decide",
            ),
            Self::Elsewhere => (
                "ProbeElsewhere",
                "A probe asks another host than the pod, from its node",
            ),
            Self::UnknownPort => (
                "UnknownPort",
                "A probe names a port that its container does not have",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(containers: Value) -> Result<Readiness, Unaskable> {
        readiness(&json!({"template": {"spec": {"containers": containers}}}))
    }

    #[test]
    fn probes_are_read_as_the_kubelet_reads_them() {
        let found = of(json!([
            {
                "name": "web",
                "ports": [{"name": "http", "containerPort": 8080}],
                "startupProbe": {"tcpSocket": {"port": "http"}},
                "readinessProbe": {
                    "httpGet": {"port": "http", "path": "ready", "scheme": "HTTPS", "httpHeaders": [{"name": "Host", "value": "web"}]},
                    "initialDelaySeconds": 2, "timeoutSeconds": 3, "successThreshold": 4, "failureThreshold": 5,
                },
            },
            {"name": "silent"},
            {"name": "rpc", "readinessProbe": {"grpc": {"port": 9090, "service": "shop"}}},
        ]))
        .unwrap();
        let [startup, web, rpc] = &found.checks[..] else {
            panic!("{found:?}");
        };
        assert_eq!((startup.startup, startup.port), (true, 8080));
        let http = web.http_get.as_ref().unwrap();
        assert_eq!(
            (http.tls, &*http.path, http.headers.len()),
            (true, "/ready", 1)
        );
        assert_eq!(
            (
                web.initial_delay_seconds,
                web.timeout_seconds,
                web.success_threshold,
                web.failure_threshold
            ),
            (2, 3, 4, 5)
        );
        assert_eq!(rpc.grpc.as_ref().unwrap().service, "shop");
        assert_eq!((rpc.timeout_seconds, rpc.success_threshold), (1, 1));
        assert_eq!(rpc.failure_threshold, 3);
        assert_eq!(of(json!([{"name": "web"}])), Ok(Readiness::default()));
    }

    #[test]
    fn a_sidecar_that_goes_on_counts_and_other_init_containers_do_not() {
        let init = |policy: Option<&str>| json!({"name": "side", "restartPolicy": policy, "readinessProbe": {"tcpSocket": {"port": 1}}});
        let with = |policy| {
            let spec = json!({"initContainers": [init(policy)], "containers": [{"name": "web"}]});
            readiness(&json!({"template": {"spec": spec}}))
                .unwrap()
                .checks
                .len()
        };
        assert_eq!((with(Some("Always")), with(None)), (1, 0));
    }

    #[test]
    fn what_only_the_kubelet_can_ask_is_told() {
        let probe = |probe: Value| of(json!([{"name": "web", "readinessProbe": probe}]));
        assert_eq!(
            probe(json!({"exec": {"command": ["true"]}})),
            Err(Unaskable::Exec)
        );
        let named = probe(json!({"httpGet": {"port": "nobody"}}));
        assert_eq!(named, Err(Unaskable::UnknownPort));
        let elsewhere = probe(json!({"httpGet": {"port": 80, "host": "10.0.0.1"}}));
        assert_eq!(elsewhere, Err(Unaskable::Elsewhere));
        assert_eq!(
            readiness(&json!({"replicas": 1})),
            Err(Unaskable::NoTemplate)
        );
        let gated = json!({"template": {"spec": {
            "containers": [{"name": "web"}],
            "readinessGates": [{"conditionType": "lb"}],
        }}});
        assert_eq!(readiness(&gated), Err(Unaskable::Gate));
    }
}
