//! Metrics, by KubeElasti's names. Whatever bears the name of an ElastiService goes with it.

use crate::{
    apply::{Done, Error},
    facts::Declared,
    index::{Index, Touched},
};
use elasti_api::{ElastiService, Mode};
use elasti_runtime::watch::{Change, Key};
use parking_lot::Mutex;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::Collector,
};
use std::{collections::BTreeSet, time::Duration};

pub(crate) struct Metrics {
    reconcile: HistogramVec,
    finalizer: IntCounterVec,
    update: IntCounterVec,
    informer: IntCounterVec,
    informer_handler: IntCounterVec,
    informers: IntGaugeVec,
    scale: IntCounterVec,
    mode: IntGaugeVec,
    watch: IntGaugeVec,
    knock: IntCounterVec,
    /// Kinds whose events were handled.
    kinds: Mutex<BTreeSet<String>>,
}

/// The watches of one kind, counted while they live.
pub(crate) struct Watches(IntGauge, i64);

const SUCCESS: &str = "success";
const MODES: [&str; 3] = ["", "serve", "proxy"];
const BUCKETS: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0];

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let reconcile =
            HistogramOpts::new("elasti_operator_reconcile", "Seconds that a reconcile took")
                .buckets(BUCKETS.into());
        let reconcile = HistogramVec::new(reconcile, &["crd_name", "error"])?;
        Ok(Self {
            reconcile: registered(registry, reconcile)?,
            finalizer: counter(
                registry,
                "CRD_finalizer_counter",
                "Finalizers added and removed",
                &["crd_name", "error"],
            )?,
            update: counter(
                registry,
                "CRD_update_counter",
                "Status updates, by the mode written",
                &["crd_name", "mode", "error"],
            )?,
            informer: counter(
                registry,
                "informer_counter",
                "ElastiServices that came into sight",
                &["crd_name", "action", "error"],
            )?,
            informer_handler: counter(
                registry,
                "informer_handler_counter",
                "Watch events that concerned an ElastiService, by kind",
                &["crd_name", "key", "error"],
            )?,
            informers: gauge(
                registry,
                "informer_count",
                "Open watches, by kind",
                &["informer_name"],
            )?,
            scale: counter(
                registry,
                "scale_counter",
                "Scale calls",
                &["service_name", "namespace", "target", "error"],
            )?,
            mode: gauge(registry, "mode", "1 is proxy, 0 is serve", &["crd_name"])?,
            watch: gauge(
                registry,
                "watch_healthy",
                "1 while the watch of a kind is in step with the API server",
                &["kind"],
            )?,
            knock: counter(
                registry,
                "knock_counter",
                "Calls of the wake server for a service, by what became of them",
                &["result"],
            )?,
            kinds: Mutex::default(),
        })
    }

    pub(crate) fn reconciled(&self, key: &Key, error: Option<&Error>, took: Duration) {
        self.reconcile
            .with_label_values(&[&key.to_string(), category(error)])
            .observe(took.as_secs_f64());
    }

    pub(crate) fn finalized(&self, key: &Key, error: Option<&Error>) {
        self.finalizer
            .with_label_values(&[&key.to_string(), category(error)])
            .inc();
    }

    pub(crate) fn updated(&self, key: &Key, mode: Option<Mode>, error: Option<&Error>) {
        self.update
            .with_label_values(&[&key.to_string(), word(mode), category(error)])
            .inc();
    }

    /// What a change of the ElastiServices brings and takes away.
    pub(crate) fn declared(&self, index: &Index, change: &Change<Declared>) {
        match change {
            Change::Applied(key, declared) => self.came(index, key, declared),
            Change::Deleted(key) => self.left(index, key),
            Change::Listed(scope, all) => {
                let listed: BTreeSet<&Key> = all.iter().map(|(key, _)| key).collect();
                for key in index.everyone() {
                    if scope.covers(&key) && !listed.contains(&key) {
                        self.left(index, &key);
                    }
                }
                for (key, declared) in all {
                    self.came(index, key, declared);
                }
            }
        }
    }

    fn came(&self, index: &Index, key: &Key, declared: &Declared) {
        if index.declared(key).is_none() {
            let error = match declared {
                Declared::Understood(_) => SUCCESS,
                Declared::Malformed(_) => "malformed",
            };
            self.informer
                .with_label_values(&[&key.to_string(), "start", error])
                .inc();
        }
    }

    pub(crate) fn handled(&self, kind: &str, touched: &Touched) {
        if touched.is_empty() {
            return;
        }
        self.kinds.lock().insert(kind.to_owned());
        for key in touched {
            self.informer_handler
                .with_label_values(&[&key.to_string(), kind, SUCCESS])
                .inc();
        }
    }

    pub(crate) fn watches(&self, kind: &str, count: usize) -> Watches {
        let gauge = self.informers.with_label_values(&[kind]);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        gauge.add(count);
        Watches(gauge, count)
    }

    pub(crate) fn scaled(&self, key: &Key, object: &ElastiService, done: &Result<Done, Error>) {
        let error = match done {
            Ok(Done::Scaled(_)) => SUCCESS,
            Ok(Done::Quietly) => return,
            Err(error) => error.category(),
        };
        let target = target(object);
        let labels = [object.spec.service.as_str(), &key.namespace, &target, error];
        self.scale.with_label_values(&labels).inc();
    }

    pub(crate) fn mode(&self, key: &Key, mode: Option<Mode>) {
        if let Some(mode) = mode {
            self.mode
                .with_label_values(&[&key.to_string()])
                .set((mode == Mode::Proxy).into());
        }
    }

    pub(crate) fn watch_health(&self, kind: &str, well: bool) {
        self.watch.with_label_values(&[kind]).set(well.into());
    }

    pub(crate) fn knocked(&self, result: &str) {
        self.knock.with_label_values(&[result]).inc();
    }

    /// Of an ElastiService that is gone.
    fn left(&self, index: &Index, key: &Key) {
        let name = &*key.to_string();
        if let Some(Declared::Understood(object)) = index.declared(key) {
            let (service, target) = (object.spec.service.as_str(), target(object));
            for error in Error::CATEGORIES.into_iter().chain([SUCCESS]) {
                let labels = [service, &key.namespace, &target, error];
                let _ = self.scale.remove_label_values(&labels);
            }
        }
        let _ = self.mode.remove_label_values(&[name]);
        for error in Error::CATEGORIES.into_iter().chain([SUCCESS, "malformed"]) {
            let _ = self.reconcile.remove_label_values(&[name, error]);
            let _ = self.finalizer.remove_label_values(&[name, error]);
            for mode in MODES {
                let _ = self.update.remove_label_values(&[name, mode, error]);
            }
            let _ = self.informer.remove_label_values(&[name, "start", error]);
        }
        for kind in &*self.kinds.lock() {
            let labels = [name, kind, SUCCESS];
            let _ = self.informer_handler.remove_label_values(&labels);
        }
    }
}

fn target(object: &ElastiService) -> String {
    let target = &object.spec.scale_target_ref;
    format!("{}-{}", target.kind(), target.name)
}

fn category(error: Option<&Error>) -> &'static str {
    error.map_or(SUCCESS, Error::category)
}

fn word(mode: Option<Mode>) -> &'static str {
    match mode {
        None => "",
        Some(Mode::Serve) => "serve",
        Some(Mode::Proxy) => "proxy",
    }
}

fn counter(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    registered(registry, IntCounterVec::new(named(name, help), labels)?)
}

fn gauge(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntGaugeVec> {
    registered(registry, IntGaugeVec::new(named(name, help), labels)?)
}

fn named(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("elasti_operator")
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: C,
) -> prometheus::Result<C> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

// === impl Watches ===

impl Drop for Watches {
    fn drop(&mut self) {
        self.0.sub(self.1);
    }
}
