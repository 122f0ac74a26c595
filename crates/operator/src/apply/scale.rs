//! `/scale`, the same for every kind.

use super::{Done, Error};
use elasti_runtime::watch::Key;
use http::{Request, header};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scaled {
    pub(crate) from: i32,
    pub(crate) to: i32,
}

/// Raises the target to `replicas`; one that has as many or more is left alone. Any replica of the
/// operator may do this at any time.
pub(super) async fn up(target: &Target<'_>, replicas: i32) -> Result<Done, Error> {
    let (from, _) = target.current().await?;
    if from >= replicas {
        return Ok(Done::Quietly);
    }
    target.set(json!({"spec": {"replicas": replicas}})).await?;
    Ok(Done::Scaled(Scaled { from, to: replicas }))
}

/// Raises the target in one call if it is at zero, as it is believed to be, and else in two. The
/// scale of a target at zero has an empty spec.
pub(super) async fn from_zero(target: &Target<'_>, replicas: i32) -> Result<Done, Error> {
    let patch = json!([
        {"op": "test", "path": "/spec", "value": {}},
        {"op": "add", "path": "/spec/replicas", "value": replicas},
    ]);
    match target.patch_json(&patch).await {
        Ok(()) => Ok(Done::Scaled(Scaled {
            from: 0,
            to: replicas,
        })),
        Err(error) if error.category() == "invalid" => up(target, replicas).await,
        Err(error) => Err(error),
    }
}

/// For a target that somebody else may scale by now.
pub(super) async fn up_if_asleep(target: &Target<'_>, replicas: i32) -> Result<Done, Error> {
    match target.current().await? {
        (0, _) => from_zero(target, replicas).await,
        _ => Ok(Done::Quietly),
    }
}

/// Fails with a conflict if anybody wrote to the target since it was read, an autoscaler say.
pub(super) async fn to_zero(target: &Target<'_>) -> Result<Done, Error> {
    let (from, version) = target.current().await?;
    if from == 0 {
        return Ok(Done::Quietly);
    }
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 0}});
    target.set(patch).await?;
    Ok(Done::Scaled(Scaled { from, to: 0 }))
}

/// What an ElastiService scales.
pub(super) struct Target<'a> {
    client: Client,
    api: Api<DynamicObject>,
    name: &'a str,
}

// === impl Target ===

impl<'a> Target<'a> {
    pub(super) fn new(client: &Client, resource: &ApiResource, key: &Key, name: &'a str) -> Self {
        Self {
            client: client.clone(),
            api: Api::namespaced_with(client.clone(), &key.namespace, resource),
            name,
        }
    }

    /// Replicas, and the version at which they were that many. Zero is left out of the answer.
    async fn current(&self) -> Result<(i32, Option<String>), Error> {
        let scale = self.api.get_scale(self.name).await?;
        let replicas = scale
            .spec
            .and_then(|spec| spec.replicas)
            .unwrap_or_default();
        Ok((replicas, scale.metadata.resource_version))
    }

    async fn set(&self, patch: Value) -> Result<(), Error> {
        self.api
            .patch_scale(self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    async fn patch_json(&self, patch: &Value) -> Result<(), Error> {
        let url = format!("{}/{}/scale", self.api.resource_url(), self.name);
        let request = Request::patch(url)
            .header(header::CONTENT_TYPE, "application/json-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request::<Value>(request).await?;
        Ok(())
    }
}
