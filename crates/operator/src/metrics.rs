//! Metrics, by KubeElasti's names.

use crate::apply::{Done, Error};
use elasti_api::{ElastiService, Mode};
use elasti_runtime::watch::{Health, Key};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};
use std::time::Duration;

pub(crate) struct Metrics {
    reconcile: HistogramVec,
    scale: IntCounterVec,
    mode: IntGaugeVec,
    watch: IntGaugeVec,
}

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let buckets = vec![0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0];
        let reconcile =
            HistogramOpts::new("elasti_operator_reconcile", "Seconds that a reconcile took")
                .buckets(buckets);
        let metrics = Self {
            reconcile: HistogramVec::new(reconcile, &["crd_name", "error"])?,
            scale: counter(
                "elasti_operator_scale_counter",
                "Scale calls",
                &["service_name", "namespace", "target", "error"],
            )?,
            mode: gauge(
                "elasti_operator_mode",
                "1 is proxy, 0 is serve",
                &["crd_name"],
            )?,
            watch: gauge(
                "elasti_operator_watch_healthy",
                "1 while the watch of a kind is in step with the API server",
                &["kind"],
            )?,
        };
        registry.register(Box::new(metrics.reconcile.clone()))?;
        registry.register(Box::new(metrics.scale.clone()))?;
        registry.register(Box::new(metrics.mode.clone()))?;
        registry.register(Box::new(metrics.watch.clone()))?;
        Ok(metrics)
    }

    pub(crate) fn reconciled(&self, key: &Key, fine: bool, took: Duration) {
        let error = if fine { "" } else { "failed" };
        self.reconcile
            .with_label_values(&[&key.to_string(), error])
            .observe(took.as_secs_f64());
    }

    pub(crate) fn scaled(&self, key: &Key, object: &ElastiService, done: &Result<Done, Error>) {
        let target = &object.spec.scale_target_ref;
        let error = match done {
            Ok(Done::Scaled(_)) => "success",
            Ok(Done::Quietly) => return,
            Err(error) => error.category(),
        };
        let target = format!("{}-{}", target.kind(), target.name);
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

    pub(crate) fn watch_health(&self, kind: &str, health: &Health) {
        self.watch
            .with_label_values(&[kind])
            .set((*health == Health::Synced).into());
    }

    /// Of an ElastiService that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        let name = key.to_string();
        let _ = self.mode.remove_label_values(&[&name]);
        for error in ["", "failed"] {
            let _ = self.reconcile.remove_label_values(&[&name, error]);
        }
    }
}

fn counter(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

fn gauge(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    IntGaugeVec::new(Opts::new(name, help), labels)
}
