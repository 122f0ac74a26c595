//! elasti-wake-figures: how long a request waits for a target at zero, against the time that the same pod takes to
//! answer when it is started by hand, and to be called ready by Kubernetes; and what is lost while services fall asleep
//! under load. And how soon an answer follows the endpoint event, and how long a crowd waits.

mod after_ready;
mod asleep;
mod crowd;
mod early;
mod event;
mod pairs;
mod pods;
mod steps;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use elasti_e2e::{
    LONGEST,
    report::Report,
    stage::{Cast, Whole},
    test_alone,
};
use std::{fs, path::PathBuf, process::ExitCode};

/// Measures on a local cluster of its own.
#[derive(Parser)]
#[command(name = "elasti-wake-figures", version)]
struct Cli {
    /// Measure this alone; may be repeated
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,

    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// From zero through Elasti, and by hand, in turns
    Pairs,
    /// What a request from zero waits for
    Steps,
    /// From zero to an answer, against Kubernetes' Ready
    Early,
    /// From the endpoint event to the answer
    Event,
    /// A thousand clients at once, from zero
    Crowd,
    /// What is lost while services fall asleep under load
    Asleep,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elasti-wake-figures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    test_alone("wake-figures", 3 * LONGEST, async |place| {
        let whole = Whole::with(place, Cast::default().resolvers(2)).await?;
        let mut report = Report::default();
        if cli.wants(Part::Pairs) {
            pairs::measure(&whole.stage, &mut report).await?;
        }
        if cli.wants(Part::Steps) {
            steps::measure(&whole.stage, &mut report).await?;
        }
        if cli.wants(Part::Early) {
            early::measure(&whole.stage, &mut report).await?;
        }
        if cli.wants(Part::Event) {
            event::measure(&whole.stage, &mut report).await?;
        }
        if cli.wants(Part::Crowd) {
            crowd::measure(&whole.stage, &mut report).await?;
        }
        if cli.wants(Part::Asleep) {
            asleep::measure(&whole.stage, &mut report).await?;
        }
        print!("{report}");
        if let Some(path) = &cli.json {
            fs::write(path, serde_json::to_vec(&report)?)?;
        }
        Ok(())
    })
}

// === impl Cli ===

impl Cli {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}
