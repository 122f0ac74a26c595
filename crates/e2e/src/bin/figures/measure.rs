//! The figures. What exists stays: each part is measured beside all that those before it have made.

mod burst;
mod knocks;
mod many;

use crate::{
    Cli, Part,
    api_server::ApiServer,
    operator::Operator,
    population::{Population, names},
    stage::Stage,
    witness::Proxied,
};
use anyhow::Result;
use elasti_cluster::Cluster;
use elasti_e2e::report::{Goal, Report};
use std::{fs, time::Duration};
use tokio::time;

struct Measurement<'a> {
    stage: &'a Stage<'a>,
    api_server: ApiServer<'a>,
    population: Population,
    proxied: Proxied,
    watches: Vec<f64>,
    /// So many may be awake.
    knocked: usize,
    report: &'a mut Report,
}

pub(crate) async fn all(cluster: &Cluster, cli: &Cli, report: &mut Report) -> Result<()> {
    let stage = Stage::set(cluster, cli).await?;
    let mut measurement = Measurement {
        api_server: ApiServer(&stage.client),
        population: Population::new(&stage.client, stage.namespace(), cli.triggers),
        proxied: Proxied::watch(&stage.client, stage.namespace()),
        watches: Vec::new(),
        knocked: 0,
        report,
        stage: &stage,
    };
    let outcome = measurement.parts(cli).await;
    if cli.keep || !cluster.is_local() {
        stage.clear().await?;
    }
    outcome
}

// === impl Measurement ===

impl Measurement<'_> {
    async fn parts(&mut self, cli: &Cli) -> Result<()> {
        if cli.wants(Part::Watches) {
            self.few("one", 1).await?;
            self.few("few", 99).await?;
        }
        if cli.wants(Part::Burst) {
            self.burst().await?;
        }
        if cli.wants(Part::Many) {
            self.many(cli.services).await?;
        }
        if let [first, rest @ ..] = self.watches.as_slice() {
            let most = rest
                .iter()
                .fold(0.0, |most: f64, count| most.max(count - first));
            self.report.add(
                "API watches that more ElastiServices add",
                most,
                "watches",
                Goal::AtMost(0.0),
            );
        }
        Ok(())
    }

    async fn few(&mut self, prefix: &str, count: usize) -> Result<()> {
        self.population.add(&names(prefix, count)).await?;
        let operator = Operator::start(self.stage)?;
        self.proxied.reach(self.count()).await?;
        self.stop_counting_watches(operator).await
    }

    /// What is gone with the operator was the operator's.
    async fn stop_counting_watches(&mut self, operator: Operator) -> Result<()> {
        let with = self.api_server.watches().await?;
        operator.stop().await?;
        time::sleep(Duration::from_secs(1)).await;
        let watches = with.beyond(&self.api_server.watches().await?);
        eprintln!("  {watches}");
        self.report.add(
            format!("API watches with {} ElastiServices", self.count()),
            watches.total(),
            "watches",
            Goal::AtMost(15.0),
        );
        self.watches.push(watches.total());
        Ok(())
    }

    /// Where nobody has knocked, nothing should have been woken.
    async fn add_woken(&mut self, after: &str) -> Result<()> {
        let awake = self.count() - self.proxied.asleep().await?.len();
        let woken = awake.saturating_sub(self.knocked);
        self.report.add(
            format!("{}: woken by nobody after {after}", self.count()),
            woken as f64,
            "targets",
            Goal::AtMost(0.0),
        );
        Ok(())
    }

    fn count(&self) -> usize {
        self.population.count
    }

    /// Controllers have work with every service, too.
    async fn calm(&self) -> Result<()> {
        eprintln!("Waiting until nobody writes");
        self.api_server.quiet().await?;
        eprint!("  load {}", fs::read_to_string("/proc/loadavg")?);
        Ok(())
    }
}
