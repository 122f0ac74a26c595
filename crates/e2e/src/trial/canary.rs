use crate::{
    fetch,
    stage::{Stage, metric, service, workload},
};
use anyhow::{Context, Result};
use k8s_openapi::api::{core::v1::Pod, discovery::v1::EndpointSlice};
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use std::{cell::Cell, time::Duration};
use tokio::time::sleep;

const NAME: &str = "canary";
const LOOK: Duration = Duration::from_millis(200);

/// A pod that joins a service and leaves it, to see whether anybody notices. Those who lost their API server listen
/// again within half a minute each, and until then do as they always did.
pub(super) struct Canary<'a> {
    stage: &'a Stage<'a>,
    sings: Cell<bool>,
}

// === impl Canary ===

impl<'a> Canary<'a> {
    pub(super) async fn new(stage: &'a Stage<'a>) -> Result<Self> {
        let pod = workload(NAME, "Deployment", 1, &stage.image);
        stage.place.put(pod).await?;
        let ports = json!([{"port": 80, "targetPort": 8080}]);
        let mut own = service(NAME, NAME, &ports);
        own["spec"]["selector"] = json!({"sings": "true"});
        stage.place.put(own).await?;
        stage.has_ready(NAME, 1).await?;
        let sings = Cell::new(false);
        Ok(Self { stage, sings })
    }

    /// Resolves when both the controllers and the data plane have noticed.
    pub(super) async fn is_heard(&self) {
        let heard = changes().await;
        self.sings.set(!self.sings.get());
        while self.sing().await.is_err() || !self.is_listed().await || changes().await == heard {
            sleep(LOOK).await;
        }
    }

    async fn sing(&self) -> Result<()> {
        let pods = self.stage.api::<Pod>();
        let of_it = ListParams::default().labels("of=canary");
        let pod = pods.list(&of_it).await?.items.pop();
        let pod = pod.context("it is there")?.name_any();
        let song = json!({"metadata": {"labels": {"sings": self.sings.get().to_string()}}});
        pods.patch(&pod, &PatchParams::default(), &Patch::Merge(song))
            .await?;
        Ok(())
    }

    async fn is_listed(&self) -> bool {
        let slices = self.stage.api::<EndpointSlice>();
        let own = ListParams::default().labels("kubernetes.io/service-name=canary");
        let Ok(slices) = slices.list(&own).await else {
            return false;
        };
        let listed = slices.iter().any(|slice| !slice.endpoints.is_empty());
        listed == self.sings.get()
    }
}

/// How many changes of endpoints kube-proxy has heard of since it runs.
async fn changes() -> Option<f64> {
    let metrics = fetch("http://127.0.0.1:10249/metrics").await.ok()?;
    metric(
        &metrics,
        "kubeproxy_sync_proxy_rules_endpoint_changes_total",
        &[],
    )
}
