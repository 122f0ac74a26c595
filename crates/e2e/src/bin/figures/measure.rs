//! The figures. What exists stays: each part is measured beside all that those before it have made.

mod burst;
mod growth;
mod knocks;
mod resolvers;

use crate::{
    Cli, Part, api_server::ApiServer, operator::Operator, population::Population, stage::Stage,
    witness::Proxied,
};
use anyhow::Result;
use elasti_cluster::Cluster;
use elasti_e2e::report::{Goal, Report};
use std::fs;

struct Measurement<'a> {
    stage: &'a Stage<'a>,
    /// That were begun so far, as options call them.
    begun: Vec<&'static str>,
    api_server: ApiServer<'a>,
    population: Population,
    proxied: Proxied,
    /// So many may be awake.
    knocked: usize,
    report: &'a mut Report,
}

/// Where those are created at once that are looked at one by one.
const BEFORE_MANY: usize = 100;
const GROWTH: &str = "growth";
const SIZES: [usize; 6] = [1, 10, 100, 1_000, 5_000, 10_000];

pub(crate) async fn all(cluster: &Cluster, cli: &Cli, report: &mut Report) -> Result<()> {
    let stage = Stage::set(cluster, cli).await?;
    let mut measurement = Measurement {
        api_server: ApiServer(&stage.client),
        population: Population::new(&stage),
        proxied: Proxied::watch(&stage.client, stage.namespace()),
        knocked: 0,
        report,
        stage: &stage,
        begun: Vec::new(),
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
        let (few, many): (Vec<usize>, Vec<usize>) = SIZES
            .into_iter()
            .filter(|size| *size < cli.services)
            .chain([cli.services])
            .partition(|size| *size <= BEFORE_MANY);
        if cli.wants(Part::Growth) {
            self.growth(&few).await?;
        }
        if cli.wants(Part::Burst) {
            self.burst().await?;
        }
        if cli.wants(Part::Growth) {
            self.growth(&many).await?;
        }
        if cli.wants(Part::Resolvers) || cli.wants(Part::Wakes) {
            let operator = Operator::start(self.stage)?;
            operator.settles(self.count()).await?;
            if cli.wants(Part::Resolvers) {
                self.resolvers(cli.services).await?;
            }
            if cli.wants(Part::Wakes) {
                self.wakes(&operator, cli.services).await?;
            }
            operator.stop().await?;
        }
        Ok(())
    }

    /// What is reported from now on, up to so many ElastiServices, takes all parts until here.
    fn part(&mut self, name: &'static str, services: usize, title: &str) {
        if !self.begun.contains(&name) {
            self.begun.push(name);
        }
        let mut command = format!("elasti-figures --only {}", self.begun.join(","));
        if self.begun.contains(&GROWTH) {
            command += &format!(" --services {services}");
        }
        self.report.part(title, &command);
    }

    /// Where nobody has knocked, nothing should have been woken.
    async fn add_woken(&mut self, after: &str) -> Result<()> {
        let awake = self.count() - self.proxied.asleep().await?.len();
        let woken = awake.saturating_sub(self.knocked);
        let figure = format!("{}: woken by nobody after {after}", self.count());
        let goal = Goal::AtMost(0.0);
        self.report.add(figure, woken as f64, "targets", goal);
        Ok(())
    }

    fn count(&self) -> usize {
        self.population.count
    }

    /// Controllers have work with every service, too.
    async fn calm(&self) -> Result<()> {
        self.api_server.quiet().await?;
        eprint!("  load {}", fs::read_to_string("/proc/loadavg")?);
        Ok(())
    }
}
