//! A user's own pause stays as it is: each patch tests what it replaces.

use super::{Error, request};
use crate::facts::{PAUSED, PAUSED_REPLICAS, ScaledObjectFacts};
use elasti_runtime::watch::Key;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

/// Unless it says something else by now than what was seen.
pub(super) async fn pause(
    client: &Client,
    key: &Key,
    seen: &ScaledObjectFacts,
) -> Result<(), Error> {
    patch(client, key, &pausing(seen)).await
}

/// Unless the pause is not ours.
pub(super) async fn resume(client: &Client, key: &Key) -> Result<(), Error> {
    match patch(client, key, &resuming()).await {
        Err(Error::Meanwhile) => Ok(()),
        outcome => outcome,
    }
}

pub(crate) fn scaled_objects() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject"),
        "scaledobjects",
    )
}

fn pausing(seen: &ScaledObjectFacts) -> Value {
    if !seen.annotated {
        return json!([
            {"op": "test", "path": "/metadata/annotations", "value": null},
            {"op": "add", "path": "/metadata/annotations", "value": {PAUSED: "true", PAUSED_REPLICAS: "0"}},
        ]);
    }
    json!([
        {"op": "test", "path": path(PAUSED), "value": seen.paused.as_deref()},
        {"op": "test", "path": path(PAUSED_REPLICAS), "value": seen.paused_replicas.as_deref()},
        {"op": "add", "path": path(PAUSED), "value": "true"},
        {"op": "add", "path": path(PAUSED_REPLICAS), "value": "0"},
    ])
}

fn resuming() -> Value {
    json!([
        {"op": "test", "path": path(PAUSED), "value": "true"},
        {"op": "test", "path": path(PAUSED_REPLICAS), "value": "0"},
        {"op": "replace", "path": path(PAUSED), "value": "false"},
        {"op": "remove", "path": path(PAUSED_REPLICAS)},
    ])
}

fn path(annotation: &str) -> String {
    format!("/metadata/annotations/{}", annotation.replace('/', "~1"))
}

async fn patch(client: &Client, key: &Key, patch: &Value) -> Result<(), Error> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &key.namespace, &scaled_objects());
    let path = request::path(&api, &key.name);
    request::tested(client, &path, patch).await
}
