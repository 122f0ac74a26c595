use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase, names};
use elasti_e2e::{
    Place,
    stage::{Gate, PATIENCE, Rule, Setting, Stage},
};
use futures::future::try_join_all;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Service},
};
use kube::{
    Api, ResourceExt,
    api::DeleteParams,
    runtime::{conditions::is_deleted, wait::await_condition},
};
use serde_json::json;
use tokio::time::{self, Instant};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn deleting_it_restores_the_world() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        let play = async {
            stage.declare(json!({"minTargetReplicas": 2})).await?;
            stage.reaches(Phase::Asleep, Mode::Proxy).await?;
            stage.delete::<ElastiService>("web").await?;
            ensure!(stage.replicas("web").await? == 2, "the target is back");
            stage.has_no_resolver_slice("web").await?;
            let private = names::private_service("web");
            let private = stage.api::<Service>().get_opt(&private).await?;
            ensure!(private.is_none(), "no private service is left");
            let is_left_out = |text: &str| !text.contains("/web");
            operator
                .until("/crd-cache", "nothing of it", is_left_out)
                .await?;
            Ok(())
        };
        stage.witnessed(play).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn deleting_it_does_not_wait_for_what_is_gone_already() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        let all = ["no-target", "no-service", "no-autoscaler", "no-kind"];
        for name in all {
            stage.deploy_as(name, "Deployment", 0).await?;
        }
        for name in ["no-target", "no-service"] {
            stage.declare_as(name, json!({})).await?;
        }
        let keda = json!({"autoscaler": {"type": "keda", "name": "nobody"}});
        stage.declare_as("no-autoscaler", keda).await?;
        for name in ["no-target", "no-service", "no-autoscaler"] {
            stage.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
        }
        let unknown = json!({"apiVersion": "e2e.elasti.local/v1", "kind": "Ghost", "name": "web"});
        stage
            .declare_as("no-kind", json!({"scaleTargetRef": unknown}))
            .await?;
        let unwatched = |status: &elasti_api::ElastiServiceStatus| {
            let mut conditions = status.conditions.iter();
            conditions
                .any(|condition| condition.type_ == "TargetFound" && condition.status == "Unknown")
        };
        stage
            .until_status("no-kind", "TargetFound=Unknown", unwatched)
            .await?;

        stage.delete::<Deployment>("no-target").await?;
        stage.delete::<Service>("no-service").await?;
        try_join_all(all.map(|name| stage.delete::<ElastiService>(name))).await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_namespace_with_a_sleeping_service_can_be_deleted() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let doomed = place.beside("doomed").await?;
        let there = stage.at(&doomed);
        let watched = format!("{},{}", place.namespace.name(), doomed.namespace.name());
        let both = Setting::default().flag("watch-namespace", watched);
        let _operator = stage.operator_with(both).await?;
        there.deploy("Deployment", 0).await?;
        there.declare(json!({})).await?;
        there.reaches(Phase::Asleep, Mode::Proxy).await?;

        ends(&doomed).await?;
        doomed.leave().await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn one_whose_target_may_not_be_scaled_is_let_go_after_a_while() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let gate = Gate::open(place)?;
        let _operator = stage
            .operator_with(Setting::default().through(&gate))
            .await?;
        stage.sleeping().await?;
        let refused = gate.refuse(Rule::new("PATCH", "/deployments/web/scale"));
        let start = Instant::now();
        tokio::try_join!(stage.delete::<ElastiService>("web"), refused)?;
        println!("It was let go after {:?}", start.elapsed());
        let said = stage.said("FailedToRestore", "Deployment").await?;
        let note = said.message.unwrap_or_default();
        ensure!(note.contains("the gate is closed"), "{note}");
        stage.has_no_resolver_slice("web").await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_namespace_with_one_whose_kind_is_hidden_can_be_deleted() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let gate = Gate::open(place)?;
        // Neither to be listed nor to be scaled.
        let hidden = gate.refuse(Rule::new("GET", "/statefulsets"));
        let doomed = place.beside("hidden").await?;
        let there = stage.at(&doomed);
        let watched = format!("{},{}", place.namespace.name(), doomed.namespace.name());
        let both = Setting::default().flag("watch-namespace", watched);
        let _operator = stage.operator_with(both.through(&gate)).await?;
        there.deploy("StatefulSet", 0).await?;
        let target = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"});
        there.declare(json!({"scaleTargetRef": target})).await?;
        hidden.await?;
        let kept = |object: &ElastiService| !object.finalizers().is_empty();
        there.until("web", "our finalizer", kept).await?;
        ends(&doomed).await?;
        doomed.leave().await
    })
}

/// Deletes a namespace, and waits until it is gone.
async fn ends(place: &Place) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(place.client.clone());
    let name = place.namespace.name();
    let uid = namespaces.get(name).await?.uid().context("it has a uid")?;
    let start = Instant::now();
    namespaces.delete(name, &DeleteParams::default()).await?;
    let gone = await_condition(namespaces, name, is_deleted(&uid));
    // Its own controller looks again after 5, 15, 35 and 75 seconds.
    time::timeout(2 * PATIENCE, gone)
        .await
        .context("waiting for the end of the namespace")??;
    println!("The namespace was gone after {:?}", start.elapsed());
    Ok(())
}
