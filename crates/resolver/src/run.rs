//! From settings to a resolver that works until it is told to stop.

use crate::{
    directory::{Declared, Dial, Directory, Ports, Ready},
    internal, knock,
    listen::{self, Listeners, farewell},
    metrics::{Metrics, Queued},
    proxy::{self, Proxy},
    room::{House, Limits},
    route::Table,
};
use anyhow::{Context, Result};
use elasti_api::{ElastiService, Release, names::PRIVATE_LABEL};
use elasti_runtime::{
    readiness::Readiness,
    watch::{Change, Health, Key, Scope, watch},
};
use futures::future::join_all;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject},
    core::NamespaceResourceScope,
    runtime::watcher,
};
use parking_lot::Mutex;
use prometheus::Registry;
use serde::de::DeserializeOwned;
use std::{
    collections::HashMap, fmt::Debug, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc, watch as channel},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[derive(Clone, Debug)]
pub struct Settings {
    pub proxy_port: u16,
    pub proxy: proxy::Settings,
    pub dial: Dial,
    /// Of services that do not say.
    pub release: Release,
    pub limits: Limits,
    /// Requests that wait, in all.
    pub seats: usize,
    pub connections: usize,
    /// Empty means all.
    pub watch_namespaces: Vec<String>,
    pub operator_namespace: String,
    pub operator_service: String,
    pub operator_port: u16,
    pub token: Option<PathBuf>,
    /// For the rest of the cluster to notice that this resolver ends.
    pub farewell: Duration,
    /// For what is held and under way after that.
    pub grace: Duration,
}

/// The resolver and the routes of its internal server.
pub struct Parts {
    client: Client,
    settings: Settings,
    directory: Arc<Directory>,
    connections: Arc<Semaphore>,
    rooms: mpsc::Receiver<Arc<crate::room::Room>>,
    metrics: Arc<Metrics>,
    readiness: Readiness,
}

/// Rooms whose first knock has not begun yet.
const KNOCKS: usize = 65_536;
/// Changes that come together make one table.
const TOGETHER: Duration = Duration::from_millis(10);

// === impl Parts ===

impl Parts {
    pub fn new(
        client: Client,
        settings: Settings,
        registry: &Registry,
        readiness: Readiness,
    ) -> Result<Self> {
        let (knocks, rooms) = mpsc::channel(KNOCKS);
        let house = House::new(settings.seats, knocks);
        let metrics = Arc::new(Metrics::new(registry)?);
        let directory = Directory::new(
            house,
            settings.limits,
            settings.dial,
            settings.release,
            metrics.clone(),
        );
        let directory = Arc::new(directory);
        let connections = Arc::new(Semaphore::new(settings.connections));
        let queued = Queued::new(directory.clone(), connections.clone())?;
        registry.register(Box::new(queued))?;
        Ok(Self {
            connections,
            directory,
            metrics,
            client,
            settings,
            rooms,
            readiness,
        })
    }

    pub fn internal_routes(&self) -> axum::Router {
        internal::router(self.directory.clone())
    }

    /// Works until `shutdown`, then ends in order.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        let Self {
            client,
            settings,
            directory,
            connections,
            rooms,
            metrics,
            readiness,
        } = self;
        let tasks = TaskTracker::new();
        let (drain, stop) = (CancellationToken::new(), CancellationToken::new());
        let (tables, table) = channel::channel(Arc::new(Table::default()));
        let (operators, known) = channel::channel(Vec::new());
        let proxy = Proxy::new(
            settings.proxy.clone(),
            table.clone(),
            metrics.clone(),
            tasks.clone(),
            shutdown.clone(),
            drain.clone(),
        );
        let listeners = Listeners {
            proxy: proxy.clone(),
            tasks: tasks.clone(),
            connections,
            stop: stop.clone(),
            arrivals: Arc::default(),
        };
        let named = listen::bind(settings.proxy_port)
            .with_context(|| format!("opening the proxy port {}", settings.proxy_port))?;
        let bound = readiness.register("listeners");
        let operators_known = knock::Operators::new(known, settings.token.clone(), metrics.clone());
        let view = View {
            client: &client,
            settings: &settings,
            directory: &directory,
            readiness: &readiness,
        };
        let synced = view.watches(operators);
        let follow = async {
            synced.listed.cancelled().await;
            tables.send_replace(Arc::new(directory.table()));
            // Before, every name would be unknown.
            tokio::join!(
                listeners.named(named),
                listeners.follow(table, bound),
                async {
                    loop {
                        directory.changed().await;
                        sleep(TOGETHER).await;
                        tables.send_replace(Arc::new(directory.table()));
                    }
                }
            );
        };
        let work = async {
            tokio::join!(
                synced.work,
                follow,
                knock::work(rooms, Arc::new(operators_known), directory.clone()),
                proxy.upstreams.tidy(),
            );
        };
        let end = async {
            shutdown.cancelled().await;
            readiness.fail();
            // Connections still come until every data plane knows.
            farewell(&listeners.arrivals, settings.farewell).await;
            stop.cancel();
            drain.cancel();
            proxy.upstreams.close();
            tasks.close();
            let _ = timeout(settings.grace, tasks.wait()).await;
        };
        tokio::select! {
            () = work => {}
            () = end => {}
        }
        Ok(())
    }
}

struct View<'a> {
    client: &'a Client,
    settings: &'a Settings,
    directory: &'a Directory,
    readiness: &'a Readiness,
}

/// The watches, and when all of them have told everything once.
struct Watches<F> {
    work: F,
    listed: CancellationToken,
}

impl<'a> View<'a> {
    fn watches(
        self,
        operators: channel::Sender<Vec<SocketAddr>>,
    ) -> Watches<impl Future<Output = ()> + 'a> {
        let listed = CancellationToken::new();
        let done = Mutex::new((0, 3, listed.clone()));
        let work = async move {
            let seen = || {
                let mut done = done.lock();
                done.0 += 1;
                if done.0 == done.1 {
                    done.2.cancel();
                }
            };
            let (directory, private) = (
                self.directory,
                watcher::Config::default().labels(PRIVATE_LABEL),
            );
            let resource = ApiResource::erase::<ElastiService>(&());
            let declared = self.feed(
                "ElastiService",
                |scope| dynamic(self.client, scope, &resource),
                watcher::Config::default(),
                Declared::read,
                |change| directory.change_declared(understood(change)),
                &seen,
            );
            let ports = self.feed(
                "Service",
                |scope| typed::<Service>(self.client, scope),
                private.clone(),
                Ports::from,
                |change| directory.change_ports(change),
                &seen,
            );
            let ready = self.feed(
                "EndpointSlice",
                |scope| typed::<EndpointSlice>(self.client, scope),
                private,
                Ready::from,
                |change| directory.change_ready(change),
                &seen,
            );
            tokio::join!(declared, ports, ready, self.operators(operators));
        };
        Watches { work, listed }
    }

    async fn feed<K, F>(
        &self,
        kind: &'static str,
        api: impl Fn(&Scope) -> Api<K>,
        config: watcher::Config,
        strip: impl Fn(K) -> F,
        tell: impl Fn(Change<F>),
        seen: &impl Fn(),
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let pending = Mutex::new(Some(self.readiness.register(kind)));
        let scopes = self.settings.scopes();
        let healths = Mutex::new(vec![Health::Starting; scopes.len()]);
        let watches = scopes.iter().enumerate().map(|(at, scope)| {
            let (pending, healths) = (&pending, &healths);
            let report = move |health: Health| {
                if let Some(error) = health.trouble() {
                    tracing::warn!(kind, ?scope, error, "Watch fails");
                }
                let mut healths = healths.lock();
                healths[at] = health;
                if Health::are_settled(&healths) && pending.lock().take().is_some() {
                    seen();
                }
            };
            watch(
                api(scope),
                scope.clone(),
                config.clone(),
                &strip,
                &tell,
                report,
            )
        });
        join_all(watches).await;
    }

    /// Where replicas of the operator are.
    async fn operators(&self, tell: channel::Sender<Vec<SocketAddr>>) {
        let settings = self.settings;
        let api: Api<EndpointSlice> =
            Api::namespaced(self.client.clone(), &settings.operator_namespace);
        let of_operator = format!("kubernetes.io/service-name={}", settings.operator_service);
        let config = watcher::Config::default().labels(&of_operator);
        let scope = Scope::Namespace(settings.operator_namespace.as_str().into());
        let slices: Mutex<HashMap<Key, Ready>> = Mutex::default();
        let learn = |change| {
            let mut slices = slices.lock();
            crate::directory::differences(&mut slices, change);
            let replicas = slices.values().flat_map(|slice| &slice.pods);
            let addresses = replicas.filter(|pod| pod.ready).map(|pod| pod.address);
            let port = settings.operator_port;
            let known = addresses.map(|ip| SocketAddr::new(ip, port)).collect();
            tell.send_replace(known);
        };
        let pending = Mutex::new(Some(self.readiness.register("operator")));
        let report = |health: Health| {
            if let Some(error) = health.trouble() {
                tracing::warn!(error, "Cannot see the operator's replicas");
            }
            if Health::are_settled(&[health]) {
                pending.lock().take();
            }
        };
        watch(api, scope, config, Ready::from, learn, report).await;
    }
}

/// What is not understood is left out; its condition says so.
fn understood(change: Change<Option<Declared>>) -> Change<Arc<Declared>> {
    match change {
        Change::Applied(key, Some(declared)) => Change::Applied(key, Arc::new(declared)),
        Change::Applied(key, None) | Change::Deleted(key) => Change::Deleted(key),
        Change::Listed(scope, all) => {
            let known = all.into_iter();
            let known = known.filter_map(|(key, declared)| Some((key, Arc::new(declared?))));
            Change::Listed(scope, known.collect())
        }
    }
}

fn typed<K>(client: &Client, scope: &Scope) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
{
    match scope {
        Scope::All => Api::all(client.clone()),
        Scope::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
    }
}

fn dynamic(client: &Client, scope: &Scope, resource: &ApiResource) -> Api<DynamicObject> {
    match scope {
        Scope::All => Api::all_with(client.clone(), resource),
        Scope::Namespace(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

// === impl Settings ===

impl Settings {
    fn scopes(&self) -> Vec<Scope> {
        if self.watch_namespaces.is_empty() {
            return vec![Scope::All];
        }
        let namespaces = self.watch_namespaces.iter();
        namespaces
            .map(|namespace| Scope::Namespace(namespace.as_str().into()))
            .collect()
    }
}
