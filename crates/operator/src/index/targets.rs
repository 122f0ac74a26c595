//! Targets, kind by kind: each kind has a watch of its own, which lives as long as an ElastiService
//! names it.

use super::{Index, Kind, KindOfTargets, Touched, changed};
use crate::facts::{Declared, TargetFacts};
use crate::readiness::Unaskable;
use elasti_api::{ElastiService, Readiness};
use elasti_core::plan::Target;
use elasti_runtime::watch::{Change, Health, Key, Scope};
use jiff::{SignedDuration, Timestamp};
use kube::api::ApiResource;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// How long a target that we scaled to zero is taken for asleep though the watch does not say so.
const UNSEEN: SignedDuration = SignedDuration::from_secs(5);

impl Index {
    pub(crate) fn kinds_in_use(&self) -> BTreeSet<Kind> {
        self.by_target.keys().cloned().collect()
    }

    /// What an ElastiService scales.
    pub(crate) fn target_of(&self, key: &Key, object: &ElastiService, now: Timestamp) -> Target {
        let target = &object.spec.scale_target_ref;
        let found = self.target(&Kind::from(target), &key.beside(&target.name));
        let zeroed = self.memories.get(key).and_then(|memory| memory.zeroed);
        let just_now = zeroed.is_some_and(|zeroed| now.duration_since(zeroed) < UNSEEN);
        match found {
            Target::Found { .. } if just_now => Target::Found { replicas: 0 },
            found => found,
        }
    }

    pub(super) fn target(&self, kind: &Kind, key: &Key) -> Target {
        let Some(targets) = self.targets.get(kind) else {
            return Target::Unknown(format!(
                "{} {} is not watched yet",
                kind.api_version, kind.kind
            ));
        };
        let health = targets.health(key);
        match (targets.found.get(key), health.and_then(Health::trouble)) {
            (Some(facts), _) => match facts.replicas {
                Some(replicas) => Target::Found { replicas },
                None => Target::Unknown(format!(
                    "{} has no spec.replicas, and the CustomResourceDefinition that says where it counts them cannot be read",
                    kind.kind
                )),
            },
            (None, Some(error)) => {
                Target::Unknown(format!("{} cannot be watched: {error}", kind.kind))
            }
            (None, None) if health == Some(&Health::Synced) => Target::Missing,
            (None, None) => Target::Unknown(format!("{} is being listed", kind.kind)),
        }
    }

    /// Whether its kind of targets is about to be listed for the first time.
    pub(super) fn awaits_target(&self, key: &Key) -> bool {
        let Some(Declared::Understood(object)) = self.declared.get(key) else {
            return false;
        };
        let target = &object.spec.scale_target_ref;
        let targets = self.targets.get(&Kind::from(target));
        let health = targets.and_then(|targets| targets.health(&key.beside(&target.name)));
        health.is_none_or(|health| *health == Health::Starting)
    }

    /// Whether what is known of a target is what there is.
    pub(crate) fn sees_target(&self, kind: &Kind, key: &Key) -> bool {
        let targets = self.targets.get(kind);
        targets.and_then(|targets| targets.health(key)) == Some(&Health::Synced)
    }

    /// Whether the target itself says that none of its pods is ready.
    pub(crate) fn is_unready(&self, kind: &Kind, key: &Key) -> bool {
        let facts = self.target_facts(kind, key);
        facts.is_some_and(|facts| facts.ready == Some(0))
    }

    pub(crate) fn is_lagging(&self, kind: &Kind, key: &Key) -> bool {
        self.target_facts(kind, key)
            .is_some_and(|facts| facts.lagging)
    }

    /// Until when a target counts as asleep though the watch does not say so.
    pub(crate) fn unseen_until(&self, key: &Key) -> Option<Timestamp> {
        let zeroed = self.memories.get(key)?.zeroed?;
        zeroed.checked_add(UNSEEN).ok()
    }

    /// When its pods are ready; nothing of a target that nobody has seen.
    pub(crate) fn readiness(
        &self,
        kind: &Kind,
        key: &Key,
    ) -> Option<Result<Arc<Readiness>, Unaskable>> {
        Some(self.target_facts(kind, key)?.readiness.clone())
    }

    pub(crate) fn target_uid(&self, kind: &Kind, key: &Key) -> Option<String> {
        let facts = self.target_facts(kind, key)?;
        facts.uid.as_deref().map(Into::into)
    }

    fn target_facts(&self, kind: &Kind, key: &Key) -> Option<&TargetFacts> {
        self.targets.get(kind)?.found.get(key).map(Box::as_ref)
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

    pub(crate) fn change_kind_health(
        &mut self,
        kind: &Kind,
        scope: &Scope,
        health: &Health,
    ) -> Touched {
        self.kind(kind)
            .healths
            .insert(scope.clone(), health.clone());
        let of_kind = self.by_target.get(kind).into_iter().flatten();
        of_kind
            .filter(|(target, _)| scope.covers(target))
            .flat_map(|(_, users)| users)
            .cloned()
            .collect()
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

    /// When a target began to sleep, and that it was woken, whoever did it.
    pub(super) fn note_sleep(&mut self, user: &Key, kind: &Kind, now: Timestamp) {
        let Some(Declared::Understood(object)) = self.declared.get(user) else {
            return;
        };
        let target = user.beside(&object.spec.scale_target_ref.name);
        let service = user.beside(&object.spec.service);
        let Target::Found { replicas } = self.target(kind, &target) else {
            return;
        };
        let memory = self.memories.get(user);
        let wakes = replicas > 0 && memory.is_some_and(|memory| memory.asleep_since.is_some());
        let listed = wakes.then(|| self.ready_pods(&service).map(Into::into).collect());
        self.remember(user, |memory| match (replicas, memory.asleep_since) {
            (0, known) => {
                memory.zeroed = None;
                if known.is_none() {
                    memory.asleep_since = Some(now);
                    memory.first_knock = None;
                }
            }
            (_, Some(_)) => {
                memory.asleep_since = None;
                memory.woken = Some(now);
                memory.doomed = listed.unwrap_or_default();
                memory.last_active = memory.last_active.max(Some(now));
            }
            (_, None) => {}
        });
    }

    fn kind(&mut self, kind: &Kind) -> &mut KindOfTargets {
        self.targets
            .entry(kind.clone())
            .or_insert_with(|| KindOfTargets {
                resource: None,
                healths: HashMap::new(),
                found: HashMap::new(),
            })
    }

    fn users_of_keys(&self, kind: &Kind, keys: &[Key]) -> Touched {
        keys.iter()
            .filter_map(|key| self.users_of_target(kind, key))
            .flatten()
            .cloned()
            .collect()
    }
}

// === impl KindOfTargets ===

impl KindOfTargets {
    fn health(&self, key: &Key) -> Option<&Health> {
        let own = Scope::Namespace(key.namespace.clone());
        let found = self.healths.get(&Scope::All);
        found.or_else(|| self.healths.get(&own))
    }
}
