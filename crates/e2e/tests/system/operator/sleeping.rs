use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase, names};
use elasti_e2e::{
    Place, Running,
    stage::{Gate, Meter, Rule, Setting, Stage, free_port, metric},
};
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod, discovery::v1::EndpointSlice};
use serde_json::{Value, json};
use std::fs;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn an_idle_target_falls_asleep_and_a_knock_wakes_it() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        let (_prometheus, triggers) = real_prometheus(place)?;
        stage.deploy("Deployment", 1).await?;
        let play = async {
            stage
                .declare(json!({"minTargetReplicas": 2, "triggers": triggers}))
                .await?;
            stage.reaches(Phase::Asleep, Mode::Proxy).await?;
            ensure!(stage.replicas("web").await? == 0, "the target sleeps");
            let slices = stage.resolver_slices("web").await?;
            let families: Vec<&str> = slices.iter().map(|slice| &*slice.address_type).collect();
            ensure!(families == ["IPv4", "IPv6"], "slices of {families:?}");
            ensure!(slices.iter().all(says_ready), "readiness is written out");

            stage.sleep_no_more().await?;
            operator.knock("web").await?;
            stage.reaches(Phase::Awake, Mode::Serve).await?;
            ensure!(
                stage.replicas("web").await? == 2,
                "woken to minTargetReplicas"
            );
            stage
                .has_no_resolver_slice("web")
                .await
                .context("the resolver has left the path")
        };
        stage.witnessed(play).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn traffic_at_the_last_look_keeps_it_up() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let meter = Meter::idle(place).await?;
        let patient = Setting::default().flag("settle", "30s");
        let operator = stage.operator_with(patient).await?;
        stage.deploy("Deployment", 1).await?;
        let play = async {
            stage
                .declare(json!({"cooldownPeriod": 3, "triggers": meter.triggers()}))
                .await?;
            stage.reaches(Phase::FallingAsleep, Mode::Proxy).await?;
            let generation = stage.generation("web").await?;
            let name = names::resolver_slice("web");
            let uid = stage.uid::<EndpointSlice>(&name).await?;
            operator.knock("web").await?;
            stage.gone::<EndpointSlice>(&name, &uid).await?;
            stage
                .condition("web", "MaySleep", "False", "TrafficSeen")
                .await?;
            ensure!(
                stage.generation("web").await? == generation,
                "the target was never touched"
            );
            Ok(())
        };
        stage.witnessed(play).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_somebody_else_scales_to_zero_is_proxied_while_its_last_pod_ends() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.deploy("StatefulSet", 1).await?;
        let target = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"});
        stage.declare(json!({"scaleTargetRef": target})).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;

        let linger = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        stage
            .amend_object::<Pod>("web-0", linger(json!(["e2e.elasti.local/linger"])))
            .await?;
        stage
            .amend_object::<StatefulSet>("web", json!({"spec": {"replicas": 0}}))
            .await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        ensure!(
            !stage.resolver_slices("web").await?.is_empty(),
            "the resolver holds its traffic"
        );
        stage
            .until::<Pod>("web-0", "its end", |pod| {
                pod.metadata.deletion_timestamp.is_some()
            })
            .await?;
        stage
            .amend_object::<Pod>("web-0", linger(Value::Null))
            .await?;

        operator.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_an_autoscaler_raises_at_the_last_moment_is_not_scaled_to_zero() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let meter = Meter::idle(place).await?;
        let gate = Gate::open(place)?;
        let operator = stage
            .operator_with(Setting::default().through(&gate))
            .await?;
        stage.deploy("Deployment", 1).await?;
        let to_zero = gate.hold(Rule::new("PATCH", "/deployments/web/scale"));
        stage
            .declare(json!({
                "triggers": meter.triggers(),
                "autoscaler": {"type": "hpa", "name": "web"},
            }))
            .await?;
        to_zero.await?;
        meter.reads(5).await?;
        meter.is_heard().await?;
        stage.scale("web", 2).await?;
        let generation = stage.generation("web").await?;
        gate.release();
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        ensure!(
            stage.generation("web").await? == generation,
            "what the autoscaler wrote stands"
        );
        let conflicts = metric(
            &operator.metrics().await?,
            "elasti_operator_scale_counter",
            &[("error", "conflict")],
        );
        ensure!(conflicts == Some(1.0), "{conflicts:?} writes were refused");
        Ok(())
    })
}

fn says_ready(slice: &EndpointSlice) -> bool {
    slice.endpoints.iter().all(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready) == Some(true)
    })
}

/// One that scrapes nothing, and what asks it.
fn real_prometheus(place: &Place) -> Result<(Running, Value)> {
    let (folder, port) = (place.folder(), free_port());
    let config = folder.join("prometheus.yml");
    fs::write(&config, "global: {}\n")?;
    let mut command = place.cluster.command("prometheus")?;
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}/data", folder.display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--log.level=error");
    let triggers = json!([{"type": "prometheus", "metadata": {
        "serverAddress": format!("http://127.0.0.1:{port}"),
        "query": "vector(0)",
        "threshold": 1,
        "healthCheck": false,
    }}]);
    Ok((Running::start(&mut command)?, triggers))
}
