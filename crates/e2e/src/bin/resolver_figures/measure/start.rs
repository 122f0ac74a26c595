//! From nothing to ready, and at rest.

use super::Measurement;
use crate::{
    process::Core,
    resolver::{Resolver, size},
};
use anyhow::Result;
use elasti_e2e::report::Goal;
use std::time::Duration;
use tokio::time;

const TIMES: usize = 5;
const REST: Duration = Duration::from_secs(5);

impl Measurement<'_> {
    pub(super) async fn start(&mut self) -> Result<()> {
        self.report
            .part("Start", "elasti-resolver-figures --only start");
        let mib = size(self.stage)? as f64 / f64::from(1 << 20);
        self.report.add("binary", mib, "MiB", Goal::Below(15.0));
        let mut took = Vec::new();
        for _ in 0..TIMES {
            let resolver = Resolver::start(self.stage, Core::Any).await?;
            took.push(resolver.took.as_secs_f64() * 1e3);
        }
        self.report
            .add_median("start to ready", took, "ms", Goal::Below(200.0));
        let resolver = Resolver::start(self.stage, Core::Any).await?;
        time::sleep(REST).await;
        let memory = resolver.memory()?;
        let figure = "resident memory at rest";
        self.report
            .add(figure, memory.resident, "MiB", Goal::Below(15.0));
        Ok(())
    }
}
