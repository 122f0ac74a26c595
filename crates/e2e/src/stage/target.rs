//! Pods of a target, spoken to directly.

use super::{PATIENCE, Stage, workload};
use crate::fetch;
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time;

/// A pod that runs, ready or not.
#[derive(Clone, Debug)]
pub struct Target {
    pub pod: String,
    pub address: String,
}

const GATE: &str = "e2e.elasti.local/open";
/// An application has no event for what it was asked.
const LOOK: Duration = Duration::from_millis(20);

/// A workload whose pods are ready only after [`Stage::open`].
pub fn gated(name: &str, replicas: i32, image: &str) -> Value {
    let mut workload = workload(name, "Deployment", replicas, image);
    workload["spec"]["template"]["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
    workload
}

// === impl Stage ===

impl Stage<'_> {
    /// Lets a pod of a gated workload be ready.
    pub async fn open(&self, name: &str) -> Result<Target> {
        self.set_gate(name, "True").await
    }

    /// Lets it be ready no more.
    pub async fn shut(&self, name: &str) -> Result<Target> {
        self.set_gate(name, "False").await
    }

    async fn set_gate(&self, name: &str, open: &str) -> Result<Target> {
        let target = self.target(name).await?;
        let open = json!({"status": {"conditions": [{"type": GATE, "status": open}]}});
        self.api::<Pod>()
            .patch_status(
                &target.pod,
                &PatchParams::default(),
                &Patch::Strategic(open),
            )
            .await?;
        Ok(target)
    }

    /// The first pod of a workload that runs, now or soon.
    pub async fn target(&self, name: &str) -> Result<Target> {
        let config = watcher::Config::default().labels(&format!("of={name}"));
        let pods = watcher(self.api::<Pod>(), config).applied_objects();
        pin_mut!(pods);
        let found = async {
            while let Some(pod) = pods.next().await {
                if let Some(target) = running(&pod?) {
                    return Ok(target);
                }
            }
            anyhow::bail!("the watch of the pods ended")
        };
        time::timeout(PATIENCE, found)
            .await
            .with_context(|| format!("waiting for a pod of {name} that runs"))?
    }
}

fn running(pod: &Pod) -> Option<Target> {
    let status = pod.status.as_ref()?;
    let address = status.pod_ip.clone()?;
    let containers = status.container_statuses.as_ref()?;
    let runs = containers.iter().all(|container| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    });
    (runs && pod.metadata.deletion_timestamp.is_none()).then(|| Target {
        pod: pod.name_any(),
        address,
    })
}

// === impl Target ===

impl Target {
    /// Waits until so many requests wait for [`release`](Self::release).
    pub async fn holds(&self, count: usize) -> Result<()> {
        let asking = async {
            // It may be starting again.
            while self.get("/held").await.ok() != Some(count.to_string()) {
                time::sleep(LOOK).await;
            }
        };
        time::timeout(PATIENCE, asking)
            .await
            .with_context(|| format!("waiting for {count} requests at {}", self.pod))
    }

    pub async fn release(&self) -> Result<()> {
        self.get("/release").await.map(drop)
    }

    /// Ends its process with all that it has begun.
    pub async fn dies(&self) -> Result<()> {
        let farewell = self.get("/exit").await;
        ensure!(farewell.is_err(), "it goes on: {farewell:?}");
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<String> {
        fetch(&format!("http://{}:8080{path}", self.address)).await
    }
}
