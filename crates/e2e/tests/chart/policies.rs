//! The local cluster's network enforces no NetworkPolicy: what they let through is read from them.

use crate::{matches, named, of_kind, rendered};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Who connects.
struct Peer {
    namespace: &'static str,
    /// None has an address that no selector can name: a node's, a load balancer's.
    pod: Option<Value>,
}

struct Network {
    objects: Vec<Value>,
}

const OPERATOR: &str = "Deployment/elasti-operator-controller-manager";
const RESOLVER: &str = "Deployment/elasti-resolver";
const JOB: &str = "Job/elasti-uninstall";

#[test]
#[ignore = "needs helm: make chart"]
fn policies_let_through_what_is_needed() -> Result<()> {
    let network = Network::of(&["--set=networkPolicies.enabled=true"])?;
    let (operator, resolver) = (network.pod(OPERATOR)?, network.pod(RESOLVER)?);
    network.lets(&resolver, OPERATOR, &[8013])?;
    network.lets(&operator, RESOLVER, &[10000, 20000, 32767])?;
    for anybody in [node(), stranger()] {
        network.lets(&anybody, RESOLVER, &[8012, 8013, 10000, 32767])?;
        network.lets(&anybody, OPERATOR, &[8080, 8081])?;
        network.bars(&anybody, OPERATOR, &[8013])?;
        network.bars(&anybody, RESOLVER, &[8014, 9999, 32768])?;
    }
    network.asks_nothing_of_who_leaves()
}

#[test]
#[ignore = "needs helm: make chart"]
fn policies_that_name_peers_let_through_these_and_elasti_itself() -> Result<()> {
    let network = Network::of(&[
        "--set=networkPolicies.enabled=true",
        "--set-json=networkPolicies.clients=[{\"namespaceSelector\":{\"matchLabels\":{\"kubernetes.io/metadata.name\":\"shop\"}}}]",
        "--set-json=networkPolicies.metrics=[{\"namespaceSelector\":{\"matchLabels\":{\"kubernetes.io/metadata.name\":\"monitoring\"}}}]",
        "--set=elastiController.manager.args={--metrics-bind-address=:9090}",
        "--set=elastiController.manager.env.resolverPorts=20000-20009",
    ])?;
    let (operator, resolver) = (network.pod(OPERATOR)?, network.pod(RESOLVER)?);
    let [client, prometheus] = ["shop", "monitoring"].map(|namespace| Peer {
        namespace,
        pod: Some(json!({})),
    });
    network.lets(&client, RESOLVER, &[8012, 20000, 20009])?;
    network.lets(&operator, RESOLVER, &[20000, 20009])?;
    network.lets(&resolver, OPERATOR, &[8013])?;
    network.lets(&prometheus, OPERATOR, &[9090])?;
    network.lets(&prometheus, RESOLVER, &[8013])?;
    network.lets(&node(), OPERATOR, &[8081])?;
    network.bars(&stranger(), RESOLVER, &[8012, 8013, 20000])?;
    network.bars(&stranger(), OPERATOR, &[8013, 9090])?;
    network.bars(&client, OPERATOR, &[8013, 9090])?;
    network.bars(&prometheus, RESOLVER, &[8012, 20000])?;
    network.bars(&prometheus, OPERATOR, &[8013])?;
    network.asks_nothing_of_who_leaves()
}

fn node() -> Peer {
    Peer {
        namespace: "",
        pod: None,
    }
}

fn stranger() -> Peer {
    Peer {
        namespace: "elsewhere",
        pod: Some(json!({"app": "elasti-resolver"})),
    }
}

// === impl Network ===

impl Network {
    fn of(values: &[&str]) -> Result<Self> {
        let objects = rendered("default", values)?;
        ensure!(of_kind(&objects, "NetworkPolicy").len() == 2);
        Ok(Self { objects })
    }

    fn pod(&self, workload: &str) -> Result<Peer> {
        let template = &named(&self.objects, workload)?["spec"]["template"];
        Ok(Peer {
            namespace: "elasti",
            pod: Some(template["metadata"]["labels"].clone()),
        })
    }

    fn lets(&self, from: &Peer, to: &str, ports: &[u16]) -> Result<()> {
        for port in ports {
            ensure!(
                self.passes(from, to, *port)?,
                "{from} cannot reach {to} on {port}"
            );
        }
        Ok(())
    }

    fn bars(&self, from: &Peer, to: &str, ports: &[u16]) -> Result<()> {
        for port in ports {
            ensure!(
                !self.passes(from, to, *port)?,
                "{from} reaches {to} on {port}"
            );
        }
        Ok(())
    }

    fn passes(&self, from: &Peer, to: &str, port: u16) -> Result<bool> {
        let rules = self.policies_for(to)?;
        ensure!(!rules.is_empty(), "no policy is about {to}");
        let rules = rules
            .iter()
            .flat_map(|policy| list(&policy["spec"]["ingress"]));
        let mut rules =
            rules.filter(|rule| list(&rule["ports"]).iter().any(|range| holds(range, port)));
        Ok(rules.any(|rule| match rule.get("from") {
            None => true,
            Some(peers) => list(peers).iter().any(|peer| from.is(peer)),
        }))
    }

    fn policies_for(&self, workload: &str) -> Result<Vec<&Value>> {
        let pod = self.pod(workload)?.pod.context("it is a pod")?;
        let policies = of_kind(&self.objects, "NetworkPolicy").into_iter();
        let about = |policy: &&Value| matches(&policy["spec"]["podSelector"], &pod);
        Ok(policies.filter(about).collect())
    }

    /// Who connects to API server, DNS, Prometheus and targets is not held back, and nobody has to reach the Job.
    fn asks_nothing_of_who_leaves(&self) -> Result<()> {
        for policy in of_kind(&self.objects, "NetworkPolicy") {
            ensure!(
                policy["spec"]["policyTypes"] == json!(["Ingress"]),
                "{policy}"
            );
        }
        ensure!(self.policies_for(JOB)?.is_empty());
        Ok(())
    }
}

// === impl Peer ===

impl Peer {
    fn is(&self, peer: &Value) -> bool {
        let Some(labels) = &self.pod else {
            return false;
        };
        let here = match peer.get("namespaceSelector") {
            Some(selector) => matches(
                selector,
                &json!({"kubernetes.io/metadata.name": self.namespace}),
            ),
            None => self.namespace == "elasti",
        };
        here && peer
            .get("podSelector")
            .is_none_or(|selector| matches(selector, labels))
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.pod {
            Some(labels) => write!(f, "{labels} in {}", self.namespace),
            None => f.write_str("a node"),
        }
    }
}

fn holds(range: &Value, port: u16) -> bool {
    let first = range["port"].as_u64();
    let last = range.get("endPort").map_or(first, Value::as_u64);
    (first..=last).contains(&Some(port.into()))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
