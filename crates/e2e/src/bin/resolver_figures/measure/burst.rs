//! Some or thousands wait for one service, and its endpoint appears.

use super::Measurement;
use crate::{
    clock::Moment,
    helper::{Helper, Outcome},
    process::Core,
    resolver::Resolver,
    witness::Witness,
};
use anyhow::{Context, Result};
use elasti_e2e::report::Goal;

/// How many wait, and how often it is tried: who else has the two cores at that moment is chance.
const BURSTS: [(usize, usize); 4] = [(1, 9), (100, 5), (1_000, 5), (10_000, 5)];

/// In milliseconds, where it is a time.
struct Released {
    lost: usize,
    first: f64,
    last: f64,
    answered: f64,
    memory: f64,
}

impl Measurement<'_> {
    pub(super) async fn burst(&mut self) -> Result<()> {
        self.report.part(
            "A burst from zero: held requests, and an endpoint that appears; the resolver on core 0, clients and target on core 1",
            "elasti-resolver-figures --only burst",
        );
        let mut target = Helper::target(self.stage, Core::Helping).await?;
        for (count, rounds) in BURSTS {
            let mut all = Vec::new();
            for _ in 0..rounds {
                all.push(self.released(&mut target, count).await?);
            }
            self.add_burst(count, &all);
        }
        Ok(())
    }

    fn add_burst(&mut self, count: usize, rounds: &[Released]) {
        let all = |value: fn(&Released) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
        let lost = all(|round| round.lost as f64);
        let report = &mut *self.report;
        let of = |what: &str| format!("{count} released: {what}");
        report
            .add(
                of("lost, in all rounds"),
                lost.iter().sum(),
                "requests",
                Goal::AtMost(0.0),
            )
            .of(lost);
        report.add_median(
            of("first byte at the target after the event"),
            all(|round| round.first),
            "ms",
            Goal::Below(5.0),
        );
        let goal = if count == 10_000 {
            Goal::Below(2_000.0)
        } else {
            Goal::None
        };
        let row = report.add_median(
            of("all at the target after the event"),
            all(|round| round.last),
            "ms",
            goal,
        );
        row.mark("burst", "all at the target", count);
        let row = report.add_median(
            of("all answered after the event"),
            all(|round| round.answered),
            "ms",
            Goal::None,
        );
        row.mark("burst", "all answered", count);
        match count {
            1 => row.theirs("1 600 to 2 100"),
            100 => row.theirs("17 400"),
            1_000 => row.theirs("103 000, or all refused"),
            _ => row,
        };
        report.add_median(
            of("resident memory, at most"),
            all(|round| round.memory),
            "MiB",
            Goal::None,
        );
    }

    async fn released(&self, target: &mut Helper, count: usize) -> Result<Released> {
        let stage = self.stage;
        let resolver = Resolver::start(stage, Core::Measured).await?;
        let mut clients = self.held(&resolver, count).await?;
        let mut witness = Witness::watch(stage).await?;
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
            first: after(first),
            last: after(last),
            answered: after(answered),
            memory: resolver.memory()?.peak,
        };
        stage.put_to_sleep().await?;
        Ok(released)
    }
}
