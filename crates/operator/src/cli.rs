//! How the operator is told what to do: KubeElasti's flags and environment, and our own.

use clap::Parser;
use elasti_api::GoDuration;
use elasti_core::plan::Patience;
use elasti_operator::{Routing, Settings, prometheus};
use elasti_runtime::{
    lease::{Terms, WrongTerms},
    sentry,
};
use jiff::SignedDuration;
use std::{collections::BTreeSet, env, ops::RangeInclusive, str::FromStr, time::Duration};

const POLLING_INTERVAL: Duration = Duration::from_secs(30);

/// Puts the targets of ElastiServices to sleep while they are idle, and wakes them on demand.
#[derive(Parser)]
#[command(name = "elasti-operator", version)]
pub(crate) struct Cli {
    /// Let one replica at a time write; all of them wake
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) leader_elect: bool,

    /// How long others wait for a leader that is silent
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    leader_elect_lease_duration: Duration,

    /// How long a leader that cannot renew its lease still leads
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    leader_elect_renew_deadline: Duration,

    /// How often the lease is renewed
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    leader_elect_retry_period: Duration,

    /// Where metrics are served; 0 switches this listener off
    #[arg(long, default_value = ":8080")]
    pub(crate) metrics_bind_address: String,

    /// Where /healthz and /readyz are served
    #[arg(long, default_value = ":8081")]
    pub(crate) health_probe_bind_address: String,

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
        value_delimiter = ',',
        value_parser = namespace
    )]
    watch_namespaces: Vec<String>,

    /// Name of this installation: its Lease is NAME-operator, and its ConfigMap NAME-resting-ports
    #[arg(long, env = "ELASTI_NAME", default_value = "elasti")]
    pub(crate) name: String,

    /// Namespace of this operator
    #[arg(long, env = "ELASTI_OPERATOR_NAMESPACE", default_value = "elasti")]
    pub(crate) namespace: String,

    /// Port of the wake server
    #[arg(long, env = "ELASTI_OPERATOR_PORT", default_value_t = 8013)]
    pub(crate) port: u16,

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

    /// Port on which resolvers serve metrics, health and status
    #[arg(long, env = "ELASTI_RESOLVER_PORT", default_value_t = 8013)]
    resolver_port: u16,

    /// How resolvers learn which service a connection is for: every port of every service has a port
    /// of its own on the resolvers, or all share the proxy port and the Host header tells
    #[arg(long, env = "ELASTI_ROUTING", default_value = "port")]
    routing: Words,

    /// Ports on the resolvers that services are given, first and last
    #[arg(long, env = "ELASTI_RESOLVER_PORTS", value_name = "FIRST-LAST", default_value = "10000-32767", value_parser = range)]
    resolver_ports: RangeInclusive<u16>,

    /// Give private services cluster addresses, for resolvers that dial those instead of pods;
    /// without, they are headless
    #[arg(long, env = "ELASTI_PRIVATE_ADDRESSES", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    private_addresses: bool,

    /// Take knocks only from resolvers, which show a service-account token made out for
    /// elasti-operator
    #[arg(long, env = "ELASTI_AUTHENTICATE_KNOCKS", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    authenticate_knocks: bool,

    /// How often triggers are asked, such as 30s; an ElastiService may have its own interval
    #[arg(long, env = "POLLING_INTERVAL", default_value = "30s", value_parser = interval)]
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
    pub(crate) identity: String,

    /// For an uninstall: end the operators, give every target back as if its ElastiService was deleted,
    /// and end
    #[arg(long)]
    pub(crate) release: bool,

    /// With --release: how long what does not come up is waited for
    #[arg(long, value_name = "DURATION", default_value = "4m", value_parser = duration)]
    pub(crate) release_within: Duration,

    /// Deployment of the operators
    #[arg(
        long,
        env = "ELASTI_OPERATOR_DEPLOYMENT_NAME",
        default_value = "elasti-operator-controller-manager"
    )]
    pub(crate) deployment: String,

    /// What is logged: error, warn, info, debug, trace, or directives such as elasti_operator=debug
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
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Words {
    Port,
    Host,
}

/// Part of KubeElasti's environment, and without meaning here.
const UNUSED: [&str; 3] = [
    "KUBERNETES_CLUSTER_DOMAIN",
    "ELASTI_OPERATOR_SERVICE_NAME",
    "ELASTI_RESOLVER_DEPLOYMENT_NAME",
];

fn duration(text: &str) -> Result<Duration, String> {
    GoDuration::from_str(text)
        .and_then(|duration| duration.get())
        .map_err(|error| error.to_string())
}

/// A number alone means seconds; manifests set what they leave open to an empty text.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) if text.is_empty() => POLLING_INTERVAL,
        Err(_) => duration(text)?,
    };
    if interval < Duration::from_secs(1) {
        return Err("right would be a second or more, such as 30s".into());
    }
    Ok(interval)
}

/// Manifests set what they leave open to an empty text.
fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// Lists have spaces, and manifests leave them empty.
fn namespace(text: &str) -> Result<String, String> {
    let name = text.trim();
    let inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let right = name.len() <= 63
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    right.then(|| name.to_owned()).ok_or_else(|| {
        "right would be the name of a namespace: at most 63 small letters, digits and inner dashes"
            .into()
    })
}

fn range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let parsed = text
        .split_once('-')
        .and_then(|(first, last)| Some(first.trim().parse().ok()?..=last.trim().parse().ok()?));
    parsed
        .filter(|range| !range.is_empty() && *range.start() > 0)
        .ok_or_else(|| "right would be the first and the last port, such as 10000-32767".into())
}

// === impl Cli ===

impl Cli {
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            name: self.name.clone(),
            identity: self.identity.clone(),
            namespace: self.namespace.clone(),
            authenticate_knocks: self.authenticate_knocks,
            resolver_namespace: self.resolver_namespace.clone(),
            resolver_service: self.resolver_service.clone(),
            proxy_port: self.resolver_proxy_port,
            routing: match self.routing {
                Words::Port => Routing::Port(self.resolver_ports.clone()),
                Words::Host => Routing::Host,
            },
            private_addresses: self.private_addresses,
            polling_interval: self.polling_interval,
            watch_namespaces: self.watch_namespaces(),
            prometheus: prometheus::Settings {
                server_address: self.prometheus_address.clone(),
                authorization: self.prometheus_authorization.clone(),
                ..prometheus::Settings::default()
            },
            patience: Patience {
                settle: SignedDuration::try_from(self.settle).unwrap_or(SignedDuration::MAX),
                ..Patience::default()
            },
            release: self.release,
        }
    }

    /// Each once: it has one watch of a kind.
    fn watch_namespaces(&self) -> Vec<String> {
        let given: BTreeSet<&String> = self.watch_namespaces.iter().collect();
        let named = given.into_iter().filter(|name| !name.is_empty());
        named.cloned().collect()
    }

    pub(crate) fn sentry(&self) -> sentry::Settings<'_> {
        sentry::Settings {
            dsn: given(&self.sentry_dsn),
            environment: given(&self.sentry_environment),
            release: concat!("elasti-operator@", env!("CARGO_PKG_VERSION")),
            server: Some(&self.identity),
        }
    }

    pub(crate) fn terms(&self) -> Result<Terms, WrongTerms> {
        Terms::new(
            self.leader_elect_lease_duration,
            self.leader_elect_renew_deadline,
            self.leader_elect_retry_period,
        )
    }

    /// A number cannot say both that a connection is for one service and that its head tells for which, or that it is
    /// for the resolver itself.
    pub(crate) fn overlap(&self) -> Result<(), String> {
        let ports = &self.resolver_ports;
        let own = [
            ("proxy port", self.resolver_proxy_port),
            ("port for metrics and health", self.resolver_port),
        ];
        let Some((what, port)) = own.into_iter().find(|(_, port)| ports.contains(port)) else {
            return Ok(());
        };
        Err(format!(
            "--resolver-ports {}-{} contains the resolvers' {what} {port}: right would be a range without it, such as 10000-32767",
            ports.start(),
            ports.end()
        ))
    }

    /// What was given and has no use here.
    pub(crate) fn unused(&self) -> Vec<&'static str> {
        let flags = [
            ("--metrics-secure", self.metrics_secure.is_some()),
            ("--enable-http2", self.enable_http2.is_some()),
        ];
        let flags = flags
            .into_iter()
            .filter_map(|(name, given)| given.then_some(name));
        let set = UNUSED
            .into_iter()
            .filter(|name| env::var_os(name).is_some());
        flags.chain(set).collect()
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
    fn a_range_of_ports_is_two_numbers() {
        assert_eq!(range("10000-32767"), Ok(10_000..=32_767));
        for wrong in ["", "10000", "2-1", "0-9", "1-70000", "a-b"] {
            assert!(range(wrong).is_err(), "{wrong:?} is no range");
        }
    }

    #[test]
    fn an_interval_may_lack_its_unit_or_be_left_open() {
        assert_eq!(interval("90"), Ok(Duration::from_secs(90)));
        assert_eq!(interval("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(interval(""), Ok(POLLING_INTERVAL));
        for wrong in ["0", "500ms", "soon", "-1"] {
            assert!(interval(wrong).is_err(), "{wrong:?} is no interval");
        }
    }

    #[test]
    fn a_list_of_namespaces_is_read_as_it_is_meant() {
        let with = |list: &str| Cli::try_parse_from(["/manager", "--watch-namespace", list]);
        let named = |list: &str| with(list).ok().unwrap().settings().watch_namespaces;
        assert_eq!(named("shop, office ,"), ["office", "shop"]);
        assert_eq!(named("shop,shop"), ["shop"]);
        assert!(named(" ").is_empty(), "all");
        for wrong in ["Shop", "shop office", "shop/web", "shop-", "*"] {
            let told = with(wrong).err().unwrap().to_string();
            assert!(
                told.contains(wrong) && told.contains("right would be"),
                "{told}"
            );
        }
    }

    #[test]
    fn the_resolvers_own_ports_are_no_services() {
        let with = |ports: &str| Cli::parse_from(["/manager", ports]).overlap();
        assert!(with("--resolver-ports=10000-20000").is_ok());
        assert!(with("--resolver-ports=8014-9000").is_ok());
        for (ports, own) in [("8000-8012", "8012"), ("8013-9000", "8013")] {
            let told = with(&format!("--resolver-ports={ports}")).unwrap_err();
            assert!(told.contains(own), "{told}");
        }
    }

    #[test]
    fn kubeelastis_arguments_are_taken() {
        let cli = Cli::try_parse_from([
            "/manager",
            "--leader-elect",
            "--metrics-bind-address=127.0.0.1:8080",
            "--health-probe-bind-address=:8081",
            "--metrics-secure=false",
            "--enable-http2",
            "--watch-namespace",
            "shop,office",
        ])
        .unwrap();
        assert!(cli.leader_elect);
        assert_eq!(cli.settings().watch_namespaces, ["office", "shop"]);
        assert!(cli.unused().contains(&"--metrics-secure"));
    }
}
