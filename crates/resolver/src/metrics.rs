//! Metrics, by KubeElasti's names and some of our own. No label has a value that a client can choose.

use crate::{directory::Directory, proxy::answer::Refusal, room::Room};
use elasti_api::Release;
use elasti_runtime::watch::Key;
use http::{Method, StatusCode};
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
    core::{Collector, Desc, MetricVec, MetricVecBuilder},
    proto::MetricFamily,
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Semaphore;

#[derive(Debug)]
pub struct Metrics {
    requests: HistogramVec,
    hosts: IntCounterVec,
    rpc: IntCounterVec,
    switches: IntCounterVec,
    cold: HistogramVec,
    won: HistogramVec,
    held: HistogramVec,
    dialled: HistogramVec,
    refused: IntCounterVec,
}

/// What came of an attempt to connect to an endpoint.
#[derive(Clone, Copy, Debug)]
pub enum Dialled {
    Reached,
    Refused,
    Late,
    /// We lacked something ourselves.
    Exhausted,
}

/// Who waits and how many seats and connections are left, counted when somebody asks.
pub struct Queued {
    directory: Arc<Directory>,
    connections: Arc<Semaphore>,
    most_connections: usize,
    waiting: IntGaugeVec,
    seats: IntGaugeVec,
    open: IntGaugeVec,
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
            cold: histogram(
                registry,
                "cold_start_seconds",
                "Seconds from the first request for a sleeping target to its first ready endpoint, by what let it go",
                &["namespace", "source", "release"],
            )?,
            held: histogram(
                registry,
                "held_seconds",
                "Seconds that a request, or a connection, waited for a sleeping target",
                &["namespace", "source"],
            )?,
            won: histogram(
                registry,
                "early_release_seconds",
                "Seconds by which a pod was known to be ready before Kubernetes said so",
                &["namespace", "source"],
            )?,
            dialled: histogram(
                registry,
                "dial_seconds",
                "Seconds that it took to connect to an endpoint, or to learn that it cannot be done",
                &["result"],
            )?,
            refused: counter(
                registry,
                "refused_count",
                "Requests that got an answer of our own, by reason",
                &["reason"],
            )?,
        })
    }

    pub fn answered(&self, room: &Room, method: &Method, status: StatusCode, took: Duration) {
        self.request(Some(room), method, status, "", took);
    }

    /// In the name of a sleeping target.
    pub fn probed(&self, room: &Room, method: &Method, status: StatusCode) {
        self.request(Some(room), method, status, "probe", Duration::ZERO);
    }

    pub fn refused(&self, room: Option<&Room>, method: &Method, refusal: Refusal, took: Duration) {
        self.refused.with_label_values(&[refusal.label()]).inc();
        self.request(room, method, refusal.status(), refusal.label(), took);
    }

    fn request(
        &self,
        room: Option<&Room>,
        method: &Method,
        status: StatusCode,
        error: &str,
        took: Duration,
    ) {
        let (service, namespace) = room.map_or(("", ""), |room| (&*room.service, &*room.namespace));
        let labels = [
            service,
            service,
            "",
            "",
            namespace,
            word(method),
            "",
            code(&status),
            error,
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

    /// Somebody was refused of whose request nothing is known.
    pub fn turned_away(&self, refusal: Refusal) {
        self.refused.with_label_values(&[refusal.label()]).inc();
    }

    /// Those who did not have to wait are not counted.
    pub fn held(&self, room: &Room, waited: Option<Duration>) {
        if let Some(waited) = waited {
            self.held
                .with_label_values(&[&*room.namespace, &*room.service])
                .observe(waited.as_secs_f64());
        }
    }

    /// So long before Kubernetes a pod was known to be ready.
    pub fn won(&self, room: &Room, won: Duration) {
        self.won
            .with_label_values(&[&*room.namespace, &*room.service])
            .observe(won.as_secs_f64());
    }

    pub fn woken(&self, room: &Room, release: Release, took: Duration) {
        let release = match release {
            Release::EarliestReady => "EarliestReady",
            Release::KubernetesReady => "KubernetesReady",
        };
        self.cold
            .with_label_values(&[&*room.namespace, &*room.service, release])
            .observe(took.as_secs_f64());
    }

    pub fn dialled(&self, result: Dialled, took: Duration) {
        self.dialled
            .with_label_values(&[result.label()])
            .observe(took.as_secs_f64());
    }

    pub fn knocked(&self, error: &str) {
        self.rpc.with_label_values(&[error]).inc();
    }

    pub fn switched(&self, service: &str, enabled: bool) {
        let enabled = if enabled { "true" } else { "false" };
        self.switches.with_label_values(&[service, enabled]).inc();
    }

    /// Forgets what was measured of services that are gone. Where no namespace is told, one of that name may
    /// be elsewhere.
    pub fn forget(&self, gone: &HashSet<Key>, is_elsewhere: impl Fn(&str) -> bool) {
        let of_gone = |labels: &Labels<'_>| {
            let key = Key::new(labels["namespace"], labels["source"]);
            gone.contains(&key)
        };
        for histogram in [&self.requests, &self.cold, &self.won, &self.held] {
            forget(histogram, of_gone);
        }
        let names: HashSet<&str> = gone.iter().map(|key| &*key.name).collect();
        let of_gone = |labels: &Labels<'_>| {
            let name = labels["source"];
            names.contains(name) && !is_elsewhere(name)
        };
        for counter in [&self.hosts, &self.switches] {
            forget(counter, of_gone);
        }
    }
}

type Labels<'a> = HashMap<&'a str, &'a str>;

fn forget<B: MetricVecBuilder>(metric: &MetricVec<B>, is_gone: impl Fn(&Labels<'_>) -> bool) {
    for family in metric.collect() {
        for one in family.get_metric() {
            let labels = one.get_label().iter();
            let labels = labels.map(|pair| (pair.name(), pair.value())).collect();
            if is_gone(&labels) {
                let _ = metric.remove(&labels);
            }
        }
    }
}

// === impl Dialled ===

impl Dialled {
    fn label(self) -> &'static str {
        match self {
            Self::Reached => "success",
            Self::Refused => "refused",
            Self::Late => "late",
            Self::Exhausted => "exhausted",
        }
    }
}

// === impl Queued ===

impl Queued {
    pub fn new(directory: Arc<Directory>, connections: Arc<Semaphore>) -> prometheus::Result<Self> {
        let gauge = |name, help, labels| IntGaugeVec::new(named(name, help), labels);
        Ok(Self {
            directory,
            most_connections: connections.available_permits(),
            connections,
            waiting: gauge(
                "queued_count",
                "Requests that wait",
                &["source", "namespace"],
            )?,
            seats: gauge("seats", "Requests that may wait in all", &["state"])?,
            open: gauge(
                "connections",
                "Connections of clients that may be open in all",
                &["state"],
            )?,
        })
    }
}

impl Collector for Queued {
    fn desc(&self) -> Vec<&Desc> {
        let all = [&self.waiting, &self.seats, &self.open];
        all.into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.directory.tidy();
        self.waiting.reset();
        for room in self.directory.waited_for() {
            self.waiting
                .with_label_values(&[&*room.service, &*room.namespace])
                .set(number(room.waiting()));
        }
        let house = self.directory.house();
        let free = self.connections.available_permits();
        let open = self.most_connections.saturating_sub(free);
        for (gauge, taken, free) in [
            (&self.seats, house.taken(), house.free()),
            (&self.open, open, free),
        ] {
            gauge.with_label_values(&["taken"]).set(number(taken));
            gauge.with_label_values(&["free"]).set(number(free));
        }
        let all = [&self.waiting, &self.seats, &self.open];
        all.into_iter().flat_map(Collector::collect).collect()
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A target may make a status up.
fn code(status: &StatusCode) -> &str {
    match (status.canonical_reason(), status.as_u16()) {
        (Some(_), _) => status.as_str(),
        (None, ..200) => "1xx",
        (None, ..300) => "2xx",
        (None, ..400) => "3xx",
        (None, ..500) => "4xx",
        (None, ..600) => "5xx",
        (None, _) => "other",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        directory::Dial,
        room::{House, Limits},
    };
    use std::collections::BTreeSet;
    use tokio::sync::mpsc;

    #[test]
    fn dashboards_find_every_name_that_they_ask_for() {
        let registry = Registry::new();
        let metrics = Arc::new(Metrics::new(&registry).unwrap());
        let house = House::new(5, mpsc::channel(1).0);
        let limits = Limits {
            patience: Duration::ZERO,
            seats: 1,
        };
        let room = Room::new(&house, "shop", "web", limits);
        let directory = Directory::new(
            house,
            limits,
            Dial::Endpoints,
            Release::default(),
            metrics.clone(),
        );
        let connections = Arc::new(Semaphore::new(7));
        let queued = Queued::new(Arc::new(directory), connections.clone()).unwrap();
        registry.register(Box::new(queued)).unwrap();
        let _one = connections.try_acquire().unwrap();
        let method = Method::from_bytes(b"MADE-UP").unwrap();
        metrics.answered(&room, &method, StatusCode::OK, Duration::ZERO);
        let status = StatusCode::from_u16(977).unwrap();
        metrics.answered(&room, &method, status, Duration::ZERO);
        metrics.refused(None, &method, Refusal::Unknown, Duration::ZERO);
        metrics.found(true, Some(&room));
        metrics.held(&room, Some(Duration::ZERO));
        metrics.woken(&room, Release::EarliestReady, Duration::ZERO);
        metrics.won(&room, Duration::ZERO);
        metrics.dialled(Dialled::Reached, Duration::ZERO);
        metrics.knocked("success");
        metrics.switched("web", true);
        let families = registry.gather();
        let names: BTreeSet<_> = families.iter().map(|family| family.name()).collect();
        let wanted = [
            "elasti_resolver_cold_start_seconds",
            "elasti_resolver_connections",
            "elasti_resolver_dial_seconds",
            "elasti_resolver_early_release_seconds",
            "elasti_resolver_held_seconds",
            "elasti_resolver_host_extraction_count",
            "elasti_resolver_incoming_requests",
            "elasti_resolver_operator_rpc_count",
            "elasti_resolver_refused_count",
            "elasti_resolver_seats",
            "elasti_resolver_traffic_switch_count",
        ];
        assert_eq!(
            names,
            BTreeSet::from(wanted),
            "and queued_count, once somebody waits"
        );
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&families)
            .unwrap();
        for line in [
            "elasti_resolver_seats{state=\"free\"} 5",
            "elasti_resolver_connections{state=\"taken\"} 1",
            "elasti_resolver_connections{state=\"free\"} 6",
        ] {
            assert!(text.contains(line), "{line}");
        }
        let made_up = text.contains("MADE-UP") || text.contains("977");
        assert!(!made_up, "nobody makes labels up");
    }
}
