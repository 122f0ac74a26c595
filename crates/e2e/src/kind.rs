use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};

/// Makes a kind known, and waits until the API server serves it.
pub async fn establish(client: &Client, kind: &CustomResourceDefinition) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = kind.name_any();
    let apply = PatchParams::apply("elasti-figures").force();
    api.patch(&name, &apply, &Patch::Apply(kind)).await?;
    await_condition(api, &name, is_crd_established()).await?;
    Ok(())
}
