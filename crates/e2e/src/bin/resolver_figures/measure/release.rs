//! Thousands wait for one service, and its endpoint appears.

use super::Measurement;
use crate::{
    clock::Moment,
    helper::{Helper, Outcome},
    process::Core,
    resolver::Resolver,
    stage::HTTP,
    witness::Witness,
};
use anyhow::{Context, Result};
use elasti_e2e::report::Goal;

const MANY: usize = 10_000;

impl Measurement<'_> {
    pub(super) async fn release(&mut self) -> Result<()> {
        let stage = self.stage;
        let mut target = Helper::target(stage, Core::Any).await?;
        let resolver = Resolver::start(stage, Core::Any).await?;
        let mut clients = self.held(&resolver, HTTP, MANY, None).await?;
        let mut witness = Witness::watch(stage).await?;
        let written = Moment::now();
        stage.wake().await?;
        let event = witness.endpoint().await?;
        let outcome: Outcome = clients.says().await?;
        let tally = target.tally().await?;
        if let Some(why) = &outcome.why {
            eprintln!("  {why}");
        }
        eprintln!("  on {} connections", tally.connections);
        let (first, last) = tally.first.zip(tally.last).context("nothing came")?;
        let answered = outcome.last.context("nothing was answered")?;
        let mut add = |what: &str, value, unit, goal| {
            let figure = format!("{MANY} released: {what}");
            self.report.add(figure, value, unit, goal);
        };
        add("lost", outcome.lost as f64, "requests", Goal::AtMost(0.0));
        let after = |moment: Moment| moment.milliseconds_since(event);
        add(
            "first byte at the target after the event",
            after(first),
            "ms",
            Goal::Below(5.0),
        );
        add(
            "the event after our write began",
            after(written).abs(),
            "ms",
            Goal::None,
        );
        add(
            "all at the target after the event",
            after(last) / 1e3,
            "s",
            Goal::Below(2.0),
        );
        add(
            "all answered after the event",
            after(answered) / 1e3,
            "s",
            Goal::None,
        );
        let memory = resolver.memory()?;
        add("resident memory, at most", memory.peak, "MiB", Goal::None);
        stage.put_to_sleep().await
    }
}
