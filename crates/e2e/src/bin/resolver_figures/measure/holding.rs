//! What it costs to hold.

use super::{Measurement, here};
use crate::{
    helper::{Helper, Prepared, Role},
    process::Core,
    resolver::Resolver,
    stage::{HTTP, OPAQUE},
};
use anyhow::Result;
use elasti_e2e::report::Goal;
use std::time::Duration;
use tokio::time;

const COUNTS: [usize; 3] = [1_000, 5_000, 10_000];
const STREAMS: usize = 100;
const WHILE: Duration = Duration::from_secs(5);
const KIB: f64 = 1_024.0;

impl Measurement<'_> {
    pub(super) async fn holding(&mut self) -> Result<()> {
        self.report
            .part("Holding", "elasti-resolver-figures --only holding");
        for (port, streams, what, goal) in [
            (HTTP, None, "HTTP/1 connection", 6.0),
            (OPAQUE, None, "TCP connection", 6.0),
            (HTTP, Some(STREAMS), "HTTP/2 stream, 100 on each", 8.0),
        ] {
            self.hold(port, streams, what, goal).await?;
        }
        Ok(())
    }

    /// More and more of them at one resolver.
    async fn hold(
        &mut self,
        port: u16,
        streams: Option<usize>,
        what: &str,
        goal: f64,
    ) -> Result<()> {
        let resolver = Resolver::start(self.stage, Core::Any).await?;
        let at_rest = resolver.memory()?.resident;
        let mut clients = Vec::new();
        let mut held = 0;
        for count in COUNTS {
            clients.push(
                self.held_beside(&resolver, port, count - held, held, streams)
                    .await?,
            );
            held = count;
            let memory = resolver.memory()?;
            let each = (memory.resident - at_rest) * KIB / count as f64;
            // What a few share weighs on each of them.
            let goal = if count == COUNTS[2] {
                Goal::AtMost(goal)
            } else {
                Goal::None
            };
            self.report
                .add(
                    format!("{count} held: resident memory for each {what}"),
                    each,
                    "KiB",
                    goal,
                )
                .theirs("24 to 33")
                .mark("holding", what, count);
            if count == 5_000 && port == HTTP && streams.is_none() {
                let figure = "5000 held: resident memory of the process, at most";
                self.report
                    .add(figure, memory.peak, "MiB", Goal::Below(80.0))
                    .theirs("killed at 80 MiB");
            }
            self.rest(&resolver, count, what).await?;
        }
        Ok(())
    }

    async fn rest(&mut self, resolver: &Resolver, count: usize, what: &str) -> Result<()> {
        let before = resolver.usage().cpu()?;
        time::sleep(WHILE).await;
        let cpu = resolver.usage().cpu()? - before;
        // The kernel counts in ticks of 10 ms: fewer than three in that time are none.
        let figure = format!("{count} held: CPU meanwhile, {what}");
        let percent = 100.0 * cpu / WHILE.as_secs_f64();
        self.report
            .add(figure, percent, "% of a core", Goal::Below(0.5));
        Ok(())
    }

    pub(super) async fn held(&self, resolver: &Resolver, count: usize) -> Result<Helper> {
        self.held_beside(resolver, HTTP, count, 0, None).await
    }

    async fn held_beside(
        &self,
        resolver: &Resolver,
        port: u16,
        count: usize,
        others: usize,
        streams: Option<usize>,
    ) -> Result<Helper> {
        let role = Role::Hold {
            address: here(port),
            count,
            streams,
        };
        let mut clients = Helper::start(self.stage, Core::Helping, role)?;
        clients.says::<Prepared>().await?;
        resolver.holds(others + count).await?;
        Ok(clients)
    }
}
