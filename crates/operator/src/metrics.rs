//! Metrics, by KubeElasti's names. Whatever bears the name of an ElastiService goes with it.

mod ledger;

pub(crate) use self::ledger::Ledger;

use crate::{
    apply::{Done, Error},
    facts::Declared,
    index::{Index, Touched},
};
use elasti_api::{Attached, Mode};
use elasti_runtime::watch::{Change, Key};
use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, core::Collector};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

pub(crate) struct Metrics {
    pub(crate) ledger: Arc<Ledger>,
    informers: IntGaugeVec,
    watch: IntGaugeVec,
    knock: IntCounterVec,
    resolvers: IntGauge,
    /// Names of kinds, each once.
    kinds: Mutex<HashMap<String, Arc<str>>>,
}

/// The watches of one kind, counted while they live.
pub(crate) struct Watches(IntGauge, i64);

/// Whether a kind can be seen, told for as long as anybody wants to.
pub(crate) struct Vision<'a> {
    gauge: &'a IntGaugeVec,
    labels: [&'a str; 2],
}

const SUCCESS: &str = "success";

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let informers = named("informer_count", "Open watches, by kind");
        let watch = named(
            "watch_healthy",
            "1 while the watch of a kind is in step with the API server",
        );
        let knock = named(
            "knock_counter",
            "Calls of the wake server for a service, by what became of them",
        );
        let resolvers = named("ready_resolvers", "Resolvers that can hold traffic");
        Ok(Self {
            ledger: Arc::default(),
            informers: registered(registry, IntGaugeVec::new(informers, &["informer_name"])?)?,
            watch: registered(registry, IntGaugeVec::new(watch, &["kind", "api_version"])?)?,
            knock: registered(registry, IntCounterVec::new(knock, &["result"])?)?,
            resolvers: registered(registry, IntGauge::with_opts(resolvers)?)?,
            kinds: Mutex::default(),
        })
    }

    pub(crate) fn reconciled(&self, key: &Key, error: Option<&Error>, took: Duration) {
        let error = category(error);
        self.ledger
            .enter(key, |account| account.reconciled.of(error).add(took));
    }

    pub(crate) fn finalized(&self, key: &Key, error: Option<&Error>) {
        let error = category(error);
        self.ledger
            .enter(key, |account| *account.finalized.of(error) += 1);
    }

    pub(crate) fn updated(&self, key: &Key, mode: Option<Mode>, error: Option<&Error>) {
        let labels = (word(mode), category(error));
        self.ledger
            .enter(key, |account| *account.updated.of(labels) += 1);
    }

    /// What a change of the ElastiServices brings and takes away.
    pub(crate) fn declared(&self, index: &Index, change: &Change<Declared>) {
        match change {
            Change::Applied(key, declared) => self.came(index, key, declared),
            Change::Deleted(key) => self.ledger.close(key),
            Change::Listed(scope, all) => {
                let listed: BTreeSet<&Key> = all.iter().map(|(key, _)| key).collect();
                for key in index.everyone() {
                    if scope.covers(&key) && !listed.contains(&key) {
                        self.ledger.close(&key);
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
            self.ledger
                .enter(key, |account| *account.came.of(error) += 1);
        }
        let mode = match declared {
            Declared::Understood(object) => object.status.as_ref().and_then(|status| status.mode),
            Declared::Malformed(_) => None,
        };
        self.ledger.enter(key, |account| account.mode = mode);
    }

    pub(crate) fn handled(&self, kind: &str, touched: &Touched) {
        if touched.is_empty() {
            return;
        }
        let kind = {
            let mut kinds = self.kinds.lock();
            let known = kinds.entry(kind.to_owned());
            known.or_insert_with(|| kind.into()).clone()
        };
        for key in touched {
            self.ledger
                .enter(key, |account| *account.handled.of(kind.clone()) += 1);
        }
    }

    pub(crate) fn watches(&self, kind: &str, count: usize) -> Watches {
        let gauge = self.informers.with_label_values(&[kind]);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        gauge.add(count);
        Watches(gauge, count)
    }

    pub(crate) fn scaled(&self, key: &Key, about: &Attached, done: &Result<Done, Error>) {
        let error = match done {
            Ok(Done::Scaled(_)) => SUCCESS,
            Ok(Done::Quietly) => return,
            Err(error) => error.category(),
        };
        let target = format!("{}-{}", about.target.kind, about.target.name);
        let labels = (about.service.as_str().into(), target.into(), error);
        self.ledger
            .enter(key, |account| *account.scaled.of(labels) += 1);
    }

    pub(crate) fn vision<'a>(&'a self, api_version: &'a str, kind: &'a str) -> Vision<'a> {
        Vision {
            gauge: &self.watch,
            labels: [kind, api_version],
        }
    }

    pub(crate) fn ready_resolvers(&self, index: &Index) {
        let families = index.resolvers();
        // One with addresses of two families is one.
        let ready = families.values().map(BTreeSet::len).max();
        self.resolvers
            .set(ready.unwrap_or_default().try_into().unwrap_or(i64::MAX));
    }

    pub(crate) fn knocked(&self, result: &str) {
        self.knock.with_label_values(&[result]).inc();
    }
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

// === impl Vision ===

impl Vision<'_> {
    pub(crate) fn is_clear(&self, clear: bool) {
        self.gauge.with_label_values(&self.labels).set(clear.into());
    }
}

impl Drop for Vision<'_> {
    fn drop(&mut self) {
        // Nothing was told yet, if there is nothing to remove.
        let _ = self.gauge.remove_label_values(&self.labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use kube::api::DynamicObject;
    use serde_json::json;

    #[test]
    fn the_mode_is_what_the_status_says_whoever_wrote_it() {
        let metrics = Metrics::new(&Registry::new()).unwrap();
        let index = Index::new(
            Key::new("elasti", "resolvers"),
            1..=9,
            Timestamp::UNIX_EPOCH,
        );
        let web = Key::new("shop", "web");
        let told = |mode: Option<&str>| {
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
            let object: DynamicObject = serde_json::from_value(json!({
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"service": "web", "scaleTargetRef": target},
                "status": {"mode": mode},
            }))
            .unwrap();
            metrics.declared(&index, &Change::Applied(web.clone(), object.into()));
            let text: String = metrics.ledger.pages().collect();
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with("elasti_operator_mode{"));
            line.map(|line| line.ends_with(" 1"))
        };
        assert_eq!(told(Some("proxy")), Some(true));
        assert_eq!(told(Some("serve")), Some(false));
        assert_eq!(told(None), None);
    }

    #[test]
    fn each_kind_has_a_health_of_its_own_while_somebody_uses_it() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let told = || -> Vec<f64> {
            let families = registry.gather();
            let health = families
                .iter()
                .find(|f| f.name().ends_with("watch_healthy"));
            let told = health.into_iter().flat_map(|family| family.get_metric());
            told.map(|metric| metric.get_gauge().get_value()).collect()
        };
        let ours = metrics.vision("apps/v1", "Deployment");
        let theirs = metrics.vision("example.com/v1", "Deployment");
        assert!(told().is_empty(), "nothing is known yet");
        ours.is_clear(true);
        theirs.is_clear(false);
        let mut both = told();
        both.sort_by(f64::total_cmp);
        assert_eq!(both, [0.0, 1.0]);
        drop(theirs);
        assert_eq!(told(), [1.0], "nobody uses the other any more");
    }
}
