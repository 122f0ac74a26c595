//! elasti-benchmarks: a page of all figures, with plots, out of what the programs that measure have written.

mod machine;
mod page;
mod plot;
mod raw;

use anyhow::{Context, Result};
use clap::Parser;
use elasti_e2e::report::Report;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Writes README.md, figures.csv, samples.csv and the plots.
#[derive(Parser)]
#[command(name = "elasti-benchmarks", version)]
struct Cli {
    /// Where to
    #[arg(long, default_value = "docs/benchmarks")]
    folder: PathBuf,

    /// The commit that was measured
    #[arg(long)]
    revision: String,

    /// How long all of it took, in seconds
    #[arg(long)]
    seconds: u64,

    /// What was measured, of each program
    #[arg(required = true)]
    figures: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elasti-benchmarks: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let mut report = Report::default();
    for path in &cli.figures {
        report.parts.append(&mut read(path)?.parts);
    }
    // Of a run that was interrupted.
    report.parts.retain(|part| !part.rows.is_empty());
    fs::create_dir_all(&cli.folder)?;
    let plots = plot::draw(&report, &cli.folder)?;
    raw::write(&report, &cli.folder)?;
    let page = page::Page {
        report: &report,
        plots: &plots,
        machine: machine::describe()?,
        revision: &cli.revision,
        seconds: cli.seconds,
    };
    fs::write(cli.folder.join("README.md"), page.to_string())?;
    print!("{report}");
    println!("\n{}", page.summary());
    println!("Written to {}", cli.folder.display());
    Ok(())
}

fn read(path: &Path) -> Result<Report> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("understanding {}", path.display()))
}
