//! The pods of one application, by its label.

use anyhow::{Context, Result};
use elasti_api::{Mode, Phase};
use elasti_e2e::stage::{PATIENCE, Stage};
use futures::{Stream, StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, watcher},
};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// In which a data plane forgets a pod that is no more; until then it leads there, and a connection is lost.
const NEWS: Duration = Duration::from_secs(2);

/// What a pod that does not end shows, as soon as it shows it.
pub(crate) async fn first<T>(
    stage: &Stage<'_>,
    name: &str,
    show: impl Fn(&Pod) -> Option<T>,
) -> Result<T> {
    let seen = living(stage, name).try_filter_map(async |pod| Ok(show(&pod)));
    pin_mut!(seen);
    let first = timeout(PATIENCE, seen.next()).await;
    let first = first.with_context(|| format!("waiting for a pod of {name}"))?;
    Ok(first.context("the watch ended")??)
}

fn living(stage: &Stage<'_>, name: &str) -> impl Stream<Item = watcher::Result<Pod>> + use<> {
    let of_it = watcher::Config::default().labels(&format!("of={name}"));
    watcher(stage.api::<Pod>(), of_it)
        .applied_objects()
        .try_filter(|pod| std::future::ready(pod.metadata.deletion_timestamp.is_none()))
}

pub(crate) fn is_ready(pod: &Pod) -> Option<()> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = |is: &&_| is_true(is, "Ready");
    conditions.iter().find(ready).map(|_| ())
}

fn is_true(condition: &k8s_openapi::api::core::v1::PodCondition, kind: &str) -> bool {
    condition.type_ == kind && condition.status == "True"
}

pub(crate) fn address(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone()
}

/// Back at zero, and nobody leads to what it had before: one that ends may still answer.
pub(crate) async fn put_back(stage: &Stage<'_>, name: &str) -> Result<()> {
    stage.reaches_as(name, Phase::Awake, Mode::Serve).await?;
    let of_it = ListParams::default().labels(&format!("of={name}"));
    let pods = stage.api::<Pod>().list(&of_it).await?;
    stage.scale(name, 0).await?;
    for pod in pods {
        let uid = pod.uid().context("it has a uid")?;
        stage.gone::<Pod>(&pod.name_any(), &uid).await?;
    }
    stage.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
    sleep(NEWS).await;
    Ok(())
}
