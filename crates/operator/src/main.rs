//! elasti-operator: environment, signals, listeners; the rest is the library.

use ::prometheus::Registry;
use anyhow::{Context, Result};
use axum::Router;
use clap::Parser;
use elasti_api::GoDuration;
use elasti_core::plan::Patience;
use elasti_operator::{Parts, Settings, prometheus};
use elasti_runtime::{
    admin,
    lease::{Claim, Leadership, Terms},
    logs,
    readiness::Readiness,
    shutdown,
};
use jiff::SignedDuration;
use kube::Client;
use std::{io, process::ExitCode, str::FromStr, time::Duration};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Puts the targets of ElastiServices to sleep while they are idle, and wakes them on demand.
#[derive(Parser)]
#[command(name = "elasti-operator", version)]
struct Cli {
    /// Run several replicas, of which one at a time writes; all of them wake
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    leader_elect: bool,

    /// Where metrics are served; 0 switches this listener off
    #[arg(long, default_value = ":8080")]
    metrics_bind_address: String,

    /// Where /healthz and /readyz are served
    #[arg(long, default_value = ":8081")]
    health_probe_bind_address: String,

    /// Accepted for KubeElasti's manifests; metrics are served as plain HTTP
    #[arg(long, num_args = 0..=1, default_missing_value = "true", hide_possible_values = true)]
    metrics_secure: Option<bool>,

    /// Accepted for KubeElasti's manifests; no listener speaks HTTP/2
    #[arg(long, num_args = 0..=1, default_missing_value = "true", hide_possible_values = true)]
    enable_http2: Option<bool>,

    /// Namespaces to work in; none means all
    #[arg(
        long = "watch-namespace",
        env = "WATCH_NAMESPACES",
        value_delimiter = ','
    )]
    watch_namespaces: Vec<String>,

    /// Namespace of this operator
    #[arg(long, env = "ELASTI_OPERATOR_NAMESPACE", default_value = "elasti")]
    namespace: String,

    /// Port of the wake server
    #[arg(long, env = "ELASTI_OPERATOR_PORT", default_value_t = 8013)]
    port: u16,

    /// Namespace of the resolvers
    #[arg(long, env = "ELASTI_RESOLVER_NAMESPACE", default_value = "elasti")]
    resolver_namespace: String,

    /// Service of the resolvers
    #[arg(
        long,
        env = "ELASTI_RESOLVER_SERVICE_NAME",
        default_value = "elasti-resolver-service"
    )]
    resolver_service: String,

    /// Port on which resolvers take proxied traffic
    #[arg(long, env = "ELASTI_RESOLVER_PROXY_PORT", default_value_t = 8012)]
    resolver_proxy_port: u16,

    /// How often triggers are asked, such as 30s; an ElastiService may have its own interval
    #[arg(long, env = "POLLING_INTERVAL", default_value = "30s", value_parser = duration)]
    polling_interval: Duration,

    /// How long a published slice is given to reach every data plane before the target sleeps
    #[arg(long, env = "ELASTI_SETTLE_DURATION", default_value = "3s", value_parser = duration)]
    settle: Duration,

    /// Prometheus of triggers that name none
    #[arg(long, env = "PROMETHEUS_TRIGGER_SERVER_ADDRESS")]
    prometheus_address: Option<String>,

    /// Authorization header of triggers that set none
    #[arg(
        long,
        env = "PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER",
        hide_env_values = true
    )]
    prometheus_authorization: Option<String>,

    /// Name of this replica; the pod's by default
    #[arg(long, env = "HOSTNAME", default_value = "elasti-operator")]
    identity: String,

    /// What is logged: error, warn, info, debug, trace, or directives such as elasti_operator=debug
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    log_level: String,

    /// How it is logged
    #[arg(long, env = "LOG_FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
}

#[tokio::main]
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
    let format = if cli.log_format == "json" {
        logs::Format::Json
    } else {
        logs::Format::Text
    };
    logs::init(&cli.log_level, format)?;
    let client = Client::try_default()
        .await
        .context("finding the API server")?;
    let shutdown = CancellationToken::new();
    let signals = shutdown::on_signals(shutdown.clone())?;
    let registry = Registry::new();
    let readiness = Readiness::new();
    let leadership = cli.leader_elect.then(|| {
        Leadership::new(
            client.clone(),
            &cli.namespace,
            "elasti-operator",
            &cli.identity,
            Terms::default(),
        )
    });
    let claim = leadership
        .as_ref()
        .map_or_else(Claim::unopposed, Leadership::claim);
    let parts = Parts::new(client, claim, cli.settings(), &registry, readiness.clone())?;

    let admin = admin::router(registry, readiness);
    let wake_routes = parts.wake_routes().merge(admin.clone());
    let wake = TcpListener::bind(("::", cli.port))
        .await
        .context("opening the wake server's port")?;
    let metrics = listener(&cli.metrics_bind_address).await?;
    let health = listener(&cli.health_probe_bind_address).await?;
    let serve = async {
        tokio::try_join!(
            admin::serve(wake, wake_routes, shutdown.clone()),
            serve_if_any(metrics, admin.clone(), &shutdown),
            serve_if_any(health, admin, &shutdown),
        )
    };
    let lead = async {
        match leadership {
            Some(leadership) => leadership.run(shutdown.clone()).await,
            None => shutdown.cancelled().await,
        }
    };
    let work = shutdown.run_until_cancelled(parts.run());
    tokio::select! {
        never = signals => match never {},
        (served, (), _) = async { tokio::join!(serve, lead, work) } => {
            served?;
            Ok(())
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

fn duration(text: &str) -> Result<Duration, String> {
    GoDuration::from_str(text)
        .and_then(|duration| duration.get())
        .map_err(|error| error.to_string())
}

/// Go's way of writing addresses: a port alone means every address, 0 means none.
async fn listener(address: &str) -> Result<Option<TcpListener>> {
    if address == "0" {
        return Ok(None);
    }
    let full = if address.starts_with(':') {
        format!("[::]{address}")
    } else {
        address.into()
    };
    let listener = TcpListener::bind(&full).await;
    listener
        .map(Some)
        .with_context(|| format!("listening on {address}"))
}

// === impl Cli ===

impl Cli {
    fn settings(&self) -> Settings {
        Settings {
            identity: self.identity.clone(),
            resolver_namespace: self.resolver_namespace.clone(),
            resolver_service: self.resolver_service.clone(),
            proxy_port: self.resolver_proxy_port.into(),
            polling_interval: self.polling_interval,
            watch_namespaces: self
                .watch_namespaces
                .iter()
                .filter(|name| !name.is_empty())
                .cloned()
                .collect(),
            prometheus: prometheus::Settings {
                server_address: self.prometheus_address.clone(),
                authorization: self.prometheus_authorization.clone(),
                ..prometheus::Settings::default()
            },
            patience: Patience {
                settle: SignedDuration::try_from(self.settle).unwrap_or(SignedDuration::MAX),
                ..Patience::default()
            },
        }
    }
}
