use super::{Gate, PATIENCE, ROUTED_PORTS};
use crate::{Place, Running, built, exchange};
use anyhow::{Context, Result, ensure};
use elasti_api::wire::INCOMING_REQUEST_PATH;
use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode, body::Bytes};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs::File,
    path::PathBuf,
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};
use tokio::time;

/// How an operator is started.
#[derive(Clone)]
pub struct Setting {
    flags: BTreeMap<&'static str, String>,
    variables: BTreeMap<&'static str, String>,
    port: Option<u16>,
    kubeconfig: Option<PathBuf>,
}

/// One that runs; killed when dropped.
pub struct Operator {
    process: Running,
    namespace: String,
    port: u16,
}

// === impl Setting ===

impl Default for Setting {
    fn default() -> Self {
        Self::bare()
            .flag("identity", "first")
            .flag("polling-interval", "1s")
            .flag("settle", "1s")
            .flag("resolver-ports", ROUTED_PORTS)
            .flag("log-level", "info")
    }
}

impl Setting {
    /// Nothing but where it is.
    pub fn bare() -> Self {
        let setting = Self {
            flags: BTreeMap::new(),
            variables: BTreeMap::new(),
            port: None,
            kubeconfig: None,
        };
        setting
            .flag("metrics-bind-address", "0")
            .flag("health-probe-bind-address", "0")
    }

    pub fn variable(mut self, name: &'static str, value: impl ToString) -> Self {
        self.variables.insert(name, value.to_string());
        self
    }

    pub fn flag(mut self, name: &'static str, value: impl ToString) -> Self {
        self.flags.insert(name, value.to_string());
        self
    }

    /// One of several, which agree on a leader within seconds.
    pub fn candidate(self, identity: &str) -> Self {
        self.flag("identity", identity)
            .flag("leader-elect-lease-duration", "4s")
            .flag("leader-elect-renew-deadline", "2s")
            .flag("leader-elect-retry-period", "500ms")
    }

    /// Where resolvers know it to be.
    pub fn at(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    pub fn through(self, gate: &Gate) -> Self {
        self.kubeconfig(gate.kubeconfig())
    }

    pub fn kubeconfig(mut self, path: PathBuf) -> Self {
        self.kubeconfig = Some(path);
        self
    }
}

// === impl Operator ===

impl Operator {
    /// It may take a while to be ready.
    pub fn start(place: &Place, setting: Setting) -> Result<Self> {
        let namespace = place.namespace.name().to_owned();
        let port = setting.port.unwrap_or_else(free_port);
        let log = File::options()
            .append(true)
            .create(true)
            .open(place.folder().join(format!("operator-{port}.log")))?;
        let mut flags = setting.flags;
        flags
            .entry("watch-namespace")
            .or_insert_with(|| namespace.clone());
        let binary = built("elasti-operator")?.display().to_string();
        let mut command = place.cluster.command(&binary)?;
        command
            .args(
                flags
                    .iter()
                    .map(|(name, value)| format!("--{name}={value}")),
            )
            .env("ELASTI_OPERATOR_NAMESPACE", &namespace)
            .env("ELASTI_RESOLVER_NAMESPACE", &namespace)
            .env("ELASTI_OPERATOR_PORT", port.to_string())
            .envs(setting.variables)
            .stdout(log.try_clone()?)
            .stderr(log);
        if let Some(path) = setting.kubeconfig {
            command.env("KUBECONFIG", path);
        }
        Ok(Self {
            process: Running::start(&mut command)?,
            namespace,
            port,
        })
    }

    /// Polls: a process has no event for it.
    pub async fn ready(&mut self) -> Result<()> {
        let ready = async {
            while !self.says_ready().await {
                ensure!(self.process.is_alive()?, "the operator has ended");
                time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        time::timeout(PATIENCE, ready)
            .await
            .context("waiting for the operator to be ready")?
    }

    async fn says_ready(&self) -> bool {
        let answer = self.get("/readyz").await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn process(&self) -> &Running {
        &self.process
    }

    /// Asks it to end, and waits until it has.
    pub fn end(self) -> Result<()> {
        self.process.end()
    }

    /// As a resolver does for requests that wait.
    pub async fn knock(&self, service: &str) -> Result<()> {
        let knock = json!({"count": 1, "svc": service, "namespace": self.namespace});
        let answer = self
            .send(Method::POST, INCOMING_REQUEST_PATH, &[], knock.to_string())
            .await?;
        ensure!(
            answer.status() == StatusCode::OK,
            "a knock is answered with {}",
            answer.status()
        );
        Ok(())
    }

    pub async fn get(&self, path: &str) -> Result<Response<String>> {
        self.send(Method::GET, path, &[], "").await
    }

    /// Asks until the answer is like this: what the API server has told a test may still be on its
    /// way to the operator.
    pub async fn until(
        &self,
        path: &str,
        what: &str,
        is_so: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let asking = async {
            loop {
                let answer = self.get(path).await?;
                if is_so(answer.body()) {
                    return Ok(answer.into_body());
                }
                time::sleep(Duration::from_millis(20)).await;
            }
        };
        time::timeout(PATIENCE, asking)
            .await
            .with_context(|| format!("waiting for {path} to say {what}"))?
    }

    pub async fn metrics(&self) -> Result<String> {
        Ok(self.get("/metrics").await?.into_body())
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Response<String>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://127.0.0.1:{}{path}", self.port));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        exchange(request.body(Full::new(body.into()))?).await
    }
}

/// The sum of a metric's samples that carry these labels, if there are any.
pub fn metric(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let carries = |line: &str| {
        labels
            .iter()
            .all(|(key, value)| line.contains(&format!("{key}=\"{value}\"")))
    };
    let is_named = |line: &str| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
    };
    text.lines()
        .filter(|line| is_named(line) && carries(line))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .reduce(|sum, value| sum + value)
}

/// Far from those of the cluster's own components, and below those that outgoing connections get.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(18_100);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_are_added_up_by_name_and_labels() {
        let text =
            "# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4\na_total{x=\"1\"} 9\nb 5\n";
        assert_eq!(metric(text, "a", &[]), Some(7.0));
        assert_eq!(metric(text, "a", &[("x", "1")]), Some(3.0));
        assert_eq!(metric(text, "b", &[]), Some(5.0));
        assert_eq!(metric(text, "a", &[("x", "3")]), None);
    }
}
