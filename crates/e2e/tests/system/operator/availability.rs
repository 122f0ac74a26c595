use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase, names};
use elasti_e2e::stage::{Gate, Meter, Operator, Setting, Stage};
use k8s_openapi::api::{coordination::v1::Lease, discovery::v1::EndpointSlice};
use serde_json::json;
use std::time::Duration;
use tokio::time::{self, Instant};

/// Lease duration, and the time that an election takes on a busy machine.
const REPLACED: Duration = Duration::from_secs(4 + 4);

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_killed_leader_is_replaced_and_knocks_are_answered_throughout() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let (leader, follower) = (candidate(&stage, "a").await?, candidate(&stage, "b").await?);
        for name in ["web", "shop"] {
            stage.deploy_as(name, "Deployment", 0).await?;
            stage.declare_as(name, json!({})).await?;
            stage.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
        }
        led_by(&stage, "a").await?;
        drop(leader);
        let killed = Instant::now();
        // Nobody leads now, and still it is woken.
        follower.knock("web").await?;
        stage.scaled_to("web", 1).await?;
        let lease = stage.api::<Lease>().get("elasti-operator").await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        ensure!(
            holder.as_deref() == Some("a"),
            "{holder:?} was quicker than the test"
        );

        led_by(&stage, "b").await?;
        let took = killed.elapsed();
        ensure!(took < REPLACED, "replaced after {took:?}");
        println!("A killed leader was replaced after {took:?}");
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        follower.knock("shop").await?;
        stage.reaches_as("shop", Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_leader_that_is_asked_to_end_hands_over_at_once() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let usual = |identity| Setting::default().flag("identity", identity);
        let leader = stage.operator_with(usual("a")).await?;
        led_by(&stage, "a").await?;
        let _follower = stage.operator_with(usual("b")).await?;
        let asked = Instant::now();
        leader.end()?;
        led_by(&stage, "b").await?;
        let took = asked.elapsed();
        // Of the 15 s that a lease is given by default.
        ensure!(took < Duration::from_secs(10), "handed over after {took:?}");
        println!("A leader that was asked to end handed over after {took:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_leader_frozen_past_its_lease_writes_nothing() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let meter = Meter::idle(place).await?;
        let gate = Gate::open(place)?;
        let first = Setting::default()
            .candidate("a")
            .flag("settle", "4s")
            .through(&gate);
        let first = stage.operator_with(first).await?;
        let second = Setting::default().candidate("b").flag("settle", "60s");
        let second = stage.operator_with(second).await?;
        stage.deploy("Deployment", 1).await?;
        let spec = json!({"cooldownPeriod": 3, "triggers": meter.triggers()});
        stage.declare(spec).await?;
        stage.reaches(Phase::FallingAsleep, Mode::Proxy).await?;
        led_by(&stage, "a").await?;

        let slice = names::resolver_slice("web");
        let uid = stage.uid::<EndpointSlice>(&slice).await?;

        // About to scale to zero.
        first.process().freeze()?;
        led_by(&stage, "b").await?;
        second.knock("web").await?;
        stage.gone::<EndpointSlice>(&slice, &uid).await?;
        let generation = stage.generation("web").await?;
        let before = writes(&gate);
        first.process().go_on()?;
        first.get("/healthz").await?;
        // What never happens has no event: twice as long as the rest of its wait.
        time::sleep(Duration::from_secs(2)).await;
        let after = writes(&gate);
        ensure!(after == before, "it wrote {:?}", &after[before.len()..]);
        ensure!(
            stage.generation("web").await? == generation,
            "the target is up"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_knock_at_a_follower_keeps_up_what_the_leader_lets_fall_asleep() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let meter = Meter::idle(place).await?;
        let patient = |identity| Setting::default().candidate(identity).flag("settle", "30s");
        let _leader = stage.operator_with(patient("a")).await?;
        led_by(&stage, "a").await?;
        let follower = stage.operator_with(patient("b")).await?;
        stage.deploy("Deployment", 1).await?;
        let spec = json!({"cooldownPeriod": 3, "triggers": meter.triggers()});
        stage.declare(spec).await?;
        stage.reaches(Phase::FallingAsleep, Mode::Proxy).await?;
        let slice = names::resolver_slice("web");
        let uid = stage.uid::<EndpointSlice>(&slice).await?;
        let generation = stage.generation("web").await?;
        follower.knock("web").await?;
        stage.gone::<EndpointSlice>(&slice, &uid).await?;
        stage
            .condition("web", "MaySleep", "False", "TrafficSeen")
            .await?;
        ensure!(
            stage.generation("web").await? == generation,
            "it was never scaled"
        );
        Ok(())
    })
}

async fn candidate(stage: &Stage<'_>, identity: &str) -> Result<Operator> {
    let operator = stage
        .operator_with(Setting::default().candidate(identity))
        .await?;
    if identity == "a" {
        led_by(stage, "a").await.context("the first one leads")?;
    }
    Ok(operator)
}

async fn led_by(stage: &Stage<'_>, identity: &str) -> Result<()> {
    let is_led = |lease: &Lease| {
        let spec = lease.spec.as_ref();
        spec.and_then(|spec| spec.holder_identity.as_deref()) == Some(identity)
    };
    let what = format!("led by {identity}");
    stage.until("elasti-operator", &what, is_led).await?;
    Ok(())
}

/// All but those for leadership itself.
fn writes(gate: &Gate) -> Vec<String> {
    let mut writes = gate.writes();
    writes.retain(|write| !write.contains("/leases"));
    writes
}
