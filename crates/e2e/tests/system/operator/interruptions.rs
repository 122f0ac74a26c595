//! An operator that is killed between any two steps leaves a state from which the next one goes on.

use anyhow::{Result, ensure};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_e2e::stage::{Gate, Meter, Operator, Rule, Setting, Stage, scaled_object};
use kube::api::DeleteParams;
use serde_json::{Value, json};

const KEDA: &str = include_str!("keda.yaml");

const FALLING_ASLEEP: [Rule; 7] = [
    Rule::new("PATCH", "/elastiservices/web").saying("finalizers"),
    Rule::new("POST", "/services").saying("elasti-web-pvt-"),
    Rule::new(
        "PATCH",
        "/endpointslices/elasti-web-endpointslice-to-resolver-",
    ),
    Rule::new("PATCH", "/elastiservices/web/status").saying(r#""phase":"FallingAsleep""#),
    Rule::new("PATCH", "/scaledobjects/web").saying("true"),
    Rule::new("PATCH", "/deployments/web/scale"),
    Rule::new("PATCH", "/elastiservices/web/status").saying(r#""phase":"Asleep""#),
];

const WAKING: [Rule; 4] = [
    Rule::new("PATCH", "/scaledobjects/web").saying("false"),
    Rule::new("PATCH", "/deployments/web/scale"),
    Rule::new(
        "DELETE",
        "/endpointslices/elasti-web-endpointslice-to-resolver-",
    ),
    Rule::new("PATCH", "/elastiservices/web/status").saying(r#""mode":"serve""#),
];

const LEAVING: [Rule; 5] = [
    Rule::new("PATCH", "/scaledobjects/web").saying("false"),
    Rule::new("PATCH", "/deployments/web/scale"),
    Rule::new(
        "DELETE",
        "/endpointslices/elasti-web-endpointslice-to-resolver-",
    ),
    Rule::new("DELETE", "/services/elasti-web-pvt-"),
    Rule::new("PATCH", "/elastiservices/web").saying("finalizers"),
];

#[test]
#[ignore = "needs a cluster: make e2e"]
fn one_killed_before_any_step_of_falling_asleep_is_followed_by_one_that_goes_on() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let (gate, meter) = (Gate::open(place)?, Meter::idle(place).await?);
        target_with_keda(&stage).await?;
        let play = async {
            stage.declare(spec_with_keda(&meter)).await?;
            for step in FALLING_ASLEEP {
                killed_before(&stage, &gate, step, async |_| Ok(())).await?;
            }
            let _last = through(&stage, &gate).await?;
            stage.reaches(Phase::Asleep, Mode::Proxy).await?;
            ensure!(stage.replicas("web").await? == 0);
            Ok(())
        };
        stage.witnessed(play).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn one_killed_before_any_step_of_waking_is_followed_by_one_that_goes_on() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let (gate, meter) = (Gate::open(place)?, Meter::idle(place).await?);
        target_with_keda(&stage).await?;
        let play = async {
            stage.declare(spec_with_keda(&meter)).await?;
            let first = through(&stage, &gate).await?;
            stage.reaches(Phase::Asleep, Mode::Proxy).await?;
            drop(first);
            stage.sleep_no_more().await?;
            for step in WAKING {
                // A resolver with requests knocks until somebody opens.
                let knock = async |operator: &Operator| operator.knock("web").await;
                killed_before(&stage, &gate, step, knock).await?;
            }
            let _last = through(&stage, &gate).await?;
            stage.reaches(Phase::Awake, Mode::Serve).await?;
            ensure!(stage.replicas("web").await? == 1);
            stage.has_no_resolver_slice("web").await
        };
        stage.witnessed(play).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn one_killed_before_any_step_of_a_deletion_is_followed_by_one_that_goes_on() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let (gate, meter) = (Gate::open(place)?, Meter::idle(place).await?);
        target_with_keda(&stage).await?;
        let play = async {
            stage.declare(spec_with_keda(&meter)).await?;
            let first = through(&stage, &gate).await?;
            stage.reaches(Phase::Asleep, Mode::Proxy).await?;
            drop(first);
            let uid = stage.uid::<ElastiService>("web").await?;
            stage
                .api::<ElastiService>()
                .delete("web", &DeleteParams::default())
                .await?;
            for step in LEAVING {
                killed_before(&stage, &gate, step, async |_| Ok(())).await?;
            }
            let _last = through(&stage, &gate).await?;
            stage.gone::<ElastiService>("web", &uid).await?;
            ensure!(stage.replicas("web").await? == 1);
            stage.has_no_resolver_slice("web").await
        };
        stage.witnessed(play).await
    })
}

async fn target_with_keda(stage: &Stage<'_>) -> Result<()> {
    stage.install(KEDA).await?;
    stage.deploy("Deployment", 1).await?;
    stage.place.put(scaled_object("web")).await?;
    Ok(())
}

fn spec_with_keda(meter: &Meter) -> Value {
    json!({"triggers": meter.triggers(), "autoscaler": {"type": "keda", "name": "web"}})
}

/// Always the same identity: it leads at once.
async fn through(stage: &Stage<'_>, gate: &Gate) -> Result<Operator> {
    stage.operator_with(Setting::default().through(gate)).await
}

async fn killed_before(
    stage: &Stage<'_>,
    gate: &Gate,
    step: Rule,
    begin: impl AsyncFnOnce(&Operator) -> Result<()>,
) -> Result<()> {
    let reached = gate.hold(step);
    let operator = through(stage, gate).await?;
    begin(&operator).await?;
    reached.await?;
    drop(operator);
    gate.let_pass();
    Ok(())
}
