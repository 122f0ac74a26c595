use super::endpoint::Endpoint;
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::Instant;

/// What is ready behind a service.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// By the name of the port. They are few, and looked for with every request.
    pub(super) by_port: BTreeMap<Arc<str>, Vec<Arc<Endpoint>>>,
    /// The names that the service's ports have now, which are not for ever.
    pub(super) names: Vec<(u16, Arc<str>)>,
    /// Since when nobody speaks for the service.
    pub(super) gone: Option<Instant>,
}

// === impl Endpoints ===

impl Endpoints {
    pub(super) fn any(&self) -> bool {
        self.by_port.values().any(|all| !all.is_empty())
    }

    /// Whether those who wait have something to look at.
    pub(super) fn is_news(&self) -> bool {
        self.any() || self.gone.is_some()
    }

    /// Those of the port that has this number, whatever it is called by now; or, if there is none, those of
    /// the port that has this name.
    pub(super) fn of(&self, number: Option<u16>, name: &str) -> Option<&Vec<Arc<Endpoint>>> {
        let mut names = self.names.iter();
        let now = names.find(|(known, _)| Some(*known) == number);
        let renamed = now.and_then(|(_, name)| self.by_port.get(name));
        renamed.or_else(|| self.by_port.get(name))
    }
}
