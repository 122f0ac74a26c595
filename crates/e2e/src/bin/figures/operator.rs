//! The operator as a process, and what the kernel says of it.

use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use elasti_api::wire::{INCOMING_REQUEST_PATH, IncomingRequest};
use elasti_e2e::{Memory, Usage, exchange, fetch};
use http_body_util::Full;
use hyper::Request;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{process::Child, time::Duration};
use tokio::time::{self, Instant};

const PORT: &str = "18090";
const ADDRESS: &str = "http://127.0.0.1:18090";
const LOOK: Duration = Duration::from_millis(100);
/// So long without work means that there is none left.
const CALM: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Operator {
    process: Child,
    pub(crate) started: Instant,
}

// === impl Operator ===

impl Operator {
    pub(crate) fn start(stage: &Stage<'_>) -> Result<Self> {
        let (namespace, ports) = (stage.namespace(), &stage.resolver.ports);
        let mut command = stage
            .cluster
            .command(&stage.operator.display().to_string())?;
        command
            .args(["--namespace", namespace])
            .args(["--watch-namespace", namespace])
            .args(["--resolver-namespace", namespace])
            .arg(format!("--routing={}", stage.routing))
            .arg(format!(
                "--resolver-ports={}-{}",
                ports.start(),
                ports.end()
            ))
            .args(["--port", PORT])
            .args(["--metrics-bind-address=0", "--health-probe-bind-address=0"])
            .arg("--log-level=warn");
        if let Some(kubeconfig) = &stage.kubeconfig {
            command.env("KUBECONFIG", kubeconfig.path());
        }
        let started = Instant::now();
        Ok(Self {
            process: command.spawn().context("starting the operator")?,
            started,
        })
    }

    /// As a rollout would: it gives its lease back, so the next one leads at once.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let pid = Pid::from_raw(self.process.id().try_into()?);
        kill(pid, Signal::SIGTERM)?;
        let ended = async {
            while self.process.try_wait()?.is_none() {
                time::sleep(LOOK).await;
            }
            anyhow::Ok(())
        };
        time::timeout(Duration::from_secs(30), ended)
            .await
            .context("waiting for the operator to end")?
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        self.usage().memory()
    }

    /// Seconds of a core that it has used so far.
    pub(crate) fn cpu(&self) -> Result<f64> {
        self.usage().cpu()
    }

    fn usage(&self) -> Usage {
        Usage::of(self.process.id())
    }

    /// When it had reconciled that many ElastiServices and went to rest. Where nothing is to be
    /// written, no object tells; so its own metrics are asked, once it rests, and not before: they are
    /// megabytes.
    pub(crate) async fn settles(&self, services: usize) -> Result<Instant> {
        let settles = async {
            loop {
                let rested = self.rests().await?;
                if self.proxied().await? >= services {
                    return anyhow::Ok(rested);
                }
            }
        };
        time::timeout(PATIENCE, settles)
            .await
            .context("waiting for the operator to settle")?
    }

    /// Since when it has used less than a fifth of a core.
    async fn rests(&self) -> Result<Instant> {
        let (mut since, mut before) = (Instant::now(), self.cpu()?);
        while since.elapsed() < CALM {
            time::sleep(LOOK).await;
            let now = self.cpu()?;
            if now - before > LOOK.as_secs_f64() / 5.0 {
                since = Instant::now();
            }
            before = now;
        }
        Ok(since)
    }

    async fn proxied(&self) -> Result<usize> {
        let metrics = fetch(&format!("{ADDRESS}/metrics")).await?;
        let is_proxied =
            |line: &&str| line.starts_with("elasti_operator_mode{") && line.ends_with(" 1");
        Ok(metrics.lines().filter(is_proxied).count())
    }

    /// One connection for each, as if every knock came from another resolver.
    pub(crate) async fn knock(&self, namespace: &str, service: &str) -> Result<()> {
        let knock = IncomingRequest {
            count: 1,
            svc: service.into(),
            namespace: namespace.into(),
        };
        let request = Request::post(format!("{ADDRESS}{INCOMING_REQUEST_PATH}"))
            .body(Full::from(serde_json::to_vec(&knock)?))?;
        let answer = exchange(request).await?;
        ensure!(
            answer.status().is_success(),
            "a knock was answered with {}: {}",
            answer.status(),
            answer.body()
        );
        Ok(())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
