//! Manifests.

use serde_json::{Value, json};

/// Where the stand-ins listen for routed connections.
pub const ROUTED_PORTS: &str = "10000-10063";
const PROXY_PORT: u16 = 8012;

pub fn workload(name: &str, kind: &str, replicas: i32, image: &str) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"of": name}},
            "template": {
                "metadata": {"labels": {"of": name, "app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "echo",
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
                    }],
                },
            },
        },
    });
    if kind == "StatefulSet" {
        object["spec"]["serviceName"] = name.into();
        object["spec"]["podManagementPolicy"] = "Parallel".into();
    }
    object
}

/// A workload whose pods take connections until every data plane has dropped them, as applications should.
pub fn courteous(mut workload: Value, farewell: u32) -> Value {
    let spec = &mut workload["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(farewell + 2);
    spec["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": farewell}}});
    workload
}

pub fn service(name: &str, app: &str, ports: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "ipFamilyPolicy": "PreferDualStack",
            "selector": {"app": app},
            "ports": ports,
        },
    })
}

/// KEDA's, for `web`.
pub fn scaled_object(name: &str) -> Value {
    json!({
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": {"name": "web"}},
    })
}

pub(super) fn resolvers(image: &str, replicas: i32) -> [Value; 2] {
    let name = "elasti-resolver-service";
    let mut pods = workload(name, "Deployment", replicas, image);
    let args = json!([format!("ports={PROXY_PORT},{ROUTED_PORTS}")]);
    pods["spec"]["template"]["spec"]["containers"][0]["args"] = args;
    let ports = json!([{"port": PROXY_PORT, "targetPort": PROXY_PORT}]);
    [pods, service(name, name, &ports)]
}

pub(super) fn elasti_service(name: &str, changes: Value) -> Value {
    let mut spec = json!({
        "service": name,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minTargetReplicas": 1,
        "cooldownPeriod": 1,
    });
    if let (Value::Object(spec), Value::Object(changes)) = (&mut spec, changes) {
        spec.extend(changes);
    }
    json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": name},
        "spec": spec,
    })
}
