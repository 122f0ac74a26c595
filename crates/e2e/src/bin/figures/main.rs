//! elasti-figures: how fast the operator is and what it costs, measured from outside, on a real API
//! server.

mod api_server;
mod copies;
mod measure;
mod operator;
mod population;
mod prometheus;
mod resolver;
mod stage;
mod witness;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use elasti_e2e::measured;
use std::{path::PathBuf, process::ExitCode};

const CLUSTER: &str = "figures";

/// Measures the operator on a local cluster of its own, or on that of KUBECONFIG, whose API server
/// must let us read its metrics.
#[derive(Parser)]
#[command(name = "elasti-figures", version)]
struct Cli {
    /// How many ElastiServices there are in the end
    #[arg(long, default_value_t = 10_000)]
    services: usize,

    /// Measure this alone; may be repeated
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,

    /// The operator to measure; without it, the one that was built beside this program
    #[arg(long)]
    operator: Option<PathBuf>,

    /// How the operator routes to resolvers
    #[arg(long, default_value = "port", value_parser = ["port", "host"])]
    routing: String,

    /// Give every ElastiService a Prometheus trigger, which is asked every 30 s and says idle
    #[arg(long)]
    triggers: bool,

    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,

    /// Leave the local cluster running, for the next time
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Start, memory, rest, watches and restart with ever more ElastiServices
    Growth,
    /// 300 sleeping services created at once, then knocks for some of them
    Burst,
    /// A resolver goes and comes while all are asleep
    Resolvers,
    /// As many knocks at once as will do
    Wakes,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elasti-figures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    measured(
        CLUSTER,
        cli.keep,
        cli.json.as_deref(),
        async |cluster, report| measure::all(cluster, cli, report).await,
    )
}

// === impl Cli ===

impl Cli {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}
