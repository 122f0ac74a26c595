//! elasti-resolver: environment, signals, listeners; the rest is the library.

mod cli;

use crate::cli::Cli;
use anyhow::{Context, Result};
use clap::Parser;
use elasti_resolver::{Parts, listen};
use elasti_runtime::{admin, client, logs, readiness::Readiness, sentry, shutdown};
use kube::Config;
use nix::{
    fcntl::{FcntlArg, fcntl},
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::close,
};
use prometheus::Registry;
use std::{io, iter, process::ExitCode, sync::Arc, thread, time::Duration};
use tokio::runtime::{self, Runtime};
use tokio_util::sync::CancellationToken;

// In place of malloc: every request takes and gives back two buffers of 8 KiB, which the C library is slow with.
// As a global allocator it would be told of alignments that all memory has, and take longer.
use mimalloc as _;

/// How many tasks run before the kernel is asked again who may go on: each request is a handful of them.
const BATCH: u32 = 256;
/// An API server that does not even answer is given up soon, and tried again.
const CONNECT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let cli = Cli::parse();
    match runtime()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run(cli)))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elasti-resolver: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A limit of CPU counts, too. Where there is one core, threads would only wait for each other.
fn runtime() -> io::Result<Runtime> {
    let mut builder = match thread::available_parallelism()?.get() {
        1 => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    builder.event_interval(BATCH).enable_all().build()
}

async fn run(cli: Cli) -> Result<()> {
    let sentry = sentry::init(cli.sentry())?;
    let format = if cli.log_format == "json" {
        logs::Format::Json
    } else {
        logs::Format::Text
    };
    logs::init(&cli.log_level, format, sentry.layer())?;
    let unused = cli.unused();
    if !unused.is_empty() {
        tracing::info!(unused = unused.join(", "), "Accepted, and without use here");
    }
    let ended = work(cli).await;
    ended.inspect_err(|error| tracing::error!(error = format!("{error:#}"), "Ending"))
}

/// Every connection is a file, and so is where it leads.
fn raise_open_files(connections: usize) -> Result<()> {
    let (now, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if now < most {
        setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    }
    let needed = u64::try_from(connections)?.saturating_mul(2);
    if most < needed {
        tracing::info!(
            files = most,
            connections,
            "Fewer files may be open than all connections and their targets need"
        );
    }
    reserve_files(needed.min(most))
}

/// The kernel's table of them, 8 bytes each, doubles when it is full. Whoever opens the next file waits for milliseconds
/// then, and so do all who share its thread: in the middle of a release. It never shrinks.
fn reserve_files(count: u64) -> Result<()> {
    let last = i32::try_from(count.saturating_sub(1))?;
    Ok(close(fcntl(
        io::stderr(),
        FcntlArg::F_DUPFD_CLOEXEC(last),
    )?)?)
}

async fn work(cli: Cli) -> Result<()> {
    if let Err(error) = raise_open_files(cli.max_connections) {
        tracing::warn!(
            error = format!("{error:#}"),
            "Cannot raise the limit of open files"
        );
    }
    let mut config = Config::infer().await.context("finding the API server")?;
    config.connect_timeout = Some(CONNECT);
    config.default_retry = false;
    let client = client::builder(config)?.build();
    let shutdown = CancellationToken::new();
    let signals = shutdown::on_signals(shutdown.clone())?;
    let registry = Registry::new();
    let readiness = Readiness::new();
    let parts = Parts::new(client, cli.settings(), &registry, readiness.clone())?;
    let routes = parts
        .internal_routes()
        .merge(admin::router(registry, readiness, no_pages()));
    let internal = listen::bind(cli.port).with_context(|| format!("opening port {}", cli.port))?;
    let ended = CancellationToken::new();
    let serve = admin::serve(internal, routes, ended.clone());
    let resolve = async {
        let outcome = parts.run(shutdown).await;
        ended.cancel();
        outcome
    };
    tokio::select! {
        never = signals => match never {},
        (resolved, served) = async { tokio::join!(resolve, serve) } => {
            resolved?;
            served?;
            Ok(())
        }
    }
}

/// All metrics of a resolver are registered.
fn no_pages() -> admin::Pages {
    Arc::new(|| Box::new(iter::empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_table_of_files_need_not_grow_any_more() {
        let size = || -> u64 {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            line.unwrap().trim().parse().unwrap()
        };
        assert!(size() < 3_000);
        reserve_files(3_000).unwrap();
        assert!(size() >= 3_000);
    }
}
