//! Metrics, by KubeElasti's names and some of our own. No label has a value that a client can choose.

use crate::{directory::Directory, proxy::answer::Refusal, room::Room};
use http::Method;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use std::{sync::Arc, time::Duration};

#[derive(Debug)]
pub struct Metrics {
    requests: HistogramVec,
    hosts: IntCounterVec,
    rpc: IntCounterVec,
    switches: IntCounterVec,
    held: HistogramVec,
    refused: IntCounterVec,
}

/// Who waits, counted when somebody asks.
pub struct Queued {
    directory: Arc<Directory>,
    gauge: IntGaugeVec,
}

const BUCKETS: [f64; 14] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 180.0, 600.0,
];

// === impl Metrics ===

impl Metrics {
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            requests: histogram(
                registry,
                "incoming_requests",
                "Seconds from a request to the head of its answer",
                &[
                    "source",
                    "target",
                    "sourceHost",
                    "targetHost",
                    "namespace",
                    "method",
                    "requestURI",
                    "status",
                    "error",
                ],
            )?,
            hosts: counter(
                registry,
                "host_extraction_count",
                "Requests by what told whose they are: the port, or a name in their head",
                &["extractionType", "source", "hostHeader", "error"],
            )?,
            rpc: counter(
                registry,
                "operator_rpc_count",
                "Knocks at the operator",
                &["error"],
            )?,
            switches: counter(
                registry,
                "traffic_switch_count",
                "Services whose traffic began (true) or ceased (false) to come here",
                &["source", "enabled"],
            )?,
            held: histogram(
                registry,
                "cold_start_seconds",
                "Seconds that a request waited for a sleeping target",
                &["namespace", "source"],
            )?,
            refused: counter(
                registry,
                "refused_count",
                "Requests that got an answer of our own, by reason",
                &["reason"],
            )?,
        })
    }

    pub fn answered(&self, room: &Room, method: &Method, status: u16, took: Duration) {
        let status = status.to_string();
        let labels = [
            &*room.service,
            &*room.service,
            "",
            "",
            &*room.namespace,
            word(method),
            "",
            &status,
            "",
        ];
        self.requests
            .with_label_values(&labels)
            .observe(took.as_secs_f64());
    }

    pub fn refused(&self, room: Option<&Room>, method: &Method, refusal: Refusal, took: Duration) {
        self.refused.with_label_values(&[refusal.label()]).inc();
        let (service, namespace) = room.map_or(("", ""), |room| (&*room.service, &*room.namespace));
        let status = refusal.status().as_u16().to_string();
        let labels = [
            service,
            service,
            "",
            "",
            namespace,
            word(method),
            "",
            &status,
            refusal.label(),
        ];
        self.requests
            .with_label_values(&labels)
            .observe(took.as_secs_f64());
    }

    pub fn found(&self, by_port: bool, room: Option<&Room>) {
        let kind = if by_port { "port" } else { "name" };
        let source = room.map_or("", |room| &*room.service);
        let error = if room.is_some() {
            ""
        } else {
            "unknown_service"
        };
        self.hosts
            .with_label_values(&[kind, source, "", error])
            .inc();
    }

    pub fn held(&self, room: &Room, waited: Duration) {
        self.held
            .with_label_values(&[&*room.namespace, &*room.service])
            .observe(waited.as_secs_f64());
    }

    pub fn knocked(&self, error: &str) {
        self.rpc.with_label_values(&[error]).inc();
    }

    pub fn switched(&self, service: &str, enabled: bool) {
        let enabled = if enabled { "true" } else { "false" };
        self.switches.with_label_values(&[service, enabled]).inc();
    }
}

// === impl Queued ===

impl Queued {
    pub fn new(directory: Arc<Directory>) -> prometheus::Result<Self> {
        let opts = named("queued_count", "Requests that wait");
        Ok(Self {
            directory,
            gauge: IntGaugeVec::new(opts, &["source", "namespace"])?,
        })
    }
}

impl Collector for Queued {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.reset();
        for room in self.directory.waited_for() {
            let waiting = i64::try_from(room.waiting()).unwrap_or(i64::MAX);
            self.gauge
                .with_label_values(&[&*room.service, &*room.namespace])
                .set(waiting);
        }
        self.gauge.collect()
    }
}

/// Anybody may make a method up.
fn word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}

fn histogram(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<HistogramVec> {
    let opts = HistogramOpts::new(name, help)
        .namespace("elasti_resolver")
        .buckets(BUCKETS.into());
    registered(registry, HistogramVec::new(opts, labels)?)
}

fn counter(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    registered(registry, IntCounterVec::new(named(name, help), labels)?)
}

fn named(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("elasti_resolver")
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: C,
) -> prometheus::Result<C> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
