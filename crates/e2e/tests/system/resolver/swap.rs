use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, FINALIZER, Mode, Phase, names};
use elasti_e2e::{
    fetch, kubeelasti,
    stage::{PATIENCE, Stage, Whole, scaled_object},
};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio::time::timeout;

const KEDA: &str = include_str!("../operator/keda.yaml");
const PAUSED: &str = "autoscaling.keda.sh/paused";
const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";
/// A resolver that is no more.
const FORMER: &str = "10.255.255.1";

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_kubeelasti_left_behind_is_taken_over_as_it_is() -> Result<()> {
    elasti_e2e::test(async |place| {
        let mut whole = Whole::set(place).await?;
        whole.stage.install(KEDA).await?;
        whole.end_operator()?;
        let stage = &whole.stage;
        stage.deploy("Deployment", 0).await?;
        place.put(paused()).await?;
        let mut left = kubeelasti::elasti_service("web");
        left["spec"]["autoscaler"] = json!({"type": "keda", "name": "web"});
        let owner = leave_behind(stage, left, "proxy").await?;
        place
            .put(kubeelasti::private_service("web", &owner))
            .await?;
        place.put(kubeelasti::slice("web", [FORMER])).await?;

        whole.start_operator().await?;
        let stage = &whole.stage;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let slices = stage.api::<EndpointSlice>();
        let slice = names::resolver_slice("web");
        let taken = await_condition(slices.clone(), &slice, names_ours);
        let taken = timeout(PATIENCE, taken).await;
        taken.context("waiting for a slice with resolvers that live")??;
        ensure!(is_paused(stage.place.namespace.name(), &stage.place.client).await?);
        let answer = fetch(&format!("http://{}/", stage.reach("web", 80).await?)).await?;
        ensure!(answer == "GET /\n", "{answer}");
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        ensure!(!is_paused(stage.place.namespace.name(), &stage.place.client).await?);
        let taken = stage.api::<ElastiService>().get("web").await?;
        ensure!(taken.finalizers() == [FINALIZER], "{:?}", taken.metadata);

        stage.delete::<ElastiService>("web").await?;
        let private = names::private_service("web");
        let orphan = stage.api::<Service>().get_opt(&private).await?;
        ensure!(orphan.is_none(), "{orphan:?}");
        let slices = of_web(&slices).await?;
        ensure!(
            slices
                .iter()
                .all(|slice| !slice.name_any().starts_with("elasti-")),
            "{slices:?}"
        );
        Ok(())
    })
}

/// As its public service is, and a second load balancer is paid for it.
#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_kubeelasti_left_awake_is_never_sent_to_resolvers() -> Result<()> {
    elasti_e2e::test(async |place| {
        let mut whole = Whole::set(place).await?;
        whole.end_operator()?;
        let stage = &whole.stage;
        stage.deploy("Deployment", 1).await?;
        stage.has_ready("web", 1).await?;
        let owner = leave_behind(stage, kubeelasti::elasti_service("web"), "serve").await?;
        let mut private = kubeelasti::private_service("web", &owner);
        private["spec"]["type"] = json!("LoadBalancer");
        place.put(private).await?;
        let name = names::private_service("web");
        let uid = stage.uid::<Service>(&name).await?;

        let web = stage.reach("web", 80).await?;
        whole.start_operator().await?;
        let stage = &whole.stage;
        let taken_over = async {
            let is_ours = |service: &Service| {
                let spec = service.spec.as_ref();
                spec.and_then(|spec| spec.type_.as_deref()) == Some("ClusterIP")
            };
            let private = stage.until(&name, "it is ClusterIP", is_ours).await?;
            ensure!(private.uid().as_ref() == Some(&uid), "it was made anew");
            let ports = private.spec.and_then(|spec| spec.ports).unwrap_or_default();
            ensure!(
                ports.iter().all(|port| port.node_port.is_none()),
                "{ports:?}"
            );
            stage.reaches(Phase::Awake, Mode::Serve).await?;
            stage.has_no_resolver_slice("web").await
        };
        let visits = async {
            loop {
                let answer = fetch(&format!("http://{web}/")).await?;
                ensure!(answer == "GET /\n", "{answer}");
            }
        };
        tokio::select! {
            taken_over = taken_over => taken_over?,
            lost = visits => lost?,
        }
        stage.delete::<ElastiService>("web").await?;
        let orphan = stage.api::<Service>().get_opt(&name).await?;
        ensure!(orphan.is_none(), "{orphan:?}");
        Ok(())
    })
}

/// Gives its uid.
async fn leave_behind(stage: &Stage<'_>, object: Value, mode: &str) -> Result<String> {
    let left = stage.place.put(object).await?;
    let status = Patch::Merge(kubeelasti::status(mode));
    stage
        .api::<ElastiService>()
        .patch_status(&left.name_any(), &PatchParams::default(), &status)
        .await?;
    left.uid().context("it has a uid")
}

fn names_ours(slice: Option<&EndpointSlice>) -> bool {
    let endpoints = slice.into_iter().flat_map(|slice| &slice.endpoints);
    let mut addresses = endpoints.flat_map(|endpoint| &endpoint.addresses);
    addresses.next().is_some_and(|address| address != FORMER)
}

async fn of_web(slices: &Api<EndpointSlice>) -> Result<Vec<EndpointSlice>> {
    let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
    Ok(slices.list(&of_web).await?.items)
}

async fn is_paused(namespace: &str, client: &kube::Client) -> Result<bool> {
    let kind = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let annotations = api.get("web").await?.metadata.annotations;
    let annotations = annotations.unwrap_or_default();
    let paused = annotations
        .get(PAUSED)
        .is_some_and(|paused| paused == "true");
    Ok(paused && annotations.contains_key(PAUSED_REPLICAS))
}

fn paused() -> Value {
    let mut paused = scaled_object("web");
    paused["metadata"]["annotations"] = json!({(PAUSED): "true", (PAUSED_REPLICAS): "0"});
    paused
}
