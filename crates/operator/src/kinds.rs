//! A watch for each kind of targets in use: started with the first ElastiService that names the
//! kind, stopped with the last.

use crate::{
    clock,
    facts::TargetFacts,
    feed::{Feed, dynamic},
    index::{Kind, Touched},
    operator::Operator,
};
use elasti_runtime::watch::Health;
use kube::{
    api::{ApiResource, DynamicObject},
    discovery,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{
    task::{AbortHandle, JoinSet},
    time,
};

const RETRY: Duration = Duration::from_secs(5);

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
                operator.learn(|index| {
                    index.drop_kind(kind);
                    Touched::new()
                });
            }
            keep
        });
        for kind in wanted {
            running
                .entry(kind.clone())
                .or_insert_with(|| watches.spawn(watch_kind(operator.clone(), kind)));
        }
        changed.await;
    }
}

async fn watch_kind(operator: Arc<Operator>, kind: Kind) {
    let resource = discovered(&operator, &kind).await;
    let feed = Feed {
        operator: &operator,
        name: &kind.kind,
        scopes: operator.settings.scopes(),
    };
    feed.watch(
        dynamic(&operator.client, &resource),
        strip,
        |index, change| index.change_targets(&kind, change, clock::now()),
        |index, health| index.change_kind_health(&kind, health),
    )
    .await;
}

/// The API server knows a kind's plural; until it knows the kind, that is reported and asked again.
async fn discovered(operator: &Operator, kind: &Kind) -> ApiResource {
    let wanted = kind.gvk();
    loop {
        match discovery::pinned_kind(&operator.client, &wanted).await {
            Ok((resource, _)) => {
                operator.learn(|index| {
                    index.discover_kind(kind, resource.clone());
                    Touched::new()
                });
                return resource;
            }
            Err(error) => {
                operator.learn(|index| {
                    index.change_kind_health(kind, Health::Failing(error.to_string()))
                });
            }
        }
        time::sleep(RETRY).await;
    }
}

/// A target without a count of replicas has one.
fn strip(object: DynamicObject) -> TargetFacts {
    let replicas = object
        .data
        .pointer("/spec/replicas")
        .and_then(serde_json::Value::as_i64);
    TargetFacts {
        replicas: replicas
            .and_then(|count| count.try_into().ok())
            .unwrap_or(1),
    }
}
