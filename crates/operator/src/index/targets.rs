//! Targets, kind by kind: each kind has a watch of its own, which lives as long as an ElastiService
//! names it.

use super::{Index, Kind, KindOfTargets, Touched, changed};
use crate::facts::{Declared, TargetFacts};
use elasti_core::plan::Target;
use elasti_runtime::watch::{Change, Health, Key};
use jiff::Timestamp;
use kube::api::ApiResource;
use std::collections::{BTreeSet, HashMap};

impl Index {
    pub(crate) fn kinds_in_use(&self) -> BTreeSet<Kind> {
        self.by_target
            .keys()
            .map(|(kind, _)| kind.clone())
            .collect()
    }

    pub(crate) fn target(&self, kind: &Kind, key: &Key) -> Target {
        let Some(targets) = self.targets.get(kind) else {
            return Target::Unknown(format!(
                "{} {} is not watched yet",
                kind.api_version, kind.kind
            ));
        };
        match (targets.found.get(key), &targets.health) {
            (Some(facts), _) => Target::Found {
                replicas: facts.replicas,
            },
            (None, Health::Synced) => Target::Missing,
            (None, Health::Starting) => Target::Unknown(format!("{} is being listed", kind.kind)),
            (None, Health::Absent(error) | Health::Failing(error)) => {
                Target::Unknown(format!("{} cannot be watched: {error}", kind.kind))
            }
        }
    }

    /// Whether the target itself says that none of its pods is ready.
    pub(crate) fn is_unready(&self, kind: &Kind, key: &Key) -> bool {
        let targets = self.targets.get(kind);
        let facts = targets.and_then(|targets| targets.found.get(key));
        facts.is_some_and(|facts| facts.ready == Some(0))
    }

    pub(crate) fn discover_kind(&mut self, kind: &Kind, resource: ApiResource) {
        self.kind(kind).resource = Some(resource);
    }

    /// How the API server spells a kind, or how it most likely does.
    pub(crate) fn resource_of(&self, kind: &Kind) -> ApiResource {
        let discovered = self
            .targets
            .get(kind)
            .and_then(|targets| targets.resource.clone());
        discovered.unwrap_or_else(|| ApiResource::from_gvk(&kind.gvk()))
    }

    /// A kind whose last user is gone is forgotten with its targets.
    pub(crate) fn drop_kind(&mut self, kind: &Kind) {
        self.targets.remove(kind);
    }

    pub(crate) fn change_kind_health(&mut self, kind: &Kind, health: Health) -> Touched {
        self.kind(kind).health = health;
        let users = self.by_target.iter().filter(|((used, _), _)| used == kind);
        users.flat_map(|(_, users)| users.clone()).collect()
    }

    pub(crate) fn change_targets(
        &mut self,
        kind: &Kind,
        change: Change<TargetFacts>,
        now: Timestamp,
    ) -> Touched {
        let keys = changed(&mut self.kind(kind).found, change);
        let touched = self.users_of_keys(kind, &keys);
        for user in &touched {
            self.note_sleep(user, kind, now);
        }
        touched
    }

    /// From when on a knock is a reason to wake.
    fn note_sleep(&mut self, user: &Key, kind: &Kind, now: Timestamp) {
        let Some(Declared::Understood(object)) = self.declared.get(user) else {
            return;
        };
        let target = user.beside(&object.spec.scale_target_ref.name);
        let asleep = self.target(kind, &target) == (Target::Found { replicas: 0 });
        self.remember(user, |memory| match (asleep, memory.asleep_since) {
            (true, None) => {
                memory.asleep_since = Some(now);
                memory.first_knock = None;
            }
            (false, Some(_)) => {
                memory.asleep_since = None;
                memory.last_active = memory.last_active.max(Some(now));
            }
            _ => {}
        });
    }

    fn kind(&mut self, kind: &Kind) -> &mut KindOfTargets {
        self.targets
            .entry(kind.clone())
            .or_insert_with(|| KindOfTargets {
                resource: None,
                health: Health::Starting,
                found: HashMap::new(),
            })
    }

    fn users_of_keys(&self, kind: &Kind, keys: &[Key]) -> Touched {
        keys.iter()
            .filter_map(|key| self.by_target.get(&(kind.clone(), key.clone())))
            .flatten()
            .cloned()
            .collect()
    }
}
