//! What is counted for each ElastiService. There are thousands of them: an account is a few hundred
//! bytes, and becomes text, page by page, when somebody reads it.

use elasti_api::Mode;
use elasti_runtime::watch::Key;
use parking_lot::Mutex;
use std::{collections::HashMap, fmt::Write, sync::Arc, time::Duration};

#[derive(Default)]
pub(crate) struct Ledger(Mutex<HashMap<Key, Box<Account>>>);

#[derive(Default)]
pub(super) struct Account {
    pub(super) reconciled: Counts<&'static str, Durations>,
    pub(super) finalized: Counts<&'static str, u32>,
    pub(super) updated: Counts<(&'static str, &'static str), u32>,
    pub(super) came: Counts<&'static str, u32>,
    pub(super) handled: Counts<Arc<str>, u32>,
    pub(super) scaled: Counts<(Arc<str>, Arc<str>, &'static str), u32>,
    pub(super) mode: Option<Mode>,
}

/// By label; mostly one.
pub(super) struct Counts<L, N>(Vec<(L, N)>);

#[derive(Clone, Copy, Default)]
pub(super) struct Durations {
    counts: [u32; BUCKETS.len() + 1],
    sum: f64,
}

const BUCKETS: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0];
/// Accounts on one page.
const PAGE: usize = 256;

type Writer = fn(&Account, &Key, &mut String);

/// Name, kind and help of each metric, and how an account writes its lines.
const METRICS: [(&str, &str, &str, Writer); 7] = [
    (
        "reconcile",
        "histogram",
        "Seconds that a reconcile took",
        Account::write_reconciled,
    ),
    (
        "CRD_finalizer_counter",
        "counter",
        "Finalizers added and removed",
        Account::write_finalized,
    ),
    (
        "CRD_update_counter",
        "counter",
        "Status updates, by the mode written",
        Account::write_updated,
    ),
    (
        "informer_counter",
        "counter",
        "ElastiServices that came into sight",
        Account::write_came,
    ),
    (
        "informer_handler_counter",
        "counter",
        "Watch events that concerned an ElastiService, by kind",
        Account::write_handled,
    ),
    (
        "scale_counter",
        "counter",
        "Scale calls",
        Account::write_scaled,
    ),
    (
        "mode",
        "gauge",
        "1 is proxy, 0 is serve",
        Account::write_mode,
    ),
];

// === impl Ledger ===

impl Ledger {
    pub(super) fn enter(&self, key: &Key, change: impl FnOnce(&mut Account)) {
        let mut accounts = self.0.lock();
        match accounts.get_mut(key) {
            Some(account) => change(account),
            None => change(accounts.entry(key.clone()).or_default()),
        }
    }

    pub(super) fn close(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// In the format that Prometheus reads: all lines of one metric stand together.
    pub(crate) fn pages(self: &Arc<Self>) -> impl Iterator<Item = String> + Send + use<> {
        let ledger = self.clone();
        let mut keys: Vec<Key> = ledger.0.lock().keys().cloned().collect();
        keys.sort_unstable();
        let keys: Arc<[Key]> = keys.into();
        let pages = keys.len().div_ceil(PAGE).max(1);
        METRICS
            .into_iter()
            .flat_map(move |(name, kind, help, write)| {
                let (ledger, keys) = (ledger.clone(), keys.clone());
                (0..pages).map(move |page| {
                    let mut text = String::new();
                    if page == 0 {
                        let _ = writeln!(text, "# HELP elasti_operator_{name} {help}");
                        let _ = writeln!(text, "# TYPE elasti_operator_{name} {kind}");
                    }
                    let accounts = ledger.0.lock();
                    for key in keys.iter().skip(page * PAGE).take(PAGE) {
                        if let Some(account) = accounts.get(key) {
                            write(account, key, &mut text);
                        }
                    }
                    text
                })
            })
    }
}

// === impl Account ===

impl Account {
    fn write_reconciled(&self, key: &Key, text: &mut String) {
        const NAME: &str = "elasti_operator_reconcile";
        for (error, durations) in &self.reconciled.0 {
            let labels = format!("crd_name=\"{key}\",error=\"{error}\"");
            let mut count = 0;
            for (bucket, here) in BUCKETS.iter().zip(durations.counts) {
                count += here;
                let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"{bucket}\"}} {count}");
            }
            let all: u32 = durations.counts.iter().sum();
            let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"+Inf\"}} {all}");
            let _ = writeln!(text, "{NAME}_sum{{{labels}}} {}", durations.sum);
            let _ = writeln!(text, "{NAME}_count{{{labels}}} {all}");
        }
    }

    fn write_finalized(&self, key: &Key, text: &mut String) {
        for (error, count) in &self.finalized.0 {
            let _ = writeln!(
                text,
                "elasti_operator_CRD_finalizer_counter{{crd_name=\"{key}\",error=\"{error}\"}} {count}"
            );
        }
    }

    fn write_updated(&self, key: &Key, text: &mut String) {
        for ((mode, error), count) in &self.updated.0 {
            let _ = writeln!(
                text,
                "elasti_operator_CRD_update_counter{{crd_name=\"{key}\",mode=\"{mode}\",error=\"{error}\"}} {count}"
            );
        }
    }

    fn write_came(&self, key: &Key, text: &mut String) {
        for (error, count) in &self.came.0 {
            let _ = writeln!(
                text,
                "elasti_operator_informer_counter{{crd_name=\"{key}\",action=\"start\",error=\"{error}\"}} {count}"
            );
        }
    }

    fn write_handled(&self, key: &Key, text: &mut String) {
        for (kind, count) in &self.handled.0 {
            let _ = writeln!(
                text,
                "elasti_operator_informer_handler_counter{{crd_name=\"{key}\",key=\"{kind}\",error=\"success\"}} {count}"
            );
        }
    }

    fn write_scaled(&self, key: &Key, text: &mut String) {
        for ((service, target, error), count) in &self.scaled.0 {
            let namespace = &key.namespace;
            let _ = writeln!(
                text,
                "elasti_operator_scale_counter{{service_name=\"{service}\",namespace=\"{namespace}\",target=\"{target}\",error=\"{error}\"}} {count}"
            );
        }
    }

    fn write_mode(&self, key: &Key, text: &mut String) {
        if let Some(mode) = self.mode {
            let figure = u8::from(mode == Mode::Proxy);
            let _ = writeln!(text, "elasti_operator_mode{{crd_name=\"{key}\"}} {figure}");
        }
    }
}

// === impl Counts ===

impl<L, N> Default for Counts<L, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<L: PartialEq, N: Default> Counts<L, N> {
    pub(super) fn of(&mut self, label: L) -> &mut N {
        let at = match self.0.iter().position(|(known, _)| *known == label) {
            Some(at) => at,
            None => {
                self.0.reserve_exact(1);
                self.0.push((label, N::default()));
                self.0.len() - 1
            }
        };
        &mut self.0[at].1
    }
}

// === impl Durations ===

impl Durations {
    pub(super) fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = BUCKETS.partition_point(|bucket| *bucket < seconds);
        self.counts[at] += 1;
        self.sum += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(ledger: &Arc<Ledger>) -> String {
        ledger.pages().collect()
    }

    #[test]
    fn an_account_is_written_as_prometheus_reads_it() {
        let ledger = Arc::new(Ledger::default());
        let web = Key::new("shop", "web");
        ledger.enter(&web, |account| {
            let durations = account.reconciled.of("success");
            durations.add(Duration::from_millis(5));
            durations.add(Duration::from_millis(300));
            durations.add(Duration::from_secs(60));
            *account.updated.of(("proxy", "success")) += 2;
            account.mode = Some(Mode::Proxy);
        });
        let written = text(&ledger);
        let labels = r#"crd_name="shop/web",error="success""#;
        for line in [
            "# TYPE elasti_operator_reconcile histogram",
            &format!("elasti_operator_reconcile_bucket{{{labels},le=\"0.005\"}} 1"),
            &format!("elasti_operator_reconcile_bucket{{{labels},le=\"0.1\"}} 1"),
            &format!("elasti_operator_reconcile_bucket{{{labels},le=\"0.5\"}} 2"),
            &format!("elasti_operator_reconcile_bucket{{{labels},le=\"10\"}} 2"),
            &format!("elasti_operator_reconcile_bucket{{{labels},le=\"+Inf\"}} 3"),
            &format!("elasti_operator_reconcile_count{{{labels}}} 3"),
            r#"elasti_operator_CRD_update_counter{crd_name="shop/web",mode="proxy",error="success"} 2"#,
            r#"elasti_operator_mode{crd_name="shop/web"} 1"#,
        ] {
            assert!(written.lines().any(|written| written == line), "{line}");
        }
        ledger.close(&web);
        assert!(
            !text(&ledger).contains("shop/web"),
            "it goes with its service"
        );
    }

    #[test]
    fn the_lines_of_one_metric_stand_together() {
        let ledger = Arc::new(Ledger::default());
        for n in 0..600 {
            let key = Key::new("shop", &format!("web-{n}"));
            ledger.enter(&key, |account| account.mode = Some(Mode::Serve));
        }
        let written = text(&ledger);
        let types = written.matches("# TYPE elasti_operator_mode").count();
        let lines = written.matches("elasti_operator_mode{").count();
        assert_eq!((types, lines), (1, 600));
    }
}
