//! Thousands wait for one service, and its endpoint appears.

use super::{Measurement, median};
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

/// The median of them counts: who else has the two cores at that moment is chance.
const ROUNDS: usize = 5;

/// In milliseconds, where it is a time.
struct Released {
    lost: usize,
    event: f64,
    first: f64,
    last: f64,
    answered: f64,
    memory: f64,
}

impl Measurement<'_> {
    pub(super) async fn release(&mut self) -> Result<()> {
        let mut target = Helper::target(self.stage, Core::Any).await?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(self.released(&mut target).await?);
        }
        let all = |value: fn(&Released) -> f64| median(rounds.iter().map(value).collect());
        let lost: usize = rounds.iter().map(|round| round.lost).sum();
        let rows = [
            ("lost", lost as f64, "requests", Goal::AtMost(0.0)),
            (
                "first byte at the target after the event",
                all(|round| round.first),
                "ms",
                Goal::Below(5.0),
            ),
            (
                "the event after our write began",
                all(|round| round.event),
                "ms",
                Goal::None,
            ),
            (
                "all at the target after the event",
                all(|round| round.last) / 1e3,
                "s",
                Goal::Below(2.0),
            ),
            (
                "all answered after the event",
                all(|round| round.answered) / 1e3,
                "s",
                Goal::None,
            ),
            (
                "resident memory, at most",
                all(|round| round.memory),
                "MiB",
                Goal::None,
            ),
        ];
        for (what, value, unit, goal) in rows {
            self.report
                .add(format!("{MANY} released: {what}"), value, unit, goal);
        }
        Ok(())
    }

    async fn released(&self, target: &mut Helper) -> Result<Released> {
        let stage = self.stage;
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
        let (first, last) = tally.first.zip(tally.last).context("nothing came")?;
        let answered = outcome.last.context("nothing was answered")?;
        let after = |moment: Moment| moment.milliseconds_since(event);
        let released = Released {
            lost: outcome.lost,
            event: after(written).abs(),
            first: after(first),
            last: after(last),
            answered: after(answered),
            memory: resolver.memory()?.peak,
        };
        eprintln!(
            "  first after {:.1} ms, on {} connections",
            released.first, tally.connections
        );
        stage.put_to_sleep().await?;
        Ok(released)
    }
}
