//! An operator, which runs on the node, and resolvers, which run in pods.

use super::{Operator, PATIENCE, Setting, Stage, Target, free_port, metric, service};
use crate::{Place, built, fetch};
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use std::{collections::BTreeMap, net::SocketAddr, time::Duration};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

const IMAGE: &str = "elasti.local/resolver:test";
const NAME: &str = "elasti-resolver-service";
const PROXY_PORT: u16 = 8012;
/// A metric has no event.
const LOOK: Duration = Duration::from_millis(50);

pub struct Whole<'a> {
    pub stage: Stage<'a>,
    pub operator: Option<Operator>,
    pub resolvers: Vec<Target>,
    setting: Setting,
}

/// Who plays.
pub struct Cast<'a> {
    resolvers: i32,
    grace: u32,
    limits: Value,
    operator: Setting,
    resolver: BTreeMap<&'static str, String>,
    resolver_variables: BTreeMap<&'static str, String>,
    elsewhere: Vec<&'a Place>,
}

// === impl Cast ===

impl Default for Cast<'_> {
    fn default() -> Self {
        Self {
            resolvers: 1,
            grace: 2,
            limits: json!({}),
            operator: Setting::default().flag("resolver-ports", "10000-32767"),
            resolver: BTreeMap::from([
                ("farewell", "1s".into()),
                ("request-timeout", format!("{}s", PATIENCE.as_secs())),
            ]),
            resolver_variables: BTreeMap::new(),
            elsewhere: Vec::new(),
        }
    }
}

impl<'a> Cast<'a> {
    pub fn resolvers(mut self, count: i32) -> Self {
        self.resolvers = count;
        self
    }

    /// Seconds that a resolver is given to end.
    pub fn grace(mut self, seconds: u32) -> Self {
        self.grace = seconds;
        self
    }

    /// Of what a resolver may use.
    pub fn limits(mut self, cpu: &str, memory: &str) -> Self {
        self.limits = json!({"cpu": cpu, "memory": memory});
        self
    }

    pub fn operator_flag(mut self, name: &'static str, value: impl ToString) -> Self {
        self.operator = self.operator.flag(name, value);
        self
    }

    pub fn resolver_flag(mut self, name: &'static str, value: impl ToString) -> Self {
        self.resolver.insert(name, value.to_string());
        self
    }

    /// As the resolver has it by itself, or from a variable.
    pub fn without_resolver_flag(mut self, name: &str) -> Self {
        self.resolver.remove(name);
        self
    }

    pub fn resolver_variable(mut self, name: &'static str, value: impl ToString) -> Self {
        self.resolver_variables.insert(name, value.to_string());
        self
    }

    /// Otherwise than usual in everything.
    pub fn operator(mut self, setting: Setting) -> Self {
        self.operator = setting;
        self
    }

    /// They work for this namespace, too.
    pub fn also_in(mut self, place: &'a Place) -> Self {
        self.elsewhere.push(place);
        self
    }

    fn namespaces(&self, home: &Place) -> String {
        let places = [home].into_iter().chain(self.elsewhere.iter().copied());
        let names: Vec<&str> = places.map(|place| place.namespace.name()).collect();
        names.join(",")
    }
}

// === impl Whole ===

impl<'a> Whole<'a> {
    pub async fn set(place: &'a Place) -> Result<Self> {
        Self::with(place, Cast::default()).await
    }

    pub async fn with(place: &'a Place, cast: Cast<'_>) -> Result<Self> {
        let stage = Stage::empty(place).await?;
        place.load_image(&built("elasti-resolver")?, IMAGE)?;
        let (home, port) = (place.namespace.name(), free_port());
        for place in cast.elsewhere.iter().chain([&place]) {
            for object in rights(home) {
                place.put(object).await?;
            }
        }
        let ports = json!([{"port": PROXY_PORT, "targetPort": PROXY_PORT}]);
        place.put(service(NAME, NAME, &ports)).await?;
        place.put(replica(&node(place).await?, port)).await?;
        let namespaces = cast.namespaces(place);
        let mut flags = cast.resolver.clone();
        flags.insert("watch-namespace", namespaces.clone());
        flags.insert("operator-namespace", home.into());
        flags.insert("operator-service", "operator".into());
        flags.insert("operator-port", port.to_string());
        place.put(resolvers(&cast, &flags)).await?;
        let setting = cast.operator.at(port).flag("watch-namespace", namespaces);
        let (operator, ready) = tokio::join!(
            stage.operator_with(setting.clone()),
            stage.has_ready("resolver", cast.resolvers)
        );
        ready?;
        Ok(Self {
            operator: Some(operator?),
            resolvers: pods(&stage).await?,
            stage,
            setting,
        })
    }

    pub fn end_operator(&mut self) -> Result<()> {
        self.operator.take().map_or(Ok(()), Operator::end)
    }

    /// Where the resolvers know it to be.
    pub async fn start_operator(&mut self) -> Result<()> {
        self.operator = Some(self.stage.operator_with(self.setting.clone()).await?);
        Ok(())
    }

    /// Where a service is reached, once the data plane leads to each resolver, for which it has no event: somebody knocks
    /// at the door and leaves, which wakes nobody.
    pub async fn reach_all(&self, service: &str, port: u16) -> Result<SocketAddr> {
        let address = self.stage.reach(service, port).await?;
        let labels = [("source", service)];
        let came = || self.samples("elasti_resolver_host_extraction_count", &labels);
        let before = came().await?;
        let reached = async {
            while came()
                .await?
                .iter()
                .zip(&before)
                .any(|(now, before)| now <= before)
            {
                drop(TcpStream::connect(address).await?);
                sleep(LOOK).await;
            }
            Ok(address)
        };
        timeout(PATIENCE, reached)
            .await
            .with_context(|| format!("waiting until {service} is led to each resolver"))?
    }

    /// How many wait for a service at each resolver.
    pub async fn held(&self, service: &str) -> Result<Vec<usize>> {
        let labels = [("source", service)];
        let held = self
            .samples("elasti_resolver_queued_count", &labels)
            .await?;
        Ok(held.into_iter().map(|count| count as usize).collect())
    }

    pub async fn until_held(&self, service: &str, count: usize) -> Result<()> {
        let waiting = async {
            while self.held(service).await?.iter().sum::<usize>() != count {
                sleep(LOOK).await;
            }
            Ok(())
        };
        timeout(PATIENCE, waiting)
            .await
            .with_context(|| format!("waiting for {count} that wait for {service}"))?
    }

    /// A metric of each resolver.
    pub async fn samples(&self, name: &str, labels: &[(&str, &str)]) -> Result<Vec<f64>> {
        let mut samples = Vec::new();
        for resolver in &self.resolvers {
            let metrics = fetch(&format!("http://{}:8013/metrics", resolver.address)).await?;
            samples.push(metric(&metrics, name, labels).unwrap_or_default());
        }
        Ok(samples)
    }
}

async fn pods(stage: &Stage<'_>) -> Result<Vec<Target>> {
    let of_resolver = ListParams::default().labels("of=resolver");
    let pods = stage.api::<Pod>().list(&of_resolver).await?;
    let targets = pods.items.into_iter().filter_map(|pod| {
        let name = pod.name_any();
        let address = pod.status?.pod_ip?;
        Some(Target { pod: name, address })
    });
    Ok(targets.collect())
}

/// Where pods reach what runs on the node.
async fn node(place: &Place) -> Result<String> {
    let nodes: Api<Node> = Api::all(place.client.clone());
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

/// What a resolver may do in a namespace.
fn rights(home: &str) -> [Value; 2] {
    let rules = json!([
        {"apiGroups": ["elasti.truefoundry.com"], "resources": ["elastiservices"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]);
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "resolver"}, "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "resolver"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "resolver"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": home}],
        }),
    ]
}

/// The operator, as resolvers find it.
fn replica(node: &str, port: u16) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "operator", "labels": {"kubernetes.io/service-name": "operator"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [node], "conditions": {"ready": true}}],
        "ports": [{"name": "", "port": port, "protocol": "TCP"}],
    })
}

fn resolvers(cast: &Cast<'_>, flags: &BTreeMap<&str, String>) -> Value {
    let flags = flags
        .iter()
        .map(|(name, value)| format!("--{name}={value}"));
    let args: Vec<String> = flags.collect();
    let variables = cast.resolver_variables.iter();
    let variables: Vec<Value> = variables
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "resolver"},
        "spec": {
            "replicas": cast.resolvers,
            "selector": {"matchLabels": {"of": "resolver"}},
            "template": {
                "metadata": {"labels": {"of": "resolver", "app": NAME}},
                "spec": {
                    "terminationGracePeriodSeconds": cast.grace,
                    "containers": [{
                        "name": "proxy",
                        "image": IMAGE,
                        "imagePullPolicy": "IfNotPresent",
                        "args": args,
                        "env": variables,
                        "resources": {"limits": cast.limits},
                        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8013}, "periodSeconds": 1},
                    }],
                },
            },
        },
    })
}
