//! The parts, put together.

use crate::{
    apply::Resting,
    clock,
    index::{Index, Touched},
    metrics::Metrics,
    prometheus::Prometheus,
    queue::Queue,
    say::Criers,
    settings::Settings,
    wake::Strangers,
};
use elasti_runtime::{lease::Claim, watch::Key};
use jiff::Timestamp;
use kube::{
    Client,
    runtime::events::{Recorder, Reporter},
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap},
    mem,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Notify;

/// What every part shares.
pub(crate) struct Operator {
    /// For reading, and for what any replica may do.
    pub(crate) client: Client,
    /// For what only the leader may do.
    pub(crate) writer: Client,
    pub(crate) claim: Claim,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) prometheus: Prometheus,
    pub(crate) recorder: Recorder,
    pub(crate) criers: Criers,
    /// ElastiServices to be reconciled.
    pub(crate) work: Queue,
    /// ElastiServices whose triggers are to be asked.
    pub(crate) questions: Queue,
    /// ElastiServices that somebody has knocked for.
    pub(crate) wakes: Arc<Queue>,
    /// ElastiServices whose statuses are left for when nobody waits for long to be woken.
    put_off: Mutex<BTreeSet<Key>>,
    /// Resolvers that are to be seen to accept connections.
    pub(crate) dials: Queue<SocketAddr>,
    /// How often, and since when.
    pub(crate) dial_failures: Mutex<HashMap<SocketAddr, (u32, Timestamp)>>,
    pub(crate) resting: Resting,
    /// Whether what earlier leaders wrote down is known.
    pub(crate) in_office: AtomicBool,
    pub(crate) strangers: Strangers,
    /// The set of target kinds may have changed.
    pub(crate) kinds_changed: Notify,
    /// Whether any ElastiService names a ScaledObject may have changed.
    pub(crate) keda_wanted: Notify,
    index: Mutex<Index>,
}

// === impl Operator ===

impl Operator {
    pub(crate) fn new(
        client: Client,
        writer: Client,
        claim: Claim,
        settings: Settings,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        let resolver = Key::new(&settings.resolver_namespace, &settings.resolver_service);
        let reporter = Reporter {
            controller: "elasti-operator".into(),
            instance: Some(settings.identity.clone()),
        };
        Ok(Self {
            prometheus: Prometheus::new(settings.prometheus.clone())?,
            recorder: Recorder::new(client.clone(), reporter),
            criers: Criers::default(),
            index: Mutex::new(Index::new(resolver, settings.port_range(), clock::now())),
            dials: Queue::default(),
            dial_failures: Mutex::default(),
            resting: Resting::new(settings.resting_ports()),
            in_office: AtomicBool::new(false),
            strangers: Strangers::default(),
            work: Queue::default(),
            questions: Queue::default(),
            wakes: Arc::default(),
            put_off: Mutex::default(),
            kinds_changed: Notify::new(),
            keda_wanted: Notify::new(),
            client,
            writer,
            claim,
            settings,
            metrics,
        })
    }

    /// Whether this replica may write now.
    pub(crate) fn leads(&self) -> bool {
        self.in_office.load(Ordering::Acquire) && self.claim.holds()
    }

    /// Until wakes no longer lag.
    pub(crate) fn put_off(&self, key: Key) {
        self.put_off.lock().insert(key);
        self.resume_work();
    }

    /// With what was put off, if wakes do not lag.
    pub(crate) fn resume_work(&self) {
        if !self.wakes.lags() {
            self.work.push_all(mem::take(&mut *self.put_off.lock()));
        }
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&self.index.lock())
    }

    /// Changes what is known, and sees to what that touches.
    pub(crate) fn learn(&self, change: impl FnOnce(&mut Index) -> Touched) -> Touched {
        let touched = change(&mut self.index.lock());
        self.work.push_all(touched.iter().cloned());
        touched
    }

    /// Changes what is known, and nobody needs to look.
    pub(crate) fn note<T>(&self, change: impl FnOnce(&mut Index) -> T) -> T {
        change(&mut self.index.lock())
    }
}
