//! Waiting for what a watch tells.

use super::{Known, PATIENCE, Stage};
use anyhow::{Context, Result};
use elasti_api::{ElastiService, ElastiServiceStatus, Mode, Phase, names};
use futures::{StreamExt, pin_mut};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Pod, Service},
        discovery::v1::{Endpoint, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, conditions::is_deleted, wait::await_condition, watcher},
};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    net::TcpStream,
    time::{self, Instant},
};

// === impl Stage ===

impl Stage<'_> {
    /// Waits until the object is there and like this, and gives it as it was at that moment.
    pub async fn until<K: Known>(
        &self,
        name: &str,
        what: &str,
        is_so: impl Fn(&K) -> bool,
    ) -> Result<K> {
        let reached = await_condition(self.api::<K>(), name, |object: Option<&K>| {
            object.is_some_and(&is_so)
        });
        let object = time::timeout(PATIENCE, reached)
            .await
            .with_context(|| format!("waiting for {name}: {what}"))??;
        object.context("what was awaited is there")
    }

    pub async fn until_status(
        &self,
        name: &str,
        what: &str,
        is_so: impl Fn(&ElastiServiceStatus) -> bool,
    ) -> Result<ElastiServiceStatus> {
        let says = |object: &ElastiService| object.status.as_ref().is_some_and(&is_so);
        let object = self.until(name, what, says).await?;
        object.status.context("a status that was judged is there")
    }

    pub async fn reaches(&self, phase: Phase, mode: Mode) -> Result<()> {
        self.reaches_as("web", phase, mode).await
    }

    pub async fn reaches_as(&self, name: &str, phase: Phase, mode: Mode) -> Result<()> {
        let what = format!("{phase:?} in mode {mode:?}");
        let is_there =
            |status: &ElastiServiceStatus| (status.phase, status.mode) == (Some(phase), Some(mode));
        self.until_status(name, &what, is_there).await?;
        Ok(())
    }

    /// The condition, once it says this.
    pub async fn condition(
        &self,
        name: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> Result<Condition> {
        let says = |condition: &Condition| {
            (&*condition.type_, &*condition.status, &*condition.reason) == (kind, status, reason)
        };
        let what = format!("{kind}={status} ({reason})");
        let found = self
            .until_status(name, &what, |status| status.conditions.iter().any(says))
            .await?;
        let condition = found.conditions.into_iter().find(says);
        condition.context("what was awaited is there")
    }

    /// The deployment as it was when it first had so many.
    pub async fn scaled_to(&self, name: &str, replicas: i32) -> Result<Deployment> {
        let has = |deployment: &Deployment| {
            deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(replicas)
        };
        let what = format!("{replicas} replicas");
        self.until(name, &what, has).await
    }

    pub async fn has_ready(&self, name: &str, replicas: i32) -> Result<()> {
        let has = |deployment: &Deployment| {
            let status = deployment.status.as_ref();
            status.and_then(|status| status.ready_replicas) == Some(replicas)
        };
        let what = format!("{replicas} that are ready");
        self.until(name, &what, has).await?;
        Ok(())
    }

    /// Where clients reach a port of a service, once the data plane knows it: it follows the API
    /// server within a second or so.
    pub async fn reach(&self, service: &str, port: u16) -> Result<SocketAddr> {
        let service: Service = self.api().get(service).await?;
        let spec = service.spec.context("a service has a spec")?;
        let address = spec.cluster_ip.context("it has an address")?;
        let address = SocketAddr::new(address.parse()?, port);
        let known = async {
            while TcpStream::connect(address).await.is_err() {
                time::sleep(Duration::from_millis(50)).await;
            }
        };
        time::timeout(PATIENCE, known)
            .await
            .context("waiting for the data plane")?;
        Ok(address)
    }

    /// When Kubernetes calls the first endpoint of a target ready.
    pub async fn first_ready(&self, service: &str) -> Result<Instant> {
        let is_ready = |end: &Endpoint| {
            let conditions = end.conditions.as_ref();
            conditions.is_some_and(|conditions| conditions.ready == Some(true))
        };
        self.first_listed(service, is_ready).await
    }

    /// The same of any endpoint that is so.
    pub async fn first_listed(
        &self,
        service: &str,
        is_so: impl Fn(&Endpoint) -> bool,
    ) -> Result<Instant> {
        let private = names::private_service(service);
        let of_it = format!("kubernetes.io/service-name={private}");
        let slices = watcher(self.api(), watcher::Config::default().labels(&of_it));
        let slices = slices.default_backoff().applied_objects();
        pin_mut!(slices);
        loop {
            let slice: EndpointSlice = slices.next().await.context("the watch ended")??;
            if slice.endpoints.iter().any(&is_so) {
                return Ok(Instant::now());
            }
        }
    }

    /// Waits for the end of all pods like this: until then courteous ones answer.
    pub async fn pods_end(&self, labels: &str) -> Result<()> {
        let params = ListParams::default().labels(labels);
        for pod in self.api::<Pod>().list(&params).await? {
            let uid = pod.uid().context("what is stored has a uid")?;
            self.gone::<Pod>(&pod.name_any(), &uid).await?;
        }
        Ok(())
    }

    /// Waits until it is gone, or another is there in its place.
    pub async fn gone<K: Known>(&self, name: &str, uid: &str) -> Result<()> {
        let gone = await_condition(self.api::<K>(), name, is_deleted(uid));
        time::timeout(PATIENCE, gone)
            .await
            .with_context(|| format!("waiting for the end of {name}"))??;
        Ok(())
    }
}
