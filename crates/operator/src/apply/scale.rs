//! `/scale`, the same for every kind.

use super::{
    Done, Error,
    request::{self, Write},
};
use elasti_runtime::watch::Key;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scaled {
    pub(crate) from: i32,
    pub(crate) to: i32,
}

/// Raises the target to `replicas`; one that has as many or more is left alone, whoever scales it at
/// the same time. Any replica of the operator may do this at any time.
pub(super) async fn up(target: &Target<'_>, replicas: i32) -> Result<Done, Error> {
    for _ in 0..ATTEMPTS {
        let (from, version) = target.current().await?;
        if from >= replicas {
            return Ok(Done::Quietly);
        }
        match target.set(replicas, version).await {
            Ok(()) => return Ok(Done::Scaled(Scaled { from, to: replicas })),
            Err(error) if error.category() == "conflict" => {}
            Err(error) => return Err(error),
        }
    }
    from_zero(target, replicas).await
}

/// A controller writes the status of a target that comes up again and again.
const ATTEMPTS: usize = 5;

/// Raises the target in one call if it is at zero, as it is believed to be, and else not at all. The
/// scale of a target at zero has an empty spec.
pub(super) async fn from_zero(target: &Target<'_>, replicas: i32) -> Result<Done, Error> {
    let patch = json!([
        {"op": "test", "path": "/spec", "value": {}},
        {"op": "add", "path": "/spec/replicas", "value": replicas},
    ]);
    match target.write(Write::Operations, &patch).await {
        Ok(()) => Ok(Done::Scaled(Scaled {
            from: 0,
            to: replicas,
        })),
        // Somebody was quicker.
        Err(error) if request::is_failed_test(&error) => Ok(Done::Quietly),
        Err(error) => Err(error),
    }
}

/// Does nothing to a target that has another number of replicas than when this was decided, and
/// fails with a conflict if anybody wrote to it since it was read, an autoscaler say.
pub(super) async fn to_zero(target: &Target<'_>, decided: i32) -> Result<Done, Error> {
    let (from, version) = target.current().await?;
    if from != decided {
        return Ok(Done::Quietly);
    }
    target.set(0, version).await?;
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

    /// At that version, or at any.
    async fn set(&self, replicas: i32, version: Option<String>) -> Result<(), Error> {
        let patch = json!({
            "metadata": {"resourceVersion": version},
            "spec": {"replicas": replicas},
        });
        self.write(Write::Merge, &patch).await
    }

    async fn write(&self, how: Write, patch: &Value) -> Result<(), Error> {
        let path = request::path(&self.api, &format!("{}/scale", self.name));
        request::write(&self.client, &path, how, patch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::{client::Body, core::GroupVersionKind};

    /// What becomes of a wake that the API server answers like this.
    async fn woken(answer: Value) -> Result<Done, Error> {
        let client = tower::service_fn(move |_: http::Request<Body>| {
            let body = Body::from(answer.to_string().into_bytes());
            let response = http::Response::builder().status(422).body(body);
            std::future::ready(response)
        });
        let client = Client::new(client, "default");
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        let target = Target::new(&client, &resource, &Key::new("shop", "web"), "web");
        from_zero(&target, 1).await
    }

    #[tokio::test]
    async fn what_a_rule_forbids_is_no_sign_that_somebody_was_quicker() {
        let refused = |message: &str, details: Value| {
            json!({
                "kind": "Status",
                "status": "Failure",
                "code": 422,
                "reason": "Invalid",
                "message": message,
                "details": details,
            })
        };
        let test = "the server rejected our request due to an error in our request";
        let quicker = woken(refused(test, json!({}))).await;
        assert_eq!(quicker.unwrap(), Done::Quietly);
        let rule = "ValidatingAdmissionPolicy 'none' denied request: it is to stay at zero";
        let causes = json!({"causes": [{"message": "it is to stay at zero"}]});
        let error = woken(refused(rule, causes)).await.unwrap_err();
        assert_eq!(
            (error.category(), error.to_string()),
            ("invalid", rule.into())
        );
    }
}
