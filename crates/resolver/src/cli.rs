//! How the resolver is told what to do: KubeElasti's environment, and flags for all of it.

use clap::Parser;
use elasti_api::{GoDuration, Release};
use elasti_resolver::{Settings, directory::Dial, proxy, room::Limits, route::Naming};
use elasti_runtime::sentry;
use http::HeaderName;
use std::{env, path::PathBuf, str::FromStr, time::Duration};

/// Holds the traffic of sleeping services, has them woken, forwards, and leaves the path.
#[derive(Parser)]
#[command(name = "elasti-resolver", version)]
pub(crate) struct Cli {
    /// Port on which requests say in their head whose they are
    #[arg(long, env = "ELASTI_RESOLVER_PROXY_PORT", default_value_t = 8012)]
    proxy_port: u16,

    /// Port of metrics, health and status
    #[arg(long, env = "ELASTI_RESOLVER_PORT", default_value_t = 8013)]
    pub(crate) port: u16,

    /// Namespaces to work for; none means all
    #[arg(
        long = "watch-namespace",
        env = "WATCH_NAMESPACES",
        value_delimiter = ','
    )]
    watch_namespaces: Vec<String>,

    /// Namespace of the operator
    #[arg(long, env = "ELASTI_OPERATOR_NAMESPACE", default_value = "elasti")]
    operator_namespace: String,

    /// Service of the operator
    #[arg(
        long,
        env = "ELASTI_OPERATOR_SERVICE_NAME",
        default_value = "elasti-operator-controller-service"
    )]
    operator_service: String,

    /// Port on which the operator is told of requests
    #[arg(long, env = "ELASTI_OPERATOR_PORT", default_value_t = 8013)]
    operator_port: u16,

    /// Token that shows the operator that this is a resolver
    #[arg(
        long,
        env = "ELASTI_TOKEN_FILE",
        default_value = "/var/run/secrets/elasti/token"
    )]
    token_file: PathBuf,

    /// Domain of the cluster
    #[arg(
        long,
        env = "KUBERNETES_CLUSTER_DOMAIN",
        default_value = "cluster.local"
    )]
    cluster_domain: String,

    /// Headers that tell whose a request is, before Host
    #[arg(
        long,
        env = "HEADER_FOR_HOST",
        value_delimiter = ',',
        default_value = "X-Envoy-Decorator-Operation"
    )]
    header_for_host: Vec<String>,

    /// How long a request may wait for a target, such as 10m, or in seconds; an ElastiService may
    /// have its own limit
    #[arg(long, env = "REQ_TIMEOUT", default_value = "10m", value_parser = duration)]
    request_timeout: Duration,

    /// How many requests may wait for one service; an ElastiService may have its own limit
    #[arg(long, env = "QUEUE_SIZE", default_value_t = 10_000)]
    queue_size: usize,

    /// How many requests may wait in all
    #[arg(long, env = "ELASTI_MAX_HELD", default_value_t = 50_000)]
    max_held: usize,

    /// How many connections may be open at once
    #[arg(long, env = "ELASTI_MAX_CONNECTIONS", default_value_t = 50_000)]
    pub(crate) max_connections: usize,

    /// How long a silent client is given before the server is expected to speak first
    #[arg(long, env = "ELASTI_FIRST_WORD", default_value = "500ms", value_parser = duration)]
    first_word: Duration,

    /// How long the head of a request may take, from its first byte
    #[arg(long, env = "ELASTI_HEAD_TIMEOUT", default_value = "30s", value_parser = duration)]
    head_timeout: Duration,

    /// How long a connection without a request is kept; longer than the clients keep theirs, or some
    /// will send a request on one that is just being closed
    #[arg(long, env = "ELASTI_IDLE_TIMEOUT", default_value = "620s", value_parser = duration)]
    idle_timeout: Duration,

    /// Where a target is reached: at its ready endpoints, or, for meshes, at the ClusterIP of its
    /// private service
    #[arg(long, env = "ELASTI_DIAL", default_value = "endpoints", value_parser = ["endpoints", "cluster-ip"])]
    dial: String,

    /// When held requests are let go: as soon as a pod passes its own readiness probes, which the resolver
    /// asks, or when Kubernetes has asked them; an ElastiService may say otherwise
    #[arg(long, env = "ELASTI_RELEASE", default_value = "EarliestReady", value_parser = ["EarliestReady", "KubernetesReady"])]
    release: String,

    /// Say in answers how long their requests were held
    #[arg(long, env = "ELASTI_MARK_HELD", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    mark_held: bool,

    /// How long connections are still taken after the order to end, at least; as long as more come, up to six times
    /// as long
    #[arg(long, env = "ELASTI_FAREWELL", default_value = "10s", value_parser = duration)]
    farewell: Duration,

    /// What is logged: error, warn, info, debug, trace, or directives such as elasti_resolver=debug
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    pub(crate) log_level: String,

    /// How it is logged
    #[arg(long, env = "LOG_FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) log_format: String,

    /// Where errors are reported; left out, nowhere
    #[arg(long, env = "SENTRY_DSN", hide_env_values = true)]
    sentry_dsn: Option<String>,

    /// Environment that reports name
    #[arg(long, env = "SENTRY_ENVIRONMENT")]
    sentry_environment: Option<String>,

    /// Name of this resolver; the pod's by default
    #[arg(long, env = "HOSTNAME", default_value = "elasti-resolver")]
    identity: String,
}

/// Part of KubeElasti's environment, and without meaning here.
const UNUSED: [&str; 14] = [
    "ELASTI_OPERATOR_DEPLOYMENT_NAME",
    "ELASTI_RESOLVER_DEPLOYMENT_NAME",
    "ELASTI_RESOLVER_NAMESPACE",
    "ELASTI_RESOLVER_SERVICE_NAME",
    "MAX_QUEUE_CONCURRENCY",
    "INITIAL_CAPACITY",
    "MAX_IDLE_PROXY_CONNS",
    "MAX_IDLE_PROXY_CONNS_PER_HOST",
    "OPERATOR_RETRY_DURATION",
    "QUEUE_RETRY_DURATION",
    "TRAFFIC_RE_ENABLE_DURATION",
    "TRAFFIC_DISABLE_GRACE_DURATION",
    "CRD_CACHE_POLL_INTERVAL_MINUTES",
    "ENABLE_H2C",
];

/// No clock can add what a number of seconds can say.
const LONGEST: Duration = Duration::from_secs(87_600 * 3_600);

/// Go's way of writing durations, or a number of seconds, as KubeElasti has it.
fn duration(text: &str) -> Result<Duration, String> {
    let duration = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => GoDuration::from_str(text)
            .and_then(|duration| duration.get())
            .map_err(|error| error.to_string())?,
    };
    if duration > LONGEST {
        return Err("it has to be 87600h, which are ten years, or less".into());
    }
    Ok(duration)
}

fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

// === impl Cli ===

impl Cli {
    pub(crate) fn settings(&self) -> Settings {
        let not_empty = |texts: &[String]| -> Vec<String> {
            let texts = texts.iter().map(|text| text.trim().to_owned());
            texts.filter(|text| !text.is_empty()).collect()
        };
        let headers = not_empty(&self.header_for_host);
        Settings {
            proxy_port: self.proxy_port,
            proxy: proxy::Settings {
                naming: Naming {
                    headers: headers
                        .iter()
                        .filter_map(|name| HeaderName::from_str(name).ok())
                        .collect(),
                    domain: self.cluster_domain.clone(),
                },
                mark_held: self.mark_held,
                first_word: self.first_word,
                head: self.head_timeout,
                idle: self.idle_timeout,
            },
            release: if self.release == "KubernetesReady" {
                Release::KubernetesReady
            } else {
                Release::EarliestReady
            },
            dial: if self.dial == "cluster-ip" {
                Dial::ClusterIp
            } else {
                Dial::Endpoints
            },
            limits: Limits {
                patience: self.request_timeout,
                seats: self.queue_size,
            },
            seats: self.max_held,
            connections: self.max_connections,
            watch_namespaces: not_empty(&self.watch_namespaces),
            operator_namespace: self.operator_namespace.clone(),
            operator_service: self.operator_service.clone(),
            operator_port: self.operator_port,
            token: Some(self.token_file.clone()),
            farewell: self.farewell,
            grace: self.request_timeout,
        }
    }

    pub(crate) fn sentry(&self) -> sentry::Settings<'_> {
        sentry::Settings {
            dsn: given(&self.sentry_dsn),
            environment: given(&self.sentry_environment),
            release: concat!("elasti-resolver@", env!("CARGO_PKG_VERSION")),
            server: Some(&self.identity),
        }
    }

    /// What was given and has no use here.
    pub(crate) fn unused(&self) -> Vec<&'static str> {
        let set = UNUSED.into_iter();
        set.filter(|name| env::var_os(name).is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_setting_explains_itself() {
        for setting in Cli::command().get_arguments() {
            let name = setting.get_id();
            assert!(setting.get_help().is_some(), "nothing is said of {name}");
        }
    }

    #[test]
    fn durations_are_written_in_seconds_or_as_in_go_and_have_an_end() {
        assert_eq!(duration("600"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for too_long in ["18446744073709551615", "100000h"] {
            assert!(duration(too_long).is_err(), "{too_long}");
        }
        assert!(duration("soon").is_err());
    }
}
