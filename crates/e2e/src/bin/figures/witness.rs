//! What the API server tells of the objects, through watches that are warm before anything is measured.

use crate::population::targets;
use anyhow::{Context, Result, bail};
use elasti_api::{ElastiService, Mode, Phase};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, ListParams},
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use std::{collections::HashSet, fmt::Debug, net::Ipv4Addr, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{self, Instant},
};

const PATIENCE: Duration = Duration::from_secs(1_200);

/// Counts the ElastiServices that are reconciled: in proxy mode, and of the generation that the
/// status speaks of.
pub(crate) struct Proxied {
    api: Api<ElastiService>,
    count: watch::Receiver<(usize, Instant)>,
    waking: watch::Receiver<HashSet<String>>,
    _watch: JoinSet<()>,
}

/// Counts the slices that name a resolver.
pub(crate) struct Listing {
    count: watch::Receiver<(usize, Instant)>,
    _watch: JoinSet<()>,
}

/// Sees targets being scaled.
pub(crate) struct Scales {
    seen: mpsc::UnboundedReceiver<Scaled>,
    _watch: JoinSet<()>,
}

struct Scaled {
    target: String,
    replicas: i64,
    at: Instant,
}

// === impl Proxied ===

impl Proxied {
    pub(crate) fn watch(client: &Client, namespace: &str) -> Self {
        let (tell, count) = watch::channel((0, Instant::now()));
        let (tell_waking, waking) = watch::channel(HashSet::new());
        let mut proxied = HashSet::new();
        let tally = move |event: Event<ElastiService>| {
            if let Event::Apply(object) = &event
                && is_in(object, Phase::Waking)
            {
                tell_waking.send_modify(|waking| {
                    waking.insert(object.name_any());
                });
            }
            let is_news = match event {
                Event::Apply(object) | Event::InitApply(object) if is_proxied(&object) => {
                    proxied.insert(object.name_any())
                }
                Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => {
                    proxied.remove(&object.name_any())
                }
                Event::Init | Event::InitDone => false,
            };
            if is_news {
                tell.send_replace((proxied.len(), Instant::now()));
            }
        };
        let api: Api<ElastiService> = Api::namespaced(client.clone(), namespace);
        let mut watch = JoinSet::new();
        watch.spawn(follow(api.clone(), tally));
        Self {
            api,
            count,
            waking,
            _watch: watch,
        }
    }

    /// Until the status of one says that it is being woken.
    pub(crate) async fn told_of_wake(&mut self, name: &str) -> Result<()> {
        let told = self.waking.wait_for(|waking| waking.contains(name));
        time::timeout(PATIENCE, told)
            .await
            .with_context(|| format!("waiting until the status tells that {name} is woken"))??;
        Ok(())
    }

    /// When they were that many.
    pub(crate) async fn reach(&mut self, count: usize) -> Result<Instant> {
        let enough = self.count.wait_for(|(proxied, _)| *proxied >= count);
        if let Ok(seen) = time::timeout(PATIENCE, enough).await {
            return Ok(seen.context("the watch of the ElastiServices ended")?.1);
        }
        bail!(
            "only {} of {count} were in proxy mode in time",
            self.count.borrow().0
        )
    }

    /// Names of those whose targets sleep.
    pub(crate) async fn asleep(&self) -> Result<HashSet<String>> {
        let all = self.api.list(&ListParams::default()).await?;
        let asleep = all.iter().filter(|object| is_in(object, Phase::Asleep));
        Ok(asleep.map(ResourceExt::name_any).collect())
    }
}

fn is_in(object: &ElastiService, phase: Phase) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| status.phase == Some(phase))
}

fn is_proxied(object: &ElastiService) -> bool {
    object.status.as_ref().is_some_and(|status| {
        status.mode == Some(Mode::Proxy) && status.observed_generation == object.metadata.generation
    })
}

// === impl Listing ===

impl Listing {
    pub(crate) fn watch(client: &Client, namespace: &str, resolver: Ipv4Addr) -> Self {
        let (tell, count) = watch::channel((0, Instant::now()));
        let mut listing = HashSet::new();
        let resolver = resolver.to_string();
        let tally = move |event: Event<EndpointSlice>| {
            match event {
                Event::Apply(slice) | Event::InitApply(slice) if is_listed(&slice, &resolver) => {
                    listing.insert(slice.name_any());
                }
                Event::Apply(slice) | Event::InitApply(slice) | Event::Delete(slice) => {
                    listing.remove(&slice.name_any());
                }
                Event::Init | Event::InitDone => {}
            }
            tell.send_replace((listing.len(), Instant::now()));
        };
        let mut watch = JoinSet::new();
        watch.spawn(follow(Api::namespaced(client.clone(), namespace), tally));
        Self {
            count,
            _watch: watch,
        }
    }

    /// When they were that many.
    pub(crate) async fn reach(&mut self, count: usize) -> Result<Instant> {
        let reached = self.count.wait_for(|(listing, _)| *listing == count);
        let reached = time::timeout(PATIENCE, reached).await;
        Ok(reached.context("waiting for the slices")??.1)
    }
}

/// In one of the operator's.
fn is_listed(slice: &EndpointSlice, resolver: &str) -> bool {
    let ours = slice.labels().get("endpointslice.kubernetes.io/managed-by");
    let mut addresses = slice
        .endpoints
        .iter()
        .flat_map(|endpoint| &endpoint.addresses);
    ours.is_some_and(|by| by == "elasti-operator") && addresses.any(|address| address == resolver)
}

// === impl Scales ===

impl Scales {
    pub(crate) async fn watch(client: &Client, namespace: &str) -> Result<Self> {
        let (tell, seen) = mpsc::unbounded_channel();
        let (warm, mut warmed) = watch::channel(false);
        let note = move |event: Event<DynamicObject>| match event {
            Event::Apply(object) => {
                let scaled = Scaled {
                    target: object.name_any(),
                    replicas: object.data["spec"]["replicas"].as_i64().unwrap_or_default(),
                    at: Instant::now(),
                };
                let _ = tell.send(scaled);
            }
            Event::InitDone => {
                warm.send_replace(true);
            }
            Event::Delete(_) | Event::Init | Event::InitApply(_) => {}
        };
        let mut watch = JoinSet::new();
        let api = Api::namespaced_with(client.clone(), namespace, &targets());
        watch.spawn(follow(api, note));
        warmed.wait_for(|warm| *warm).await?;
        Ok(Self {
            seen,
            _watch: watch,
        })
    }

    /// When the last of them was seen to be up.
    pub(crate) async fn all_raised(&mut self, targets: &[String]) -> Result<Instant> {
        let mut left: HashSet<&str> = targets.iter().map(String::as_str).collect();
        let raised = async {
            while let Some(scaled) = self.seen.recv().await {
                if scaled.replicas > 0 && left.remove(&*scaled.target) && left.is_empty() {
                    return Ok(scaled.at);
                }
            }
            bail!("the watch of the targets ended")
        };
        time::timeout(PATIENCE, raised)
            .await
            .context("waiting for all to be scaled up")?
    }

    /// When the target was seen with that many replicas.
    pub(crate) async fn raised(&mut self, target: &str, replicas: i64) -> Result<Instant> {
        let raised = async {
            while let Some(scaled) = self.seen.recv().await {
                if scaled.target == target && scaled.replicas >= replicas {
                    return Ok(scaled.at);
                }
            }
            bail!("the watch of the targets ended")
        };
        time::timeout(Duration::from_secs(30), raised)
            .await
            .with_context(|| format!("waiting for {target} to be scaled up"))?
    }
}

/// Until it is aborted; a watch that breaks is resumed.
async fn follow<K>(api: Api<K>, mut tell: impl FnMut(Event<K>))
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(api, watcher::Config::default());
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => tell(event),
            Err(error) => eprintln!("watching: {error}"),
        }
    }
}
