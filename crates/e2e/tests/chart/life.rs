use crate::{CHART, release::Release};
use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_e2e::{
    LONGEST, fetch,
    stage::{PATIENCE, Stage, gated, workload},
    test_alone,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{ResourceExt, api::ListParams};
use serde_json::json;
use std::{net::SocketAddr, time::Duration};
use tokio::time::{sleep, timeout};

#[test]
#[ignore = "needs a local cluster: make chart"]
fn it_comes_changes_and_goes_without_losing_a_request() -> Result<()> {
    test_alone("chart", LONGEST, async |place| {
        let release = Release::install(place, &[]).await?;
        let stage = Stage::empty(place).await?;
        stage.sleeping().await?;
        let web = stage.reach("web", 80).await?;
        ask(web).await?;
        let slow = slow(&stage).await?;

        let changed = [
            "--reuse-values",
            "--set=elastiController.manager.env.pollingInterval=20s",
            "--set=elastiResolver.proxy.env.queueSize=9999",
        ];
        let play = async {
            stage.target("slow").await?;
            release
                .run("upgrade", &[&[CHART], &changed[..]].concat())
                .await?;
            stage.open("slow").await?;
            stage.reaches_as("slow", Phase::Awake, Mode::Serve).await?;
            release.run("rollback", &["1"]).await
        };
        let waits = async {
            ask(slow).await.context("held by a resolver that ended")?;
            keep_asking(slow).await
        };
        tokio::select! {
            done = play => done?,
            lost = keep_asking(web) => lost?,
            lost = waits => lost?,
        }

        let idle = idle(&stage).await?;
        release.leaves_nothing().await?;
        ask(idle).await.context("left asleep")?;
        let slices = stage.api::<EndpointSlice>().list(&ours()).await?.items;
        ensure!(slices.is_empty(), "{slices:?} are left");
        for name in ["web", "slow", "idle"] {
            let left = stage.api::<ElastiService>().get(name).await?;
            ensure!(left.finalizers().is_empty(), "{left:?}");
            stage.delete::<ElastiService>(name).await?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs a local cluster: make chart"]
fn an_uninstall_ends_though_a_target_cannot_come_up() -> Result<()> {
    test_alone("chart-uninstall", LONGEST, async |place| {
        let release = Release::install(place, &[]).await?;
        let stage = Stage::empty(place).await?;
        slow(&stage).await?;
        release.leaves_nothing().await?;
        let left = stage.api::<ElastiService>().get("slow").await?;
        ensure!(left.finalizers().is_empty(), "{left:?}");
        stage.target("slow").await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a local cluster: make chart"]
fn in_some_namespaces_its_roles_are_all_that_it_needs() -> Result<()> {
    test_alone("chart-namespaces", LONGEST, async |place| {
        let allowed = format!(
            "--set=global.allowedNamespaces={{{}}}",
            place.namespace.name()
        );
        // With what else the API server has to take.
        let all = [
            &*allowed,
            "--set=networkPolicies.enabled=true,elastiResolver.autoscaling.enabled=true",
            "--set=elastiController.manager.args={--leader-elect,--metrics-bind-address=0}",
        ];
        let release = Release::install(place, &all).await?;
        let stage = Stage::empty(place).await?;
        let elsewhere = place.beside("elsewhere").await?;
        let there = stage.at(&elsewhere);
        there.deploy("Deployment", 0).await?;
        there.declare(json!({})).await?;
        stage.sleeping().await?;
        ask(stage.reach("web", 80).await?).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        let untouched = there.api::<ElastiService>().get("web").await?;
        ensure!(untouched.status.is_none(), "{untouched:?} is left alone");
        let metrics = "/api/v1/namespaces/elasti/services/elasti-operator-controller-manager-metrics-service:8080/proxy/metrics";
        let metrics = place.kubectl_text(&["get", "--raw", metrics])?;
        ensure!(metrics.contains("elasti_operator_mode"), "{metrics}");
        stage.delete::<ElastiService>("web").await?;
        elsewhere.leave().await?;
        release.leaves_nothing().await
    })
}

/// `slow`, asleep; its pod is not ready until it is opened.
async fn slow(stage: &Stage<'_>) -> Result<SocketAddr> {
    let slow = gated("slow", 0, &stage.image);
    stage.asleep_as("slow", slow, json!({})).await
}

/// `idle`, asleep.
async fn idle(stage: &Stage<'_>) -> Result<SocketAddr> {
    let idle = workload("idle", "Deployment", 0, &stage.image);
    stage.asleep_as("idle", idle, json!({})).await
}

/// Slices that point at resolvers.
fn ours() -> ListParams {
    ListParams::default().labels("endpointslice.kubernetes.io/managed-by=elasti-operator")
}

async fn ask(address: SocketAddr) -> Result<()> {
    let answer = timeout(2 * PATIENCE, fetch(&format!("http://{address}/hello"))).await;
    let answer = answer.context("no answer")??;
    ensure!(answer == "GET /hello\n", "{answer}");
    Ok(())
}

async fn keep_asking(address: SocketAddr) -> Result<()> {
    loop {
        ask(address).await?;
        sleep(Duration::from_millis(20)).await;
    }
}
