//! What passes while the target is awake: each proxy on the very same core, in turns, and no proxy at all.

mod case;
mod h2load;
mod rivals;

use self::{
    case::{CASES, Case},
    rivals::{Rival, Rivals},
};
use super::Measurement;
use anyhow::{Context, Result};
use elasti_e2e::report::Goal;

/// Many and short: a neighbour who disturbs one of them does not move the median.
const ROUNDS: usize = 11;
/// From here on those whom no goal names: they have one round in so many.
const OTHERS: usize = 2;
const SELDOM: usize = 5;

/// What one round of one rival showed.
#[derive(Clone, Copy)]
struct Round {
    per_second: f64,
    /// For each second of the proxy's core.
    per_cpu: f64,
}

/// The rounds of one rival.
type Rounds = Vec<Round>;

impl Measurement<'_> {
    pub(super) async fn passing(&mut self) -> Result<()> {
        self.report.part(
            "Passing through, on one core, in turns with haproxy, nginx and nobody",
            "elasti-resolver-figures --only passing",
        );
        let rivals = Rivals::start(self.stage).await?;
        let mut ratios = Vec::new();
        for case in CASES {
            let mut rounds: [Rounds; 4] = Default::default();
            for round in 0..ROUNDS {
                for turn in 0..rounds.len() {
                    let which = (round + turn) % rounds.len();
                    if which >= OTHERS && round % SELDOM > 0 {
                        continue;
                    }
                    let seen = self.round(case, &rivals.all[which]).await;
                    let who = rivals.all[which].name;
                    rounds[which].push(seen.with_context(|| format!("{} by {who}", case.name))?);
                }
            }
            ratios.push(self.compare(case, &rivals.all, &rounds));
        }
        let enough = CASES.len().div_ceil(2) as f64;
        let better = ratios.iter().filter(|ratio| **ratio >= 1.0).count();
        let figure = "cases in which ours is at least haproxy's";
        self.report
            .add(figure, better as f64, "cases", Goal::AtLeast(enough));
        self.stage.put_to_sleep().await
    }

    async fn round(&self, case: &Case, rival: &Rival) -> Result<Round> {
        let before = rival.usage.cpu()?;
        let passed = case.ask(self.stage, rival).await?;
        let cpu = rival.usage.cpu()? - before;
        Ok(Round {
            per_second: passed.per_second,
            per_cpu: passed.per_second * passed.seconds / cpu,
        })
    }

    /// The ratio of ours to haproxy's. That for each second of CPU tells of the proxies alone, also where
    /// the core of client and target is the slower one.
    fn compare(&mut self, case: &Case, rivals: &[Rival; 4], rounds: &[Rounds; 4]) -> f64 {
        let [ours, haproxy, ..] = rounds;
        let ratios = |theirs: &Rounds, value: fn(&Round) -> f64| -> Vec<f64> {
            let step = if theirs.len() < haproxy.len() {
                SELDOM
            } else {
                1
            };
            let pairs = theirs.iter().zip(haproxy.iter().step_by(step));
            pairs
                .map(|(one, other)| value(one) / value(other))
                .collect()
        };
        let per_second = |round: &Round| round.per_second;
        let row = self.report.add_median(
            format!("{}: ours to haproxy's", case.name),
            ratios(ours, per_second),
            "ratio",
            Goal::AtLeast(0.9),
        );
        row.mark("passing", "Elasti", case.name);
        if case.name == CASES[0].name {
            row.theirs("0.1");
        }
        let ratio = row.measured;
        self.report.add_median(
            format!("{}: the same for each second of CPU", case.name),
            ratios(ours, |round| round.per_cpu),
            "ratio",
            Goal::None,
        );
        for (rival, theirs) in rivals.iter().zip(rounds).skip(OTHERS) {
            let figure = format!("{}: {} to haproxy's", case.name, rival.name);
            self.report
                .add_median(figure, ratios(theirs, per_second), "ratio", Goal::None)
                .mark("passing", rival.name, case.name);
        }
        for (rival, rounds) in rivals.iter().zip(rounds) {
            let samples = rounds.iter().map(per_second).collect();
            let figure = format!("{}: {}", case.name, rival.name);
            self.report
                .add_median(figure, samples, case.unit, Goal::None);
        }
        ratio
    }
}
