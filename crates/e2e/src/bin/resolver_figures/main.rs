//! elasti-resolver-figures: what the resolver costs while it holds, how fast it lets go, and what it adds
//! to what passes, measured from outside. Its directory comes from a real API server; clients and
//! targets are further processes of this program.

mod clock;
mod haproxy;
mod helper;
mod measure;
mod nginx;
mod operator;
mod process;
mod resolver;
mod stage;
mod witness;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use elasti_e2e::measured;
use helper::Role;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::{path::PathBuf, process::ExitCode};

/// Measures the resolver on a local cluster of its own, or beside the API server of KUBECONFIG.
#[derive(Parser)]
#[command(name = "elasti-resolver-figures", version)]
struct Cli {
    /// Measure this alone; may be repeated
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,

    /// The resolver to measure; without it, the one that was built beside this program
    #[arg(long)]
    resolver: Option<PathBuf>,

    /// Name of the local cluster
    #[arg(long, default_value = "figures")]
    cluster: String,

    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,

    /// Leave the local cluster running, for the next time
    #[arg(long)]
    keep: bool,

    /// What a further process of this program is
    #[arg(long, hide = true, value_parser = Role::parse)]
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Size, time to ready, and memory at rest
    Start,
    /// Memory and CPU while thousands are held
    Holding,
    /// Some and thousands that are held, and an endpoint that appears
    Burst,
    /// What passes on one core, against haproxy and nginx there
    Passing,
    /// What is added to a request that passes
    Latency,
    /// Bodies of 1 GiB
    Large,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.role {
        Some(role) => helper::play(role),
        None => run(&cli),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elasti-resolver-figures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    // Every process that is started here inherits it.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    measured(
        &cli.cluster,
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
