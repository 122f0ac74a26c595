use anyhow::{Result, ensure};
use elasti_cluster::Cluster;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{PartialObjectMeta, Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::json;
use std::env;

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

/// Of a kind that nobody needs when the tests are over: `make e2e` removes those of a cluster that is not ours.
const MARK: &str = "elasti-e2e";

/// Makes a kind known, and waits until the API server serves it. What somebody else has made on a cluster of theirs is not
/// replaced.
pub async fn establish(
    cluster: &Cluster,
    client: &Client,
    kind: &CustomResourceDefinition,
) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = kind.name_any();
    if !cluster.is_local() {
        let found = api.get_metadata_opt(&name).await?;
        let is_ours = |found: &PartialObjectMeta<_>| {
            let mut managers = found
                .managed_fields()
                .iter()
                .filter_map(|by| by.manager.as_deref());
            managers.all(|manager| [MARK, "kube-apiserver"].contains(&manager))
        };
        ensure!(
            found.as_ref().is_none_or(is_ours),
            "the cluster of KUBECONFIG has {name} already, and this would replace it: use one without"
        );
    }
    let mut kind = kind.clone();
    let run = env::var("ELASTI_E2E_RUN").unwrap_or_default();
    kind.labels_mut().insert(MARK.into(), run);
    let apply = PatchParams::apply(MARK).force();
    api.patch(&name, &apply, &Patch::Apply(&kind)).await?;
    await_condition(api, &name, is_crd_established()).await?;
    Ok(())
}
