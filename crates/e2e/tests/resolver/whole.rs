use super::*;
use elasti_e2e::{
    Place,
    stage::{Operator, PATIENCE},
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use std::time::Duration;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

const IMAGE: &str = "elasti.local/resolver:test";
const NAME: &str = "elasti-resolver-service";

/// An operator, which runs on the node, and a resolver, which runs in a pod.
pub(super) struct Whole<'a> {
    pub(super) stage: Stage<'a>,
    _operator: Operator,
}

impl<'a> Whole<'a> {
    pub(super) async fn set(place: &'a Place) -> Result<Self> {
        let stage = Stage::set(place).await?;
        stage.resolvers(0).await?;
        let operator = stage
            .operator_with(Setting::default().flag("resolver-ports", "10000-32767"))
            .await?;
        place
            .cluster
            .load_image(&built("elasti-resolver")?, Some(IMAGE))?;
        for object in objects(
            place.namespace.name(),
            operator.port(),
            &node(&stage).await?,
        ) {
            place.put(object).await?;
        }
        let is_ready = |deployment: &Deployment| {
            let status = deployment.status.as_ref();
            status.and_then(|status| status.ready_replicas) == Some(1)
        };
        stage
            .until("resolver", "a ready resolver", is_ready)
            .await?;
        Ok(Self {
            stage,
            _operator: operator,
        })
    }

    /// Of a service that the data plane knows: it follows the API server within a second or so.
    pub(super) async fn cluster_ip(&self, name: &str) -> Result<String> {
        let service: Service = self.stage.api().get(name).await?;
        let spec = service.spec.context("a service has a spec")?;
        let address = spec.cluster_ip.context("it has an address")?;
        let known = async {
            while TcpStream::connect((address.as_str(), 80)).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, known)
            .await
            .context("waiting for the data plane")?;
        Ok(address)
    }
}

/// Where pods reach what runs on the node.
async fn node(stage: &Stage<'_>) -> Result<String> {
    let nodes: Api<Node> = Api::all(stage.place.client.clone());
    let nodes = nodes.list(&ListParams::default()).await?;
    let addresses = nodes
        .items
        .into_iter()
        .filter_map(|node| node.status?.addresses);
    let internal = addresses
        .flatten()
        .find(|address| address.type_ == "InternalIP");
    Ok(internal.context("a node has an address")?.address)
}

fn objects(namespace: &str, operator_port: u16, node: &str) -> Vec<serde_json::Value> {
    let rules = json!([
        {"apiGroups": ["elasti.truefoundry.com"], "resources": ["elastiservices"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]);
    let args = json!([
        format!("--watch-namespace={namespace}"),
        format!("--operator-namespace={namespace}"),
        "--operator-service=operator",
        format!("--operator-port={operator_port}"),
        "--farewell=1s",
    ]);
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "resolver"}, "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "resolver"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "resolver"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "operator", "labels": {"kubernetes.io/service-name": "operator"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [node], "conditions": {"ready": true}}],
            "ports": [{"name": "", "port": operator_port, "protocol": "TCP"}],
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "resolver"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"of": "resolver"}},
                "template": {
                    "metadata": {"labels": {"of": "resolver", "app": NAME}},
                    "spec": {
                        "terminationGracePeriodSeconds": 2,
                        "containers": [{
                            "name": "proxy",
                            "image": IMAGE,
                            "imagePullPolicy": "IfNotPresent",
                            "args": args,
                            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8013}, "periodSeconds": 1},
                        }],
                    },
                },
            },
        }),
    ]
}
