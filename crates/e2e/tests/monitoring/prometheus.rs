//! A real Prometheus that scrapes what ServiceMonitors mean, as the Prometheus operator would have it.

use anyhow::{Context, Result, ensure};
use elasti_e2e::{
    Place, Running, fetch, own_address,
    stage::{PATIENCE, free_port},
};
use futures::future::try_join_all;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path, time::Duration};
use tokio::time::{sleep, timeout};

pub struct Prometheus {
    /// Pods reach it there, too.
    address: SocketAddr,
    _process: Running,
}

/// Prometheus has no event for what it has learnt.
const LOOK: Duration = Duration::from_millis(200);
/// Of operator and resolver, each.
const PODS: usize = 2;

// === impl Prometheus ===

impl Prometheus {
    pub async fn start(place: &Place, monitors: &[&Value], rules: &Path) -> Result<Self> {
        let port = free_port();
        let folder = place.folder().join(format!("prometheus-{port}"));
        fs::create_dir_all(&folder)?;
        let jobs = monitors.iter().map(|monitor| job(&place.client, monitor));
        let jobs = try_join_all(jobs).await?;
        let config = json!({
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": jobs,
        });
        let path = folder.join("prometheus.yml");
        fs::write(&path, config.to_string())?;
        let mut command = place.cluster.command("prometheus")?;
        command
            .arg(format!("--config.file={}", path.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address=0.0.0.0:{port}"))
            .arg("--log.level=error");
        Ok(Self {
            address: SocketAddr::new(own_address()?, port),
            _process: Running::start(&mut command)?,
        })
    }

    /// It says that nothing happens.
    pub fn triggers(&self) -> Value {
        json!([{"type": "prometheus", "metadata": {
            "serverAddress": format!("http://{}", self.address),
            "query": "vector(0)",
            "threshold": 1,
            "healthCheck": false,
        }}])
    }

    /// Waits until each of the queries was answered with a number at least once.
    pub async fn answers_all(&self, mut queries: Vec<String>) -> Result<()> {
        let asking = async {
            while !queries.is_empty() {
                let mut unanswered = Vec::new();
                for query in queries.drain(..) {
                    if !self.has_data(&query).await? {
                        unanswered.push(query);
                    }
                }
                queries = unanswered;
                sleep(LOOK).await;
            }
            Ok(())
        };
        let answered = timeout(3 * PATIENCE, asking).await;
        answered.unwrap_or_else(|_| Err(anyhow::anyhow!("without data: {queries:#?}")))
    }

    async fn has_data(&self, query: &str) -> Result<bool> {
        let answer = self.get(&format!("query?query={}", encoded(query))).await;
        let answer = answer.with_context(|| format!("asking {query}"))?;
        let series = answer["result"].as_array().context("it is a vector")?;
        Ok(series.iter().any(|series| series["value"][1] != "NaN"))
    }

    /// Waits until these alerts, and no others, are known, all can be judged, and all are in this state.
    pub async fn all_are(&self, names: &[&str], state: &str) -> Result<()> {
        let expected = names
            .iter()
            .map(|name| ((*name).to_owned(), state.to_owned()));
        let expected: BTreeMap<_, _> = expected.collect();
        let what = format!("{state}: {names:?}");
        self.until(&what, |states| *states == expected).await
    }

    pub async fn is(&self, name: &str, state: &str) -> Result<()> {
        let what = format!("{state}: {name}");
        let is_so = |states: &BTreeMap<String, String>| states[name] == state;
        self.until(&what, is_so).await
    }

    async fn until(
        &self,
        what: &str,
        is_so: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Result<()> {
        let mut last = BTreeMap::new();
        let looking = async {
            loop {
                // It may be starting.
                if let Ok(answer) = self.get("rules?type=alert").await {
                    last = states(&answer)?;
                    if is_so(&last) {
                        return Ok(());
                    }
                }
                sleep(LOOK).await;
            }
        };
        let found = timeout(PATIENCE, looking).await;
        found.unwrap_or_else(|_| Err(anyhow::anyhow!("waited for {what}, and saw {last:#?}")))
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let text = fetch(&format!("http://{}/api/v1/{path}", self.address)).await?;
        let mut answer: Value = serde_json::from_str(&text)?;
        Ok(answer["data"].take())
    }
}

/// `unknown` until it was judged once; what cannot be judged is an error.
fn states(answer: &Value) -> Result<BTreeMap<String, String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut states = BTreeMap::new();
    for rule in crate::alerts(answer) {
        ensure!(rule["health"] != "err", "{rule}");
        let state = if rule["health"] == "ok" {
            &rule["state"]
        } else {
            &rule["health"]
        };
        states.insert(text(&rule["name"]), text(state));
    }
    Ok(states)
}

async fn job(client: &Client, monitor: &Value) -> Result<Value> {
    let endpoint = &monitor["spec"]["endpoints"][0];
    let finding = async {
        loop {
            let targets = targets(client, monitor).await?;
            if targets.len() == PODS {
                return Ok::<_, anyhow::Error>(targets);
            }
            sleep(LOOK).await;
        }
    };
    let targets = timeout(PATIENCE, finding).await;
    Ok(json!({
        "job_name": monitor["metadata"]["name"],
        "metrics_path": endpoint["path"],
        "honor_labels": endpoint["honorLabels"],
        "static_configs": targets.with_context(|| format!("it means {PODS} pods: {monitor}"))??,
    }))
}

/// What a ServiceMonitor means: Debian's Prometheus knows no Kubernetes. One address of each pod, with the labels that the
/// Prometheus operator gives it.
async fn targets(client: &Client, monitor: &Value) -> Result<Vec<Value>> {
    let namespace = monitor["metadata"]["namespace"].as_str();
    let namespace = namespace.context("it has a namespace")?;
    let labels = monitor["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.context("it selects by labels")?.iter();
    let labels: Vec<String> = labels
        .filter_map(|(label, value)| Some(format!("{label}={}", value.as_str()?)))
        .collect();
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let meant = ListParams::default().labels(&labels.join(","));
    let mut targets = Vec::new();
    for service in services.list(&meant).await? {
        let service = service.name_any();
        let of_it = format!("kubernetes.io/service-name={service}");
        for slice in slices.list(&ListParams::default().labels(&of_it)).await? {
            let mut ports = slice.ports.iter().flatten();
            let wanted = &monitor["spec"]["endpoints"][0]["port"];
            let port = ports.find(|port| port.name.as_deref() == wanted.as_str());
            let Some(port) = port.and_then(|port| port.port) else {
                continue;
            };
            let endpoints = slice
                .endpoints
                .iter()
                .filter(|_| slice.address_type == "IPv4");
            targets.extend(endpoints.map(|endpoint| {
                let pod = endpoint.target_ref.as_ref().and_then(|pod| pod.name.as_ref());
                json!({
                    "targets": [format!("{}:{port}", endpoint.addresses[0])],
                    "labels": {"namespace": namespace, "service": service, "job": service, "pod": pod},
                })
            }));
        }
    }
    Ok(targets)
}

fn encoded(text: &str) -> String {
    let encoded = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).into(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}
