//! How this operator was started.

use crate::prometheus;
use elasti_core::plan::Patience;
use elasti_runtime::watch::{Key, Scope};
use std::{ops::RangeInclusive, time::Duration};

#[derive(Clone)]
pub struct Settings {
    /// Of this installation: names of what it keeps for itself begin with it.
    pub name: String,
    /// Of this replica, among all.
    pub identity: String,
    /// Of this operator.
    pub namespace: String,
    /// Whether whoever knocks must show that it is a resolver.
    pub authenticate_knocks: bool,
    pub resolver_namespace: String,
    pub resolver_service: String,
    pub proxy_port: u16,
    pub routing: Routing,
    /// Whether private services get cluster addresses.
    pub private_addresses: bool,
    pub polling_interval: Duration,
    /// Empty means all.
    pub watch_namespaces: Vec<String>,
    pub prometheus: prometheus::Settings,
    pub patience: Patience,
    /// Whether every ElastiService is treated as if it was deleted.
    pub release: bool,
}

/// How a resolver learns which service a connection is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Every port of every service has a port of its own on the resolvers, out of these.
    Port(RangeInclusive<u16>),
    /// All share the proxy port; the Host header tells.
    Host,
}

// === impl Settings ===

impl Settings {
    /// One watch for everything, or one for each namespace that we may see.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        if self.watch_namespaces.is_empty() {
            return vec![Scope::All];
        }
        let namespaces = self.watch_namespaces.iter();
        namespaces
            .map(|namespace| Scope::Namespace(namespace.as_str().into()))
            .collect()
    }

    /// The same, and the resolvers' namespace with them.
    pub(crate) fn slice_scopes(&self) -> Vec<Scope> {
        let mut scopes = self.scopes();
        let resolvers = Scope::Namespace(self.resolver_namespace.as_str().into());
        if scopes != [Scope::All] && !scopes.contains(&resolvers) {
            scopes.push(resolvers);
        }
        scopes
    }

    /// The ConfigMap in which they are written down.
    pub(crate) fn resting_ports(&self) -> Key {
        Key::new(&self.namespace, &format!("{}-resting-ports", self.name))
    }

    pub(crate) fn port_range(&self) -> RangeInclusive<u16> {
        match &self.routing {
            Routing::Port(range) => range.clone(),
            #[expect(clippy::reversed_empty_ranges, reason = "no port at all")]
            Routing::Host => 1..=0,
        }
    }
}
