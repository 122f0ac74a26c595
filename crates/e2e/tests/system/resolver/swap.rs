use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, FINALIZER, Mode, Phase, names};
use elasti_e2e::{
    fetch,
    stage::{PATIENCE, Whole, scaled_object},
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
        place.put(elasti_service()).await?;
        let api = stage.api::<ElastiService>();
        let owner = api.get("web").await?.uid().context("it has a uid")?;
        place.put(private_service(&owner)).await?;
        place.put(slice()).await?;
        let status = json!({"status": {
            "lastReconciledTime": "2026-03-01T10:00:00Z",
            "lastScaledUpTime": "2026-03-01T09:00:00Z",
            "mode": "proxy",
        }});
        api.patch_status("web", &PatchParams::default(), &Patch::Merge(status))
            .await?;

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
        let taken = api.get("web").await?;
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

fn elasti_service() -> Value {
    json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": "web", "finalizers": [FINALIZER]},
        "spec": {
            "minTargetReplicas": 1,
            "service": "web",
            "cooldownPeriod": 900,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "deployments", "name": "web"},
            "triggers": [],
            "autoscaler": {"type": "keda", "name": "web"},
        },
    })
}

fn paused() -> Value {
    let mut paused = scaled_object("web");
    paused["metadata"]["annotations"] = json!({(PAUSED): "true", (PAUSED_REPLICAS): "0"});
    paused
}

/// With an address, which ours have not.
fn private_service(owner: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names::private_service("web"),
            "ownerReferences": [{
                "apiVersion": "elasti.truefoundry.com/v1alpha1",
                "kind": "ElastiService",
                "name": "web",
                "uid": owner,
                "controller": true,
            }],
        },
        "spec": {
            "selector": {"of": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    })
}

/// Without an owner, and without a word on who manages it.
fn slice() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": names::resolver_slice("web"),
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8012}],
        "endpoints": [{"addresses": [FORMER]}],
    })
}
