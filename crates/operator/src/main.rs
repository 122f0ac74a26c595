//! elasti-operator: environment, signals, listeners; the rest is the library.

mod cli;

use crate::cli::Cli;
use anyhow::{Context, Result};
use axum::Router;
use clap::Parser;
use elasti_operator::Parts;
use elasti_runtime::{
    admin, client,
    lease::{Claim, Leadership},
    listen, logs,
    readiness::Readiness,
    sentry, shutdown,
};
use kube::Config;
use prometheus::Registry;
use std::{io, process::ExitCode, time::Duration};
use tokio::{
    net::{self, TcpListener},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// An API server that does not even answer is given up soon, and tried again.
const CONNECT: Duration = Duration::from_secs(5);

/// For knocks that were answered and not yet acted upon when this replica has to end.
const LAST_WAKES: Duration = Duration::from_secs(5);

/// One thread is enough: it waits for the API server, mostly, and handing work over costs more.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elasti-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
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
    work(cli)
        .await
        .inspect_err(|error| tracing::error!(error = format!("{error:#}"), "Ending"))
}

async fn work(cli: Cli) -> Result<()> {
    let mut config = Config::infer().await.context("finding the API server")?;
    config.connect_timeout = Some(CONNECT);
    // Retries are ours: one inside a call would write after the claim has ended.
    config.default_retry = false;
    let client = client::builder(config.clone())?.build();
    let shutdown = CancellationToken::new();
    let signals = shutdown::on_signals(shutdown.clone())?;
    let registry = Registry::new();
    let readiness = Readiness::new();
    cli.overlap().map_err(anyhow::Error::msg)?;
    let terms = cli.terms()?;
    let leadership = cli.leader_elect.then(|| {
        let lease = format!("{}-operator", cli.name);
        Leadership::new(client, &cli.namespace, &lease, &cli.identity, terms)
    });
    let claim = leadership
        .as_ref()
        .map_or_else(Claim::unopposed, Leadership::claim);
    let parts = Parts::new(config, claim, cli.settings(), &registry, readiness.clone())?;

    let admin = admin::router(registry, readiness.clone(), parts.pages());
    let wake_routes = parts.wake_routes().merge(admin.clone());
    let wake = listener(&format!(":{}", cli.port)).await?;
    let metrics = listener(&cli.metrics_bind_address).await?;
    let health = listener(&cli.health_probe_bind_address).await?;
    let release = async {
        if !cli.release {
            return std::future::pending().await;
        }
        parts.end_others(&cli.deployment).await?;
        parts.release(cli.release_within).await
    };
    let serve = async {
        tokio::try_join!(
            serve_if_any(wake, wake_routes, &shutdown),
            serve_if_any(metrics, admin.clone(), &shutdown),
            serve_if_any(health, admin, &shutdown),
        )
    };
    // The next leader begins when the last writer here has stopped.
    let stopped = CancellationToken::new();
    let lead = async {
        match leadership {
            Some(leadership) => leadership.run(stopped.clone()).await,
            None => stopped.cancelled().await,
        }
    };
    let end = async {
        shutdown.cancelled().await;
        readiness.fail();
        let _ = timeout(LAST_WAKES, parts.finish_wakes()).await;
    };
    let work = async {
        let outcome = tokio::select! {
            () = parts.run() => Ok(()),
            () = end => Ok(()),
            released = release => released,
        };
        shutdown.cancel();
        stopped.cancel();
        outcome
    };
    tokio::select! {
        never = signals => match never {},
        (served, (), worked) = async { tokio::join!(serve, lead, work) } => {
            served?;
            worked
        }
    }
}

async fn serve_if_any(
    listener: Option<TcpListener>,
    routes: Router,
    shutdown: &CancellationToken,
) -> io::Result<()> {
    match listener {
        Some(listener) => admin::serve(listener, routes, shutdown.clone()).await,
        None => Ok(()),
    }
}

/// Go's way of writing addresses: a port alone means every address, 0 means none.
async fn listener(address: &str) -> Result<Option<TcpListener>> {
    if address == "0" {
        return Ok(None);
    }
    let bound = match address.strip_prefix(':').map(str::parse) {
        Some(port) => listen::everywhere(
            port.with_context(|| format!("{address:?}: a port is a number up to 65535"))?,
        ),
        None => listen_at(address).await,
    };
    bound
        .map(Some)
        .with_context(|| format!("listening on {address}"))
}

async fn listen_at(address: &str) -> io::Result<TcpListener> {
    let mut resolved = net::lookup_host(address).await?;
    let address = resolved.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    listen::at(address)
}
