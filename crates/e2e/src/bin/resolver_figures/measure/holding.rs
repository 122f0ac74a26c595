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

const MANY: usize = 10_000;
const SOME: usize = 5_000;
const STREAMS: usize = 100;
const WHILE: Duration = Duration::from_secs(10);
const KIB: f64 = 1_024.0;

impl Measurement<'_> {
    pub(super) async fn holding(&mut self) -> Result<()> {
        for (port, streams, what, goal) in [
            (HTTP, None, "HTTP/1 connection", 6.0),
            (OPAQUE, None, "TCP connection", 6.0),
            (HTTP, Some(STREAMS), "HTTP/2 stream, 100 on each", 8.0),
        ] {
            self.hold(port, streams, what, goal).await?;
        }
        let resolver = Resolver::start(self.stage, Core::Any).await?;
        let _clients = self.held(&resolver, HTTP, SOME, None).await?;
        let memory = resolver.memory()?;
        let figure = format!("resident memory with {SOME} held requests, at most");
        self.report
            .add(figure, memory.peak, "MiB", Goal::Below(80.0));
        Ok(())
    }

    async fn hold(
        &mut self,
        port: u16,
        streams: Option<usize>,
        what: &str,
        goal: f64,
    ) -> Result<()> {
        let resolver = Resolver::start(self.stage, Core::Any).await?;
        let before = resolver.memory()?.resident;
        let _clients = self.held(&resolver, port, MANY, streams).await?;
        let more = resolver.memory()?.resident - before;
        self.report.add(
            format!("{MANY} held: resident memory for each {what}"),
            more * KIB / MANY as f64,
            "KiB",
            Goal::AtMost(goal),
        );
        let before = resolver.usage().cpu()?;
        time::sleep(WHILE).await;
        let cpu = resolver.usage().cpu()? - before;
        // The kernel counts in ticks of 10 ms: fewer than five in that time are none.
        self.report.add(
            format!("{MANY} held: CPU meanwhile, {what}"),
            100.0 * cpu / WHILE.as_secs_f64(),
            "% of a core",
            Goal::Below(0.5),
        );
        Ok(())
    }

    pub(super) async fn held(
        &self,
        resolver: &Resolver,
        port: u16,
        count: usize,
        streams: Option<usize>,
    ) -> Result<Helper> {
        let role = Role::Hold {
            address: here(port),
            count,
            streams,
        };
        let mut clients = Helper::start(self.stage, Core::Any, role)?;
        clients.says::<Prepared>().await?;
        resolver.holds(count).await?;
        Ok(clients)
    }
}
