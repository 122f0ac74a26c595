//! Waiting for what a watch tells.

use super::{Known, PATIENCE, Stage};
use anyhow::{Context, Result};
use elasti_api::{ElastiService, ElastiServiceStatus, Mode, Phase};
use k8s_openapi::{api::apps::v1::Deployment, apimachinery::pkg::apis::meta::v1::Condition};
use kube::runtime::{conditions::is_deleted, wait::await_condition};
use tokio::time;

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

    /// Waits until it is gone, or another is there in its place.
    pub async fn gone<K: Known>(&self, name: &str, uid: &str) -> Result<()> {
        let gone = await_condition(self.api::<K>(), name, is_deleted(uid));
        time::timeout(PATIENCE, gone)
            .await
            .with_context(|| format!("waiting for the end of {name}"))??;
        Ok(())
    }
}
