//! The operator on a real cluster, one of its own for each test, which sees that test's namespace
//! alone. Pods stand in for resolvers: what matters here is who is listed where, and when.

#[path = "operator/stage.rs"]
mod stage;

use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase, names};
use elasti_e2e::Place;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{Event, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::{conditions::is_deleted, wait::await_condition},
};
use serde_json::json;
use stage::Stage;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn an_idle_target_falls_asleep_and_a_knock_wakes_it() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place)?;
        stage.idle_prometheus()?;
        stage.deploy("Deployment")?;
        let witness = stage.witness_endpoints();
        let play = async {
            stage.declare("Deployment", &stage.idle_trigger())?;
            stage.reaches(Phase::Asleep, Mode::Proxy).await?;
            ensure!(
                stage.replicas::<Deployment>().await? == 0,
                "the target sleeps"
            );
            let slices = stage.resolver_slices().await?;
            let families: Vec<&str> = slices
                .iter()
                .map(|slice| slice.address_type.as_str())
                .collect();
            ensure!(families == ["IPv4", "IPv6"], "slices of {families:?}");
            ensure!(
                slices
                    .iter()
                    .flat_map(|slice| &slice.endpoints)
                    .all(|endpoint| {
                        endpoint
                            .conditions
                            .as_ref()
                            .and_then(|conditions| conditions.ready)
                            == Some(true)
                    }),
                "readiness is written out"
            );

            stage.sleep_no_more().await?;
            stage.knock("web").await?;
            stage.reaches(Phase::Awake, Mode::Serve).await?;
            ensure!(
                stage.replicas::<Deployment>().await? == 2,
                "woken to minTargetReplicas"
            );
            ensure!(
                stage.resolver_slices().await?.is_empty(),
                "the resolver has left the path"
            );
            stage.said("SuccessToScale").await
        };
        tokio::select! {
            outcome = play => outcome,
            gap = witness => Err(gap),
        }
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_somebody_else_scales_to_zero_is_proxied_and_woken() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place)?;
        stage.deploy("StatefulSet")?;
        stage.declare("StatefulSet", &json!([]))?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        place.kubectl_text(&["scale", "statefulset/web", "--replicas=0"])?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        ensure!(stage.replicas::<StatefulSet>().await? == 2);
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_custom_kind_with_scale_is_woken_too() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place)?;
        place.apply(stage::GIZMO_KIND)?;
        place.kubectl_text(&[
            "wait",
            "--for=condition=Established",
            "crd/gizmos.e2e.elasti.local",
        ])?;
        stage.deploy("Deployment")?;
        place.apply(stage::GIZMO)?;
        place.kubectl_text(&["scale", "deployment/web", "--replicas=0"])?;
        stage.declare("Gizmo", &json!([]))?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage.knock("web").await?;
        stage.reaches(Phase::Waking, Mode::Proxy).await?;
        let replicas =
            place.kubectl_text(&["get", "gizmo", "web", "--output=jsonpath={.spec.replicas}"])?;
        assert_eq!(replicas, "2");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn deleting_it_restores_the_world() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place)?;
        stage.deploy("Deployment")?;
        place.kubectl_text(&["scale", "deployment/web", "--replicas=0"])?;
        stage.declare("Deployment", &json!([]))?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;

        let uid = stage
            .elasti_services()
            .get("web")
            .await?
            .uid()
            .context("it has a uid")?;
        stage
            .elasti_services()
            .delete("web", &DeleteParams::default())
            .await?;
        await_condition(stage.elasti_services(), "web", is_deleted(&uid)).await?;
        ensure!(
            stage.replicas::<Deployment>().await? == 2,
            "the target is back"
        );
        ensure!(
            stage.resolver_slices().await?.is_empty(),
            "no slice is left"
        );
        let private: Api<Service> = Api::namespaced(place.client.clone(), place.namespace.name());
        ensure!(
            private
                .get_opt(&names::private_service("web"))
                .await?
                .is_none(),
            "no private service is left"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn the_younger_of_two_that_name_one_service_says_so() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place)?;
        stage.deploy("Deployment")?;
        stage.declare("Deployment", &json!([]))?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.declare_as("younger", "Deployment", &json!([]))?;
        stage
            .has_condition("younger", "Ready", "False", "Conflict")
            .await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn the_private_service_follows_the_public_one() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place)?;
        stage.deploy("Deployment")?;
        stage.declare("Deployment", &json!([]))?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        let services: Api<Service> = Api::namespaced(place.client.clone(), place.namespace.name());
        let patch = json!({"spec": {"ports": [{"port": 81, "targetPort": 8080}]}});
        services
            .patch("web", &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        let follows = |service: Option<&Service>| {
            service
                .and_then(|service| service.spec.as_ref()?.ports.as_ref())
                .is_some_and(|ports| ports.iter().any(|port| port.port == 81))
        };
        let private = names::private_service("web");
        await_condition(services.clone(), &private, follows).await?;
        services.delete(&private, &DeleteParams::default()).await?;
        await_condition(services, &private, follows)
            .await
            .context("it is made again")?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_missing_service_or_target_is_told_in_a_condition() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place)?;
        stage.declare("Deployment", &json!([]))?;
        stage
            .has_condition("web", "ServiceFound", "False", "ServiceMissing")
            .await?;
        stage.deploy("Deployment")?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        place.kubectl_text(&["delete", "deployment/web"])?;
        stage
            .has_condition("web", "TargetFound", "False", "TargetMissing")
            .await
    })
}
