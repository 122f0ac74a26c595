//! The resolver as a process.

use crate::{
    operator,
    process::{Core, command},
    stage::Stage,
};
use anyhow::{Context, Result};
use elasti_e2e::{Memory, Running, Usage, fetch};
use std::{fs, net::SocketAddr, time::Duration};
use tokio::time::{self, Instant};

const PROXY_PORT: &str = "18012";
const PORT: u16 = 18_013;
/// Nothing tells when it listens but its answer.
const LOOK: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Resolver {
    running: Running,
    /// From its start to its readiness.
    pub(crate) took: Duration,
}

// === impl Resolver ===

impl Resolver {
    pub(crate) async fn start(stage: &Stage<'_>, core: Core) -> Result<Self> {
        let namespace = stage.namespace();
        let mut command = command(stage.cluster, &stage.resolver.display().to_string(), core)?;
        command
            .args(["--proxy-port", PROXY_PORT])
            .args(["--port", &PORT.to_string()])
            .args(["--watch-namespace", namespace])
            .args(["--operator-namespace", namespace])
            .args(["--operator-service", operator::SERVICE])
            .args(["--operator-port", &operator::PORT.to_string()])
            .arg("--log-level=error");
        let started = Instant::now();
        let running = Running::start(&mut command)?;
        let ready = async {
            while internal("readyz").await.is_err() {
                time::sleep(LOOK).await;
            }
        };
        time::timeout(PATIENCE, ready)
            .await
            .context("waiting for the resolver to be ready")?;
        Ok(Self {
            running,
            took: started.elapsed(),
        })
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        self.usage().memory()
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.running.id())
    }

    /// Until so many are held.
    pub(crate) async fn holds(&self, count: usize) -> Result<()> {
        let held = async {
            while self.held().await? < count {
                time::sleep(LOOK * 50).await;
            }
            anyhow::Ok(())
        };
        match time::timeout(PATIENCE, held).await {
            Ok(held) => held,
            Err(late) => Err(late).with_context(|| format!("waiting for {count} to be held")),
        }
    }

    async fn held(&self) -> Result<usize> {
        let metrics = internal("metrics").await?;
        let lines = metrics.lines();
        let counts = lines.filter(|line| line.starts_with("elasti_resolver_queued_count{"));
        let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok());
        Ok(counts.sum())
    }
}

async fn internal(path: &str) -> Result<String> {
    let address = SocketAddr::from(([127, 0, 0, 1], PORT));
    fetch(&format!("http://{address}/{path}")).await
}

/// In bytes.
pub(crate) fn size(stage: &Stage<'_>) -> Result<u64> {
    Ok(fs::metadata(&stage.resolver)?.len())
}
