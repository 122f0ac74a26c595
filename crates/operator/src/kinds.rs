//! A watch for each kind of targets in use: started with the first ElastiService that names the
//! kind, stopped with the last.

use crate::{
    clock,
    facts::TargetFacts,
    feed::{Feed, dynamic},
    index::Kind,
    metrics::Vision,
    operator::Operator,
    readiness::readiness,
};
use elasti_runtime::watch::Health;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
    discovery,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{
    task::{AbortHandle, JoinSet},
    time,
};

const RETRY: Duration = Duration::from_secs(5);

/// Where most kinds count them.
const REPLICAS: &str = "/spec/replicas";

/// Works until it is dropped, and ends its watches with it.
pub(crate) async fn work(operator: Arc<Operator>) {
    let mut watches = JoinSet::new();
    let mut running: HashMap<Kind, AbortHandle> = HashMap::new();
    loop {
        let changed = operator.kinds_changed.notified();
        let wanted = operator.read(|index| index.kinds_in_use());
        running.retain(|kind, handle| {
            let keep = wanted.contains(kind);
            if !keep {
                handle.abort();
                operator.note(|index| index.drop_kind(kind));
            }
            keep && !handle.is_finished()
        });
        for kind in wanted {
            running
                .entry(kind.clone())
                .or_insert_with(|| watches.spawn(watch_kind(operator.clone(), kind)));
        }
        tokio::select! {
            () = changed => {}
            // One that was stopped; one that broke is begun anew.
            Some(_) = watches.join_next() => {}
        }
    }
}

async fn watch_kind(operator: Arc<Operator>, kind: Kind) {
    let vision = operator.metrics.vision(&kind.api_version, &kind.kind);
    let (resource, path) = discovered(&operator, &kind, &vision).await;
    let feed = Feed {
        operator: &operator,
        name: &kind.kind,
        vision,
        scopes: operator.settings.scopes(),
        selector: "",
    };
    feed.watch(
        dynamic(&operator.client, &resource),
        |object| strip(&object, &resource, path.as_deref()),
        |index, change| index.change_targets(&kind, change, clock::now()),
        |index, scope, health| index.change_kind_health(&kind, scope, health),
        || {},
    )
    .await;
}

/// The API server knows a kind's plural and where it keeps its replicas; until it says so, that is
/// reported and asked again.
async fn discovered(
    operator: &Operator,
    kind: &Kind,
    vision: &Vision<'_>,
) -> (ApiResource, Option<String>) {
    let mut told = String::new();
    loop {
        match discover(&operator.client, kind).await {
            Ok((resource, path)) => {
                operator.note(|index| index.discover_kind(kind, resource.clone()));
                return (resource, path);
            }
            Err(error) => {
                vision.is_clear(false);
                if error != told {
                    tracing::warn!(kind = kind.kind, error, "Watch fails");
                    told.clone_from(&error);
                }
                let health = Health::Failing(error);
                for scope in operator.settings.scopes() {
                    operator.learn(|index| index.change_kind_health(kind, &scope, &health));
                }
            }
        }
        time::sleep(RETRY).await;
    }
}

async fn discover(client: &Client, kind: &Kind) -> Result<(ApiResource, Option<String>), String> {
    let name = format!("{} of {}", kind.kind, kind.api_version);
    let (resource, capabilities) =
        discovery::pinned_kind(client, &kind.gvk())
            .await
            .map_err(|error| match error {
                kube::Error::Api(status) if status.code != 404 => status.message,
                kube::Error::Api(_) | kube::Error::Discovery(_) => {
                    format!("the API server knows no kind {name}")
                }
                other => other.to_string(),
            })?;
    let has_scale = |(subresource, _): &(ApiResource, _)| subresource.plural == "scale";
    if !capabilities.subresources.iter().any(has_scale) {
        return Err(format!("{name} has no /scale subresource"));
    }
    let path = replicas_path(client, &resource).await;
    let path = path.map_err(|error| error.to_string())?;
    Ok((resource, path))
}

/// As its definition says, where there is one and we may read it. `None` is known to nobody here.
async fn replicas_path(client: &Client, resource: &ApiResource) -> kube::Result<Option<String>> {
    let definitions = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    ));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &definitions);
    let name = format!("{}.{}", resource.plural, resource.group);
    match api.get(&name).await {
        Ok(definition) => Ok(defined_path(&definition, &resource.version)),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            Ok(is_well_known(resource).then(|| REPLICAS.into()))
        }
        Err(error) => Err(error),
    }
}

fn defined_path(definition: &DynamicObject, version: &str) -> Option<String> {
    let versions = definition.data["spec"]["versions"].as_array()?;
    let version = versions.iter().find(|known| known["name"] == version)?;
    let path = version.pointer("/subresources/scale/specReplicasPath")?;
    Some(path.as_str()?.replace('.', "/"))
}

/// Kubernetes' own kinds, and Argo's.
fn is_well_known(resource: &ApiResource) -> bool {
    matches!(resource.group.as_str(), "" | "apps" | "argoproj.io")
}

/// A target without a count of replicas has one, if this is where they are counted. Kinds that count
/// their ready replicas leave a zero out.
fn strip(object: &DynamicObject, resource: &ApiResource, path: Option<&str>) -> TargetFacts {
    let number = |path: &str| object.data.pointer(path)?.as_i64();
    let count = |path: &str| -> Option<i32> { number(path)?.try_into().ok() };
    let counts_ready = matches!(resource.group.as_str(), "apps" | "argoproj.io");
    TargetFacts {
        uid: object.metadata.uid.as_deref().map(Into::into),
        replicas: match path {
            Some(path) => Some(count(path).unwrap_or(1)),
            None => count(REPLICAS),
        },
        ready: count("/status/readyReplicas").or(counts_ready.then_some(0)),
        lagging: number("/status/observedGeneration")
            .is_some_and(|seen| Some(seen) < object.metadata.generation),
        readiness: readiness(&object.data["spec"]).map(Arc::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn replicas(spec: Value, path: Option<&str>) -> Option<i32> {
        let gvk = GroupVersionKind::gvk("example.com", "v1", "Widget");
        let resource = ApiResource::from_gvk(&gvk);
        let object = DynamicObject::new("web", &resource).data(json!({"spec": spec}));
        strip(&object, &resource, path).replicas
    }

    #[test]
    fn replicas_are_unknown_where_nobody_knows_the_place() {
        assert_eq!(replicas(json!({"size": 0}), Some("/spec/size")), Some(0));
        assert_eq!(replicas(json!({}), Some("/spec/size")), Some(1));
        assert_eq!(replicas(json!({"replicas": 0}), None), Some(0));
        assert_eq!(
            replicas(json!({"size": 0}), None),
            None,
            "or it would be taken for awake while it sleeps"
        );
    }

    #[test]
    fn the_place_is_known_of_kinds_that_everybody_has() {
        let known = |group: &str| {
            let gvk = GroupVersionKind::gvk(group, "v1", "Widget");
            is_well_known(&ApiResource::from_gvk(&gvk))
        };
        assert!(known("apps") && known("") && known("argoproj.io"));
        assert!(!known("example.com"));
    }
}
