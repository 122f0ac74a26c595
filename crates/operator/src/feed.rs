//! The watch of one kind, over all scopes that we may see, into the index.

use crate::{
    index::{Index, Touched},
    operator::Operator,
};
use elasti_runtime::watch::{Change, Health, Scope, watch};
use futures::future;
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject},
    core::NamespaceResourceScope,
    runtime::watcher,
};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tokio::sync::watch as channel;

pub(crate) struct Feed<'a> {
    pub(crate) operator: &'a Operator,
    pub(crate) name: &'a str,
    pub(crate) scopes: Vec<Scope>,
}

// === impl Feed ===

impl Feed<'_> {
    /// Feeds the index until it is dropped.
    pub(crate) async fn watch<K, F>(
        self,
        api: impl Fn(&Scope) -> Api<K>,
        strip: impl Fn(K) -> F,
        tell: impl Fn(&mut Index, Change<F>) -> Touched,
        tell_health: impl Fn(&mut Index, Health) -> Touched,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let (health, mut healthy) = channel::channel(Health::Starting);
        let watches = self.scopes.iter().map(|scope| {
            watch(
                api(scope),
                scope.clone(),
                watcher::Config::default(),
                health.clone(),
                &strip,
                |change| {
                    self.operator.learn(|index| tell(index, change));
                },
            )
        });
        let follow = async {
            while healthy.changed().await.is_ok() {
                let health = healthy.borrow_and_update().clone();
                if let Health::Failing(error) = &health {
                    tracing::warn!(kind = self.name, error, "Watch fails");
                }
                self.operator.metrics.watch_health(self.name, &health);
                self.operator.learn(|index| tell_health(index, health));
            }
        };
        tokio::join!(future::join_all(watches), follow);
    }
}

/// The API of a kind that is known here.
pub(crate) fn typed<K>(client: &Client) -> impl Fn(&Scope) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
{
    move |scope| match scope {
        Scope::All => Api::all(client.clone()),
        Scope::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
    }
}

/// The API of a kind that users chose.
pub(crate) fn dynamic(
    client: &Client,
    resource: &ApiResource,
) -> impl Fn(&Scope) -> Api<DynamicObject> {
    move |scope| match scope {
        Scope::All => Api::all_with(client.clone(), resource),
        Scope::Namespace(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
    }
}
