//! From settings to an operator that works until it is told to stop.

use crate::{
    apply, clock, dial,
    facts::{Declared, ScaledObjectFacts, ServiceFacts, SliceFacts},
    feed::{Feed, dynamic, typed},
    index::Index,
    kinds,
    metrics::Metrics,
    operator::Operator,
    reconcile,
    settings::Settings,
    triggers, wake,
};
use elasti_api::{ElastiService, names::PRIVATE_LABEL};
use elasti_runtime::{
    admin::Pages,
    client,
    lease::Claim,
    readiness::Readiness,
    watch::{Change, Key},
};
use futures::future::join_all;
use http::{Method, Request};
use k8s_openapi::{
    Resource,
    api::{core::v1::Service, discovery::v1::EndpointSlice},
};
use kube::{
    Client, Config,
    api::{ApiResource, DynamicObject},
    client::Body,
};
use prometheus::Registry;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time;
use tower::{BoxError, filter::FilterLayer};

const RECONCILERS: usize = 32;
const WAKERS: usize = 16;
const ASKERS: usize = 128;
const DIALLERS: usize = 32;
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// The operator and the routes of its wake server.
pub struct Parts {
    pub(crate) operator: Arc<Operator>,
    pub(crate) readiness: Readiness,
}

impl Parts {
    pub fn new(
        config: Config,
        claim: Claim,
        settings: Settings,
        registry: &Registry,
        readiness: Readiness,
    ) -> anyhow::Result<Self> {
        let metrics = Metrics::new(registry)?;
        let client = client::builder(config.clone())?.build();
        let writer = writer(config, claim.clone())?;
        let operator = Operator::new(client, writer, claim, settings, metrics)?;
        Ok(Self {
            operator: Arc::new(operator),
            readiness,
        })
    }

    /// Wakes that were asked for and are under way, and what is to be said of them.
    pub async fn finish_wakes(&self) {
        self.operator.wakes.empty().await;
        self.operator.criers.finish().await;
    }

    /// Metrics of every ElastiService.
    pub fn pages(&self) -> Pages {
        let ledger = self.operator.metrics.ledger.clone();
        Arc::new(move || Box::new(ledger.pages()))
    }

    pub fn wake_routes(&self) -> axum::Router {
        wake::router(self.operator.clone())
    }

    /// Works until it is dropped.
    pub async fn run(&self) {
        let operator = &*self.operator;
        let repeat = |count| std::iter::repeat_n((), count);
        tokio::join!(
            watch_elasti_services(operator, &self.readiness),
            watch_services(operator, &self.readiness),
            watch_slices(operator, &self.readiness),
            watch_scaled_objects(operator),
            kinds::work(self.operator.clone()),
            take_over(operator),
            join_all(repeat(DIALLERS).map(|()| dial::work(operator))),
            join_all(repeat(RECONCILERS).map(|()| reconcile::work(operator))),
            join_all(repeat(WAKERS).map(|()| wake::work(operator))),
            join_all(repeat(ASKERS).map(|()| triggers::work(operator))),
        );
    }
}

/// A client that writes only while this replica leads: the claim may end between any two calls.
fn writer(config: Config, claim: Claim) -> kube::Result<Client> {
    let gate = FilterLayer::new(move |request: Request<Body>| {
        if request.method() == Method::GET || claim.holds() {
            Ok::<_, BoxError>(request)
        } else {
            Err("this replica does not lead any more".into())
        }
    });
    let builder = client::builder(config)?;
    Ok(builder.with_layer(&gate).build())
}

/// A new leader learns what earlier ones wrote down, and looks at everything.
async fn take_over(operator: &Operator) {
    let mut leads = operator.claim.watch();
    loop {
        let leading = *leads.borrow_and_update();
        operator.in_office.store(false, Ordering::Release);
        if leading {
            tokio::select! {
                () = take_office(operator) => {}
                _ = leads.changed() => continue,
            }
        }
        if leads.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn take_office(operator: &Operator) {
    let map = operator.settings.resting_ports();
    let resting = loop {
        match apply::read_resting(&operator.client, &map).await {
            Ok(resting) => break resting,
            Err(error) if error.category() == "forbidden" => {
                tracing::error!(%error, "Cannot read which resolver ports rest");
                break BTreeMap::new();
            }
            Err(error) => tracing::warn!(%error, "Could not read which resolver ports rest"),
        }
        time::sleep(RETRY).await;
    };
    operator.note(|index| {
        index.take_office();
        for (port, since) in &resting {
            index.note_resting(*port, *since);
        }
    });
    operator.resting.learn(resting).await;
    operator.in_office.store(true, Ordering::Release);
    operator.learn(|index| index.everyone());
}

async fn watch_elasti_services(operator: &Operator, readiness: &Readiness) {
    let resource = ApiResource::erase::<ElastiService>(&());
    let listed = listed(readiness, "ElastiService");
    feed(operator, &resource.api_version, "ElastiService")
        .watch(
            dynamic(&operator.client, &resource),
            |object: DynamicObject| Declared::from(object),
            |index, change| {
                let begun = newcomers(index, &change);
                operator.metrics.declared(index, &change);
                let touched = index.change_declared(change, clock::now());
                operator.kinds_changed.notify_one();
                operator.keda_wanted.notify_one();
                for key in begun {
                    if let Some(Declared::Understood(object)) = index.declared(&key) {
                        triggers::begin(operator, &key, object);
                    }
                }
                touched
            },
            |index, scope, health| index.change_sight("ElastiService", scope, health, clock::now()),
            listed,
        )
        .await;
}

/// Whose triggers are yet to be asked for the first time, or are others than before.
fn newcomers(index: &Index, change: &Change<Declared>) -> Vec<Key> {
    let is_new = |key: &Key, declared: &Declared| match (index.declared(key), declared) {
        (Some(Declared::Understood(before)), Declared::Understood(now)) => before.spec != now.spec,
        _ => true,
    };
    match change {
        Change::Applied(key, declared) => is_new(key, declared)
            .then(|| key.clone())
            .into_iter()
            .collect(),
        Change::Deleted(_) => Vec::new(),
        Change::Listed(_, all) => {
            let new = all.iter().filter(|(key, declared)| is_new(key, declared));
            new.map(|(key, _)| key.clone()).collect()
        }
    }
}

async fn watch_services(operator: &Operator, readiness: &Readiness) {
    let listed = listed(readiness, "Service");
    feed(operator, Service::API_VERSION, "Service")
        .watch(
            typed::<Service>(&operator.client),
            ServiceFacts::from,
            |index, change| index.change_services(change),
            |index, scope, health| index.change_sight("Service", scope, health, clock::now()),
            listed,
        )
        .await;
}

async fn watch_slices(operator: &Operator, readiness: &Readiness) {
    let listed = listed(readiness, "EndpointSlice");
    // Those of private services say what those of the public ones do.
    let selector = format!("!{PRIVATE_LABEL}");
    let feed = Feed {
        scopes: operator.settings.slice_scopes(),
        selector: &selector,
        ..feed(operator, EndpointSlice::API_VERSION, "EndpointSlice")
    };
    feed.watch(
        typed::<EndpointSlice>(&operator.client),
        SliceFacts::from,
        |index, change| {
            let touched = index.change_slices(change, clock::now());
            operator.metrics.ready_resolvers(index);
            touched
        },
        |index, scope, health| index.change_sight("EndpointSlice", scope, health, clock::now()),
        listed,
    )
    .await;
}

/// Only while somebody uses KEDA: elsewhere its kind may not even exist.
async fn watch_scaled_objects(operator: &Operator) {
    let resource = apply::scaled_objects();
    loop {
        keda_is(operator, true).await;
        let watch = feed(operator, &resource.api_version, "ScaledObject").watch(
            dynamic(&operator.client, &resource),
            ScaledObjectFacts::from,
            |index, change| index.change_scaled_objects(change),
            |index, scope, health| index.change_scaled_objects_health(scope, health),
            || {},
        );
        tokio::select! {
            () = watch => {}
            () = keda_is(operator, false) => {}
        }
        operator.note(Index::drop_scaled_objects);
    }
}

async fn keda_is(operator: &Operator, used: bool) {
    while operator.read(Index::uses_keda) != used {
        operator.keda_wanted.notified().await;
    }
}

fn feed<'a>(operator: &'a Operator, api_version: &'a str, name: &'a str) -> Feed<'a> {
    Feed {
        operator,
        name,
        vision: operator.metrics.vision(api_version, name),
        scopes: operator.settings.scopes(),
        selector: "",
    }
}

/// Ready after the first full list; later trouble is told by conditions, metrics and logs.
fn listed(readiness: &Readiness, kind: &str) -> impl Fn() + use<> {
    let pending = parking_lot::Mutex::new(Some(readiness.register(kind)));
    move || drop(pending.lock().take())
}
