//! How well the operator sees: the watches of the kinds that every decision needs, each in every
//! namespace that it covers. Trouble in one namespace is no trouble elsewhere.

use super::{Index, Touched};
use elasti_runtime::watch::{Health, Key, Scope};
use jiff::{SignedDuration, Timestamp};
use std::{collections::HashMap, sync::Arc};

/// The kinds without which nothing is decided.
const NEEDED: [&str; 3] = ["ElastiService", "Service", "EndpointSlice"];
const SLICES: &str = NEEDED[2];

#[derive(Clone, Debug, Default)]
pub(crate) struct Sight(HashMap<(&'static str, Scope), Seen>);

#[derive(Clone, Debug, Default)]
struct Seen {
    /// Once: what is not known since then does not exist.
    listed: bool,
    trouble: Option<Trouble>,
    /// When its last trouble was over.
    recovered: Option<Timestamp>,
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
        scope: &Scope,
        health: &Health,
        now: Timestamp,
    ) -> Touched {
        let seen = self.sight.0.entry((kind, scope.clone())).or_default();
        seen.listed |= *health == Health::Synced;
        if seen.trouble.is_some() && health.trouble().is_none() {
            seen.recovered = Some(now);
        }
        seen.trouble = health.trouble().map(|error| Trouble {
            since: seen.trouble.as_ref().map_or(now, |known| known.since),
            message: format!("{kind} cannot be watched: {error}"),
        });
        let is_resolvers = scope.covers(&self.resolver_service);
        let keys = self.declared.keys();
        keys.filter(|key| is_resolvers || scope.covers(key))
            .cloned()
            .collect()
    }

    /// Whether everything that concerns an ElastiService was listed once. Of its target it is enough
    /// to know why that is not to be had.
    pub(crate) fn sees(&self, key: &Key) -> bool {
        let mut needed = self.needed(key);
        let listed = needed.all(|(kind, namespace)| {
            self.sight
                .of(kind, &namespace)
                .is_some_and(|seen| seen.listed)
        });
        listed && !self.awaits_target(key)
    }

    /// The oldest trouble with a watch that concerns an ElastiService.
    pub(crate) fn trouble(&self, key: &Key) -> Option<&Trouble> {
        self.needed(key)
            .filter_map(|(kind, namespace)| self.sight.of(kind, &namespace)?.trouble.as_ref())
            .min_by_key(|trouble| trouble.since)
    }

    /// When the last watch that had failed, of those that concern an ElastiService, saw again.
    pub(crate) fn recovered(&self, key: &Key) -> Option<Timestamp> {
        let needed = self.needed(key);
        needed
            .filter_map(|(kind, namespace)| self.sight.of(kind, &namespace)?.recovered)
            .max()
    }

    fn needed(&self, key: &Key) -> impl Iterator<Item = (&'static str, Arc<str>)> + use<> {
        let own = NEEDED.map(|kind| (kind, key.namespace.clone()));
        let resolvers = [(SLICES, self.resolver_service.namespace.clone())];
        own.into_iter().chain(resolvers)
    }
}

// === impl Sight ===

impl Sight {
    fn of(&self, kind: &'static str, namespace: &Arc<str>) -> Option<&Seen> {
        let own = Scope::Namespace(namespace.clone());
        let found = self.0.get(&(kind, Scope::All));
        found.or_else(|| self.0.get(&(kind, own)))
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
