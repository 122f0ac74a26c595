use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::json;

/// A kind with a scale that no controller works on: a machine could not run so many pods.
pub fn scalable(group: &str, kind: &str, plural: &str) -> Result<CustomResourceDefinition> {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    Ok(serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                }},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": anything, "status": anything},
                }},
            }],
        },
    }))?)
}

/// Makes a kind known, and waits until the API server serves it.
pub async fn establish(client: &Client, kind: &CustomResourceDefinition) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = kind.name_any();
    let apply = PatchParams::apply("elasti-figures").force();
    api.patch(&name, &apply, &Patch::Apply(kind)).await?;
    await_condition(api, &name, is_crd_established()).await?;
    Ok(())
}
