//! Thousands of ElastiServices: start, rest, memory, and a restart with nothing left to do.

use super::Measurement;
use crate::{operator::Operator, population::names, witness::Scales};
use anyhow::Result;
use elasti_e2e::report::Goal;
use std::time::Duration;
use tokio::time::{self, Instant};

const KNOCKS: usize = 100;
const REST: Duration = Duration::from_secs(60);
/// In which the operator asks every trigger once. What is new in an answer is written.
const POLLING_INTERVAL: Duration = Duration::from_secs(30);

impl Measurement<'_> {
    pub(super) async fn many(&mut self, services: usize) -> Result<()> {
        let names = names("many", services);
        self.population.add(&names).await?;
        self.calm().await?;
        let operator = self.start(services).await?;
        time::sleep(POLLING_INTERVAL).await;
        self.calm().await?;
        self.rest(&operator).await?;
        self.add_memory("start", &operator)?;
        self.add_woken("start").await?;
        self.stop_counting_watches(operator).await?;

        self.calm().await?;
        let operator = self.restart().await?;
        self.add_memory("restart", &operator)?;
        self.add_woken("restart").await?;
        let mut scales = Scales::watch(&self.stage.client, self.stage.namespace()).await?;
        let some = &names[..services.min(KNOCKS)];
        self.knock(&operator, some, &mut scales).await?;
        operator.stop().await
    }

    async fn start(&mut self, new: usize) -> Result<Operator> {
        let before = self.api_server.writes().await?;
        let operator = Operator::start(self.stage)?;
        let done = self.proxied.reach(self.population.count).await?;
        self.add_time("start", done, &operator)?;
        let writes = self.api_server.writes().await?.beyond(&before);
        eprintln!("  {writes}");
        self.report.add(
            format!("{}: PATCH and APPLY for each until then", self.count()),
            writes.patches() / new as f64,
            "requests",
            Goal::None,
        );
        Ok(operator)
    }

    async fn restart(&mut self) -> Result<Operator> {
        let before = self.api_server.writes().await?;
        let operator = Operator::start(self.stage)?;
        let done = operator.settles(self.count()).await?;
        self.add_time("restart", done, &operator)?;
        time::sleep(POLLING_INTERVAL).await;
        self.calm().await?;
        let writes = self.api_server.writes().await?.beyond(&before);
        eprintln!("  {writes}");
        self.report.add(
            format!("{}: API writes after restart", self.count()),
            writes.total(),
            "in all",
            Goal::AtMost(0.0),
        );
        Ok(operator)
    }

    async fn rest(&mut self, operator: &Operator) -> Result<()> {
        let (cpu, writes) = (operator.cpu()?, self.api_server.writes().await?);
        time::sleep(REST).await;
        let cpu = operator.cpu()? - cpu;
        let writes = self.api_server.writes().await?.beyond(&writes);
        eprintln!("  {writes}");
        self.report.add(
            format!("{}: CPU at rest", self.count()),
            100.0 * cpu / REST.as_secs_f64(),
            "% of a core",
            Goal::Below(2.0),
        );
        self.report.add(
            format!("{}: API writes at rest", self.count()),
            writes.total(),
            "per minute",
            Goal::AtMost(0.0),
        );
        Ok(())
    }

    /// CPU tells more than time where others work on the same machine.
    fn add_time(&mut self, what: &str, done: Instant, operator: &Operator) -> Result<()> {
        let took = (done - operator.started).as_secs_f64();
        let figure = format!("{}: from {what} to all reconciled", self.count());
        self.report.add(figure, took, "s", Goal::Below(60.0));
        let figure = format!("{}: CPU of the operator until then", self.count());
        self.report
            .add(figure, operator.cpu()?, "s of a core", Goal::None);
        Ok(())
    }

    fn add_memory(&mut self, after: &str, operator: &Operator) -> Result<()> {
        let memory = operator.memory()?;
        for (when, mib) in [("now", memory.resident), ("at most", memory.peak)] {
            let figure = format!("{}: resident memory after {after}, {when}", self.count());
            self.report.add(figure, mib, "MiB", Goal::Below(75.0));
        }
        Ok(())
    }
}
