use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_e2e::stage::{Meter, PATIENCE, Stage, metric, scaled_object};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio::time;

const KEDA: &str = include_str!("keda.yaml");
const PAUSED: &str = "autoscaling.keda.sh/paused";
const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";

#[test]
#[ignore = "needs a cluster: make e2e"]
fn keda_is_paused_before_the_target_sleeps_and_resumed_before_it_wakes() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        stage.install(KEDA).await?;
        let operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        place.put(scaled_object("web")).await?;
        let (paused, asleep, ()) = tokio::try_join!(
            annotated(&stage, "web", Some("true"), Some("0")),
            stage.scaled_to("web", 0),
            stage.declare(json!({"triggers": meter.triggers(), "autoscaler": keda("web")})),
        )?;
        ensure!(
            is_before(&paused, &asleep)?,
            "KEDA would have scaled it up again"
        );
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage
            .condition("web", "AutoscalerFound", "True", "AutoscalerFound")
            .await?;

        stage.sleep_no_more().await?;
        let (resumed, awake, ()) = tokio::try_join!(
            annotated(&stage, "web", Some("false"), None),
            stage.scaled_to("web", 1),
            operator.knock("web"),
        )?;
        ensure!(
            is_before(&resumed, &awake)?,
            "KEDA would have scaled it down again"
        );
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn deleting_it_resumes_keda() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        stage.install(KEDA).await?;
        let _operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        place.put(scaled_object("web")).await?;
        stage
            .declare(json!({"triggers": meter.triggers(), "autoscaler": keda("web")}))
            .await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        annotated(&stage, "web", Some("true"), Some("0")).await?;
        stage.delete::<ElastiService>("web").await?;
        annotated(&stage, "web", Some("false"), None).await?;
        ensure!(stage.replicas("web").await? == 1);
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_pause_of_its_owner_stays_as_it_is() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        stage.install(KEDA).await?;
        let operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        let mut paused = scaled_object("web");
        paused["metadata"]["annotations"] = json!({PAUSED: "true"});
        place.put(paused).await?;
        stage
            .declare(json!({"triggers": meter.triggers(), "autoscaler": keda("web")}))
            .await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let asleep = annotated(&stage, "web", Some("true"), None).await?;
        stage
            .condition("web", "AutoscalerFound", "True", "PausedByOthers")
            .await?;
        stage.sleep_no_more().await?;
        operator.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.delete::<ElastiService>("web").await?;
        let left = annotated(&stage, "web", Some("true"), None).await?;
        ensure!(
            asleep.resource_version() == left.resource_version(),
            "somebody wrote to it"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn another_scaled_object_is_taken_and_the_old_one_resumed() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        stage.install(KEDA).await?;
        let _operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        place.put(scaled_object("old")).await?;
        place.put(scaled_object("new")).await?;
        stage
            .declare(json!({"triggers": meter.triggers(), "autoscaler": keda("old")}))
            .await?;
        annotated(&stage, "old", Some("true"), Some("0")).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage
            .amend("web", json!({"autoscaler": keda("new")}))
            .await?;
        annotated(&stage, "old", Some("false"), None).await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_missing_scaled_object_is_told_and_hinders_nothing() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        stage.install(KEDA).await?;
        let operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        stage
            .declare(json!({"triggers": meter.triggers(), "autoscaler": keda("web")}))
            .await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage
            .condition("web", "AutoscalerFound", "False", "AutoscalerMissing")
            .await?;
        stage.sleep_no_more().await?;
        operator.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        place.put(scaled_object("web")).await?;
        stage
            .condition("web", "AutoscalerFound", "True", "AutoscalerFound")
            .await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_kind_is_watched_for_as_long_as_somebody_needs_it() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        stage.install(KEDA).await?;
        let operator = stage.operator().await?;
        let unknown =
            json!({"apiVersion": "e2e.elasti.local/v1", "kind": "Nothing", "name": "web"});
        stage
            .declare(json!({"autoscaler": keda("web"), "scaleTargetRef": unknown}))
            .await?;
        let health = "elasti_operator_watch_healthy";
        let is = async |kind, told: Option<f64>| {
            let is_so = |text: &str| metric(text, health, &[("kind", kind)]) == told;
            let what = format!("{told:?} of {kind}");
            operator.until("/metrics", &what, is_so).await
        };
        is("ScaledObject", Some(1.0)).await?;
        is("Nothing", Some(0.0)).await?;
        stage.delete::<ElastiService>("web").await?;
        is("ScaledObject", None).await?;
        is("Nothing", None).await?;
        let open = metric(
            &operator.metrics().await?,
            "elasti_operator_informer_count",
            &[("informer_name", "ScaledObject")],
        );
        assert_eq!(open, Some(0.0));
        Ok(())
    })
}

fn keda(name: &str) -> Value {
    json!({"type": "keda", "name": name})
}

/// The ScaledObject at the moment at which both annotations are like this.
async fn annotated(
    stage: &Stage<'_>,
    name: &str,
    paused: Option<&str>,
    replicas: Option<&str>,
) -> Result<DynamicObject> {
    let kind = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
    let resource = ApiResource::from_gvk_with_plural(&kind, "scaledobjects");
    let namespace = stage.place.namespace.name();
    let api: Api<DynamicObject> =
        Api::namespaced_with(stage.place.client.clone(), namespace, &resource);
    let is_so = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| {
            let written = |key: &str| object.annotations().get(key).map(String::as_str);
            (written(PAUSED), written(PAUSED_REPLICAS)) == (paused, replicas)
        })
    };
    let object = time::timeout(PATIENCE, await_condition(api, name, is_so))
        .await
        .with_context(|| format!("waiting for {paused:?} and {replicas:?} on {name}"))??;
    object.context("what was awaited is there")
}

/// The API server counts its writes, those to all objects in one row.
fn is_before(first: &DynamicObject, second: &Deployment) -> Result<bool> {
    let number = |version: Option<String>| -> Result<u64> {
        Ok(version.context("what is stored has a version")?.parse()?)
    };
    Ok(number(first.resource_version())? < number(second.resource_version())?)
}
