//! `/scale`, the same for every kind.

use super::{Done, Error};
use elasti_api::{ElastiService, ScaleTargetRef};
use elasti_runtime::watch::Key;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::json;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scaled {
    pub(crate) from: i32,
    pub(crate) to: i32,
}

/// Raises the target to `replicas`; one that has as many or more is left alone. Any replica of the
/// operator may do this at any time.
pub(crate) async fn up(
    client: &Client,
    key: &Key,
    object: &ElastiService,
    replicas: i32,
) -> Result<Done, Error> {
    let (api, name) = target(client, key, &object.spec.scale_target_ref);
    let current = api.get_scale(name).await?;
    let from = current
        .spec
        .and_then(|spec| spec.replicas)
        .unwrap_or_default();
    if from >= replicas {
        return Ok(Done::Quietly);
    }
    let patch = json!({"spec": {"replicas": replicas}});
    api.patch_scale(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(Done::Scaled(Scaled { from, to: replicas }))
}

/// Fails with a conflict if anybody wrote to the target since it was read, an autoscaler say.
pub(super) async fn to_zero(
    client: &Client,
    key: &Key,
    object: &ElastiService,
) -> Result<Done, Error> {
    let (api, name) = target(client, key, &object.spec.scale_target_ref);
    let current = api.get_scale(name).await?;
    let from = current
        .spec
        .and_then(|spec| spec.replicas)
        .unwrap_or_default();
    if from == 0 {
        return Ok(Done::Quietly);
    }
    let patch = json!({
        "metadata": {"resourceVersion": current.metadata.resource_version},
        "spec": {"replicas": 0},
    });
    api.patch_scale(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(Done::Scaled(Scaled { from, to: 0 }))
}

fn target<'a>(
    client: &Client,
    key: &Key,
    target: &'a ScaleTargetRef,
) -> (Api<DynamicObject>, &'a str) {
    let kind = GroupVersionKind::gvk(target.group(), target.version(), target.kind());
    let api = Api::namespaced_with(
        client.clone(),
        &key.namespace,
        &ApiResource::from_gvk(&kind),
    );
    (api, &target.name)
}
