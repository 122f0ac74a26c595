//! From every phase to every other that others may bring about.

use anyhow::{Result, ensure};
use elasti_api::{ElastiService, Mode, Phase, names};
use elasti_e2e::stage::{Meter, Setting, Stage, gated};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use std::time::Duration;
use tokio::time::{self, Instant};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_somebody_else_scales_goes_the_same_way_in_both_directions() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.serve("web", gated("web", 0, &stage.image)).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage.scale("web", 1).await?;
        stage.reaches(Phase::Waking, Mode::Proxy).await?;
        stage.scale("web", 0).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage.pods_end("of=web").await?;
        stage.scale("web", 1).await?;
        stage.open("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.has_no_resolver_slice("web").await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_never_gets_ready_falls_asleep_a_minute_after_the_last_knock() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.serve("web", gated("web", 1, &stage.image)).await?;
        stage.declare(json!({"triggers": meter.triggers()})).await?;
        stage.reaches(Phase::Waking, Mode::Proxy).await?;
        stage
            .condition("web", "MaySleep", "False", "CoolingDown")
            .await?;
        time::sleep(Duration::from_secs(10)).await;
        let knocked = Instant::now();
        operator.knock("web").await?;
        // Longer than one wait may take.
        time::sleep(Duration::from_secs(50)).await;
        ensure!(stage.replicas("web").await? == 1, "somebody may wait");
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let quiet = knocked.elapsed();
        ensure!(quiet >= Duration::from_secs(60), "asleep after {quiet:?}");
        stage.pods_end("of=web").await?;
        ensure!(stage.replicas("web").await? == 0, "that knock is old");
        operator.knock("web").await?;
        stage.reaches(Phase::Waking, Mode::Proxy).await?;
        stage.open("web").await?;
        stage.sleep_no_more().await?;
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_pod_whose_address_is_published_too_early_ends_no_wake() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.serve("web", gated("web", 0, &stage.image)).await?;
        let early = json!({"spec": {"publishNotReadyAddresses": true}});
        stage.amend_object::<Service>("web", early).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        operator.knock("web").await?;
        stage.first_ready("web").await?;
        stage.target("web").await?;
        // As long as a target that is ready takes to be let go of, and longer.
        time::sleep(Duration::from_secs(5)).await;
        let status = stage.status("web").await?;
        let held = (status.phase, status.mode) == (Some(Phase::Waking), Some(Mode::Proxy));
        ensure!(held, "{status:?} though no pod is ready");
        stage.open("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn traffic_of_a_target_that_is_ready_no_more_is_held_until_it_is() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.serve("web", gated("web", 1, &stage.image)).await?;
        stage.open("web").await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.shut("web").await?;
        stage.reaches(Phase::Waking, Mode::Proxy).await?;
        ensure!(!stage.resolver_slices("web").await?.is_empty());
        stage.open("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn whatever_speaks_against_sleep_at_the_last_look_leaves_it_served() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let patient = Setting::default().flag("settle", "60s");
        let _operator = stage.operator_with(patient).await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        let generation = stage.generation("web").await?;
        let play = async {
            stage.declare(json!({"triggers": meter.triggers()})).await?;
            stage.reaches(Phase::FallingAsleep, Mode::Proxy).await?;

            stage.amend("web", json!({"paused": true})).await?;
            stage.reaches(Phase::Awake, Mode::Serve).await?;
            stage.has_no_resolver_slice("web").await?;
            stage.amend("web", json!({"paused": false})).await?;
            stage.reaches(Phase::FallingAsleep, Mode::Proxy).await?;

            meter.reads(5).await?;
            stage.reaches(Phase::Awake, Mode::Serve).await?;
            stage.has_no_resolver_slice("web").await?;
            meter.reads(0).await?;
            stage.reaches(Phase::FallingAsleep, Mode::Proxy).await?;

            stage.resolvers(0).await?;
            stage.reaches(Phase::Awake, Mode::Serve).await?;
            stage.has_no_resolver_slice("web").await
        };
        stage.witnessed(play).await?;
        ensure!(stage.generation("web").await? == generation);
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn one_that_is_deleted_on_its_way_leaves_the_world_as_it_was() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let patient = Setting::default().flag("settle", "8s");
        let operator = stage.operator_with(patient).await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        let idle = json!({"triggers": meter.triggers()});
        stage.declare(idle).await?;
        stage.reaches(Phase::FallingAsleep, Mode::Proxy).await?;
        is_deleted(&stage, "web").await?;
        ensure!(stage.replicas("web").await? == 1);

        let waking = gated("waking", 0, &stage.image);
        stage.serve("waking", waking).await?;
        let three = json!({"minTargetReplicas": 3});
        stage.declare_as("waking", three).await?;
        let asleep = stage.reaches_as("waking", Phase::Asleep, Mode::Proxy);
        asleep.await?;
        operator.knock("waking").await?;
        let waking = stage.reaches_as("waking", Phase::Waking, Mode::Proxy);
        waking.await?;
        // Until then resolvers hold its traffic.
        tokio::try_join!(is_deleted(&stage, "waking"), stage.open("waking"))?;
        ensure!(stage.replicas("waking").await? == 3);
        Ok(())
    })
}

async fn is_deleted(stage: &Stage<'_>, name: &str) -> Result<()> {
    let private = names::private_service(name);
    let uid = stage.uid::<Service>(&private).await?;
    stage.delete::<ElastiService>(name).await?;
    stage.has_no_resolver_slice(name).await?;
    stage.gone::<Service>(&private, &uid).await
}
