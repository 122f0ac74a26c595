use super::{Error, gone_is_fine};
use elasti_runtime::watch::Key;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

/// KEDA takes its orders from annotations.
pub(super) async fn set_paused(client: &Client, key: &Key, paused: bool) -> Result<(), Error> {
    let replicas = if paused { json!("0") } else { Value::Null };
    let patch = json!({"metadata": {"annotations": {
        "autoscaling.keda.sh/paused": paused.to_string(),
        "autoscaling.keda.sh/paused-replicas": replicas,
    }}});
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &key.namespace, &scaled_objects());
    let written = api
        .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    gone_is_fine(written.map(drop))
}

pub(crate) fn scaled_objects() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject"),
        "scaledobjects",
    )
}
