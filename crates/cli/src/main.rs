//! kubectl-elasti: `kubectl elasti …` once it is on the PATH.

use clap::{Parser, Subcommand};
use elasti_api::ElastiService;
use kube::CustomResourceExt;
use std::{io::Write, process::ExitCode};

/// Elasti scales Kubernetes services to zero and wakes them on the first connection.
#[derive(Parser)]
#[command(name = "kubectl-elasti", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the ElastiService CustomResourceDefinition as YAML
    Crd,
}

fn main() -> ExitCode {
    let text = match Cli::parse().command {
        Command::Crd => {
            serde_saphyr::to_string(&ElastiService::crd()).map_err(|error| error.to_string())
        }
    };
    match text.and_then(|text| {
        std::io::stdout()
            .write_all(text.as_bytes())
            .map_err(|error| error.to_string())
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kubectl-elasti: {error}");
            ExitCode::FAILURE
        }
    }
}
