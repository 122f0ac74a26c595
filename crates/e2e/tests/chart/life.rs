use crate::{
    release::Release,
    traffic::{ask, crowd},
};
use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_e2e::{
    LONGEST, Place,
    stage::{Stage, gated, workload},
    test_alone,
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, ResourceExt};
use serde_json::json;
use std::net::SocketAddr;

#[test]
#[ignore = "needs a local cluster: make chart"]
fn it_is_upgraded_and_rolled_back_without_losing_a_request() -> Result<()> {
    test_alone("chart", 2 * LONGEST, async |place| {
        let release = Release::install(place, &[]).await?;
        ensure!(resolvers(place).await? == 2, "as few as may be");
        let stage = Stage::empty(place).await?;
        stage.sleeping().await?;
        let web = stage.reach("web", 80).await?;
        ask(web).await?;
        let [slow, slower] = [slow(&stage, "slow").await?, slow(&stage, "slower").await?];

        // As the autoscaler would.
        let more = ["scale", "--replicas=3", "deployment/elasti-resolver"];
        place.kubectl_text(&[&["--namespace=elasti"], &more[..]].concat())?;
        let upgrade = async {
            let changed = [
                "--set=elastiController.manager.env.pollingInterval=20s",
                "--set=elastiResolver.proxy.env.queueSize=9999",
            ];
            release.upgrade(&changed).await?;
            ensure!(resolvers(place).await? == 3, "an upgrade ends none");
            stage.open("slow").await?;
            Ok(())
        };
        crowd(web, crowd(slow, upgrade)).await?;
        stage.reaches_as("slow", Phase::Awake, Mode::Serve).await?;
        let rollback = async {
            release.run("rollback", &["1"]).await?;
            stage.open("slower").await?;
            Ok(())
        };
        crowd(web, crowd(slow, crowd(slower, rollback))).await
    })
}

#[test]
#[ignore = "needs a local cluster: make chart"]
fn in_some_namespaces_its_roles_are_all_that_it_needs() -> Result<()> {
    test_alone("chart-namespaces", 2 * LONGEST, async |place| {
        let doomed = place.beside("doomed").await?;
        let elsewhere = place.beside("elsewhere").await?;
        // With what else the API server has to take.
        let all = [
            &*allowed(&[place, &doomed]),
            "--set=networkPolicies.enabled=true,elastiResolver.autoscaling.enabled=true",
            "--set=elastiController.manager.args={--leader-elect,--metrics-bind-address=0}",
            // There is no such Secret.
            "--set=elastiController.manager.sentry.enabled=true,elastiResolver.proxy.sentry.enabled=true",
        ];
        let release = Release::install(place, &all).await?;
        let stage = Stage::empty(place).await?;
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

        let second = [&*allowed(&[&elsewhere]), "--set=crds.enabled=false"];
        let second = release.beside("second", &second).await?;
        there.reaches(Phase::Asleep, Mode::Proxy).await?;
        let left = second.uninstall().await?;
        ensure!(left.is_empty(), "{left} is left");
        there.has_ready("web", 1).await?;

        doomed.leave().await?;
        let idle = idle(&stage).await?;
        release.leaves_nothing().await?;
        ask(idle).await.context("left asleep")?;
        let left = stage.api::<ElastiService>().get("idle").await?;
        ensure!(left.finalizers().is_empty(), "{left:?}");
        elsewhere.leave().await
    })
}

fn allowed(places: &[&Place]) -> String {
    let names: Vec<&str> = places.iter().map(|place| place.namespace.name()).collect();
    format!("--set=global.allowedNamespaces={{{}}}", names.join(","))
}

/// Asleep; its pod is not ready until it is opened.
pub async fn slow(stage: &Stage<'_>, name: &str) -> Result<SocketAddr> {
    let slow = gated(name, 0, &stage.image);
    stage.asleep_as(name, slow, json!({})).await
}

/// `idle`, asleep.
pub async fn idle(stage: &Stage<'_>) -> Result<SocketAddr> {
    let idle = workload("idle", "Deployment", 0, &stage.image);
    stage.asleep_as("idle", idle, json!({})).await
}

/// How many there are to be.
pub async fn resolvers(place: &Place) -> Result<i32> {
    let deployments: Api<Deployment> = Api::namespaced(place.client.clone(), "elasti");
    let spec = deployments.get("elasti-resolver").await?.spec;
    let replicas = spec.and_then(|spec| spec.replicas);
    replicas.context("it says how many")
}
