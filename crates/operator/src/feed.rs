//! The watch of one kind, over all scopes that we may see, into the index.

use crate::{
    index::{Index, Touched},
    metrics::Vision,
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
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Objects that are held unstripped at once while a kind is listed.
const PAGE: u32 = 200;

pub(crate) struct Feed<'a> {
    pub(crate) operator: &'a Operator,
    pub(crate) name: &'a str,
    pub(crate) vision: Vision<'a>,
    pub(crate) scopes: Vec<Scope>,
    /// Which of the kind, by label; empty means all.
    pub(crate) selector: &'a str,
}

// === impl Feed ===

impl Feed<'_> {
    /// Feeds the index until it is dropped.
    pub(crate) async fn watch<K, F>(
        self,
        api: impl Fn(&Scope) -> Api<K>,
        strip: impl Fn(K) -> F,
        tell: impl Fn(&mut Index, Change<F>) -> Touched,
        tell_health: impl Fn(&mut Index, &Scope, &Health) -> Touched,
        settled: impl Fn(),
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let metrics = &self.operator.metrics;
        let _watches = metrics.watches(self.name, self.scopes.len());
        let healths = Mutex::new(vec![Health::Starting; self.scopes.len()]);
        let watches = self.scopes.iter().enumerate().map(|(at, scope)| {
            let report = {
                let (healths, tell_health) = (&healths, &tell_health);
                let (vision, settled) = (&self.vision, &settled);
                move |health: Health| {
                    if let Some(error) = health.trouble() {
                        tracing::warn!(kind = self.name, ?scope, error, "Watch fails");
                    }
                    self.operator
                        .learn(|index| tell_health(index, scope, &health));
                    let mut healths = healths.lock();
                    healths[at] = health;
                    let well = healths.iter().all(|health| *health == Health::Synced);
                    vision.is_clear(well);
                    if Health::are_settled(&healths) {
                        settled();
                    }
                }
            };
            let tell = |change| {
                let touched = self.operator.learn(|index| tell(index, change));
                metrics.handled(self.name, &touched);
            };
            let config = watcher::Config::default()
                .page_size(PAGE)
                .labels(self.selector);
            watch(api(scope), scope.clone(), config, &strip, tell, report)
        });
        future::join_all(watches).await;
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
