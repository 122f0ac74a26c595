//! Ever more ElastiServices: start, rest, memory, watches, and a restart with nothing left to do.

use super::{GROWTH, Measurement};
use crate::{api_server::Requests, operator::Operator, population::names};
use anyhow::Result;
use elasti_e2e::report::Goal;
use std::time::Duration;
use tokio::time::{self, Instant};

/// Long enough to see whether it does anything; of many a minute, as the goal says.
const REST: Duration = Duration::from_secs(5);
const LONG_REST: Duration = Duration::from_secs(60);
/// In which the operator asks every trigger once. What is new in an answer is written.
const POLLING_INTERVAL: Duration = Duration::from_secs(30);
/// From here on what the process itself needs weighs little on each.
const MANY: usize = 5_000;
const KIB: f64 = 1_024.0;

impl Measurement<'_> {
    pub(super) async fn growth(&mut self, sizes: &[usize]) -> Result<()> {
        let mut before = None;
        for size in sizes {
            self.part(GROWTH, *size, &format!("{size} ElastiServices"));
            let new = size.saturating_sub(self.count());
            let names = names(&format!("of-{size}"), new);
            let is_local = self.stage.cluster.is_local();
            // To make what all of them need takes an API server minutes, and shows nothing that fewer did not.
            if is_local && *size > MANY {
                self.population.multiply(&names).await?;
            } else {
                if is_local {
                    self.population.store(&names).await?;
                } else {
                    self.population.add(&names).await?;
                }
                let operator = self.start(new).await?;
                self.settle().await?;
                self.add_memory("start", &operator)?;
                operator.stop().await?;
            }
            let (operator, resident) = self.restart().await?;
            self.rest(&operator).await?;
            self.add_woken("restart").await?;
            self.stop_counting_watches(operator).await?;
            if let Some((fewer, less)) = before.filter(|_| *size > MANY) {
                let each = (resident - less) * KIB / (size - fewer) as f64;
                let figure = format!("{size}: resident memory for each more than {fewer}");
                self.report
                    .add(figure, each, "KiB", Goal::AtMost(8.0))
                    .theirs("297");
            }
            before = Some((*size, resident));
        }
        Ok(())
    }

    /// Where there are triggers, until all were asked.
    async fn settle(&self) -> Result<()> {
        if self.stage.triggers {
            time::sleep(POLLING_INTERVAL).await;
        }
        self.api_server.operator_quiet().await
    }

    async fn start(&mut self, new: usize) -> Result<Operator> {
        let calls = self.api_server.calls_with_token().await?;
        let before = self.api_server.writes().await?;
        let operator = Operator::start(self.stage)?;
        let done = self.proxied.reach(self.count()).await?;
        let calls = self.api_server.calls_with_token().await? - calls;
        self.add_time(
            &format!("start, {new} of them new,"),
            "start",
            done,
            &operator,
        )?;
        let writes = self.api_server.writes().await?.beyond(&before);
        eprintln!("  {writes}");
        let figure = format!("{}: writes for each new one", self.count());
        let each = writes.patches_and_services() / new as f64;
        self.report.add(figure, each, "requests", Goal::None);
        if self.stage.kubeconfig.is_some() {
            let figure = format!(
                "{}: API calls of the operator until all reconciled",
                self.count()
            );
            self.report.add(figure, calls, "requests", Goal::None);
        }
        Ok(operator)
    }

    async fn rest(&mut self, operator: &Operator) -> Result<()> {
        let rest = if self.count() == MANY {
            LONG_REST
        } else {
            REST
        };
        let (cpu, writes) = (operator.cpu()?, self.api_server.writes().await?);
        time::sleep(rest).await;
        let cpu = 100.0 * (operator.cpu()? - cpu) / rest.as_secs_f64();
        let writes = self.api_server.writes().await?.beyond(&writes);
        eprintln!("  {writes}");
        let figure = format!("{}: CPU at rest", self.count());
        self.report
            .add(figure, cpu, "% of a core", Goal::Below(2.0));
        let figure = format!("{}: API writes at rest, in {rest:?}", self.count());
        let goal = Goal::AtMost(0.0);
        self.report
            .add(figure, writes.by_operator(), "requests", goal);
        Ok(())
    }

    /// What is gone with the operator was the operator's.
    async fn stop_counting_watches(&mut self, operator: Operator) -> Result<()> {
        let with: Requests = self.api_server.watches().await?;
        operator.stop().await?;
        time::sleep(Duration::from_secs(1)).await;
        let watches = with.beyond(&self.api_server.watches().await?);
        eprintln!("  {watches}");
        let figure = format!("{}: API watches", self.count());
        self.report
            .add(figure, watches.total(), "watches", Goal::AtMost(15.0))
            .theirs("2 for each");
        Ok(())
    }

    /// Returns the MiB that it took, too.
    async fn restart(&mut self) -> Result<(Operator, f64)> {
        let before = self.api_server.writes().await?;
        let operator = Operator::start(self.stage)?;
        let done = operator.settles(self.count()).await?;
        self.add_time("restart", "restart", done, &operator)?;
        self.settle().await?;
        let writes = self.api_server.writes().await?.beyond(&before);
        eprintln!("  {writes}");
        let figure = format!("{}: API writes after restart", self.count());
        let goal = Goal::AtMost(0.0);
        self.report
            .add(figure, writes.by_operator(), "in all", goal);
        let resident = self.add_memory("restart", &operator)?;
        Ok((operator, resident))
    }

    /// CPU tells more than time where others work on the same machine.
    fn add_time(
        &mut self,
        what: &str,
        series: &str,
        done: Instant,
        operator: &Operator,
    ) -> Result<()> {
        let took = (done - operator.started).as_secs_f64();
        let figure = format!("{}: from {what} to all reconciled", self.count());
        let goal = if self.count() <= MANY {
            Goal::Below(60.0)
        } else {
            Goal::None
        };
        let count = self.count();
        self.report
            .add(figure, took, "s", goal)
            .mark("reconciled", series, count);
        let figure = format!("{count}: CPU of the operator until then");
        self.report
            .add(figure, operator.cpu()?, "s of a core", Goal::None);
        Ok(())
    }

    fn add_memory(&mut self, after: &str, operator: &Operator) -> Result<f64> {
        let memory = operator.memory()?;
        let count = self.count();
        let goal = if count <= MANY {
            Goal::Below(75.0)
        } else {
            Goal::None
        };
        for (when, mib) in [("now", memory.resident), ("at most", memory.peak)] {
            let figure = format!("{count}: resident memory after {after}, {when}");
            let row = self.report.add(figure, mib, "MiB", goal);
            if when == "now" {
                row.mark("memory", &format!("after {after}"), count);
            }
        }
        Ok(memory.resident)
    }
}
