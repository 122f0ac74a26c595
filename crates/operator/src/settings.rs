//! How this operator was started.

use crate::prometheus;
use elasti_core::plan::Patience;
use elasti_runtime::watch::Scope;
use std::time::Duration;

#[derive(Clone)]
pub struct Settings {
    /// Of this replica, among all.
    pub identity: String,
    pub resolver_namespace: String,
    pub resolver_service: String,
    pub proxy_port: i32,
    pub polling_interval: Duration,
    /// Empty means all.
    pub watch_namespaces: Vec<String>,
    pub prometheus: prometheus::Settings,
    pub patience: Patience,
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
}
