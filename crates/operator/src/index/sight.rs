//! How well the operator sees: the watches of the kinds that every decision needs.

use super::{Index, Touched};
use elasti_runtime::watch::Health;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The kinds without which nothing is decided.
const NEEDED: [&str; 3] = ["ElastiService", "Service", "EndpointSlice"];

#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    listed: BTreeSet<&'static str>,
    troubles: BTreeMap<&'static str, Trouble>,
}

/// A watch that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) since: Timestamp,
    pub(crate) message: String,
}

impl Index {
    pub(crate) fn change_sight(
        &mut self,
        kind: &'static str,
        health: Health,
        now: Timestamp,
    ) -> Touched {
        match health {
            Health::Starting => return Touched::new(),
            Health::Synced => {
                self.sight.listed.insert(kind);
                self.sight.troubles.remove(kind);
            }
            Health::Absent(error) | Health::Failing(error) => {
                let known = self.sight.troubles.get(kind);
                let trouble = Trouble {
                    since: known.map_or(now, |trouble| trouble.since),
                    message: format!("{kind} cannot be watched: {error}"),
                };
                self.sight.troubles.insert(kind, trouble);
            }
        }
        self.everyone()
    }

    pub(crate) fn sight(&self) -> &Sight {
        &self.sight
    }
}

// === impl Sight ===

impl Sight {
    /// Whether everything was listed once: what is not known then does not exist.
    pub(crate) fn is_complete(&self) -> bool {
        NEEDED.iter().all(|kind| self.listed.contains(kind))
    }

    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        self.troubles.values().min_by_key(|trouble| trouble.since)
    }
}

// === impl Trouble ===

impl Trouble {
    /// An API server that restarts is no news for thousands of objects.
    pub(crate) fn told_at(&self) -> Timestamp {
        self.since
            .checked_add(SignedDuration::from_secs(30))
            .unwrap_or(Timestamp::MAX)
    }
}
