//! All that the operator knows, fed by watches, knocks and triggers. Every change says which
//! ElastiServices it touches; nothing else causes work.

mod routes;
mod sight;
mod slices;
mod targets;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    routes::{Route, Routes},
    sight::Trouble,
};

use self::sight::Sight;

use crate::apply;
use crate::facts::{
    Declared, ScaledObjectFacts, ServiceFacts, SliceFacts, TargetFacts, Understood,
};
use crate::few::Few;
use elasti_api::{AttachedTarget, AutoscalerKind, ElastiService, ScaleTargetRef, names};
use elasti_core::{
    plan::{Autoscaler, Observed, Slices, Target},
    ports::Ports,
    verdict::Opinion,
};
use elasti_runtime::watch::{Change, Health, Key, Scope};
use jiff::{SignedDuration, Timestamp};
use kube::{api::ApiResource, core::GroupVersionKind};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    sync::Arc,
};

/// A kind of targets, as ElastiServices name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

#[derive(Debug)]
pub(crate) struct Index {
    resolver_service: Key,
    declared: HashMap<Key, Declared>,
    /// Users of a service, public or private, and of a ScaledObject.
    by_service: HashMap<Key, Few>,
    by_scaled_object: HashMap<Key, Few>,
    by_target: HashMap<Kind, HashMap<Key, Few>>,
    services: Known<ServiceFacts>,
    slices: Known<SliceFacts>,
    slices_of: HashMap<Key, Few>,
    targets: HashMap<Kind, KindOfTargets>,
    scaled_objects: Known<ScaledObjectFacts>,
    scaled_objects_healths: HashMap<Scope, Health>,
    no_resolver_since: Option<Timestamp>,
    /// Of which ready resolvers have addresses, and since when it is these.
    families: (BTreeSet<Arc<str>>, Timestamp),
    /// Ports on which each resolver was seen to accept connections since it is ready.
    accepted: HashMap<IpAddr, HashSet<u16>>,
    /// Since when ready resolvers are seen to refuse them.
    refused: HashMap<SocketAddr, Timestamp>,
    ports: Ports<Route>,
    sight: Sight,
    memories: HashMap<Key, Box<Memory>>,
}

/// In boxes: up to half of a table is empty.
type Known<F> = HashMap<Key, Box<F>>;

#[derive(Debug)]
struct KindOfTargets {
    /// As the API server spells it, once it was asked.
    resource: Option<ApiResource>,
    healths: HashMap<Scope, Health>,
    found: Known<TargetFacts>,
}

/// What no object says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) last_knock: Option<Timestamp>,
    /// The first since it sleeps, or slept last.
    pub(crate) first_knock: Option<Timestamp>,
    pub(crate) last_active: Option<Timestamp>,
    /// Since when it is up without a ready endpoint, for as long as this replica leads.
    pub(crate) unready_since: Option<Timestamp>,
    /// When it got ready, while its slices are there.
    pub(crate) regained: Option<Timestamp>,
    pub(crate) asleep_since: Option<Timestamp>,
    /// Since when it is to give back what it has, or what it no longer names.
    pub(crate) leaving_since: Option<Timestamp>,
    /// When we scaled it to zero, until the watch says so.
    pub(crate) zeroed: Option<Timestamp>,
    /// When it was woken, until it serves.
    pub(crate) woken: Option<Timestamp>,
    /// Addresses that its service listed as ready when it was woken, and still does: pods of an earlier time.
    pub(crate) doomed: Vec<String>,
    /// When a request came while it was falling asleep, last.
    pub(crate) stepped_back: Option<Timestamp>,
    /// When our slices were removed, last.
    pub(crate) unpublished: Option<Timestamp>,
    /// Reconciles that failed in a row, in the same way: by an outage, or refused.
    pub(crate) failures: u32,
    pub(crate) outage: bool,
    /// When the triggers answered, last.
    pub(crate) answered: Option<Timestamp>,
    /// The last knock that the leader was told of.
    pub(crate) told: Option<Timestamp>,
    pub(crate) opinion: Option<Opinion>,
    pub(crate) may_sleep: Option<bool>,
}

pub(crate) type Touched = BTreeSet<Key>;

// === impl Kind ===

impl From<&ScaleTargetRef> for Kind {
    fn from(target: &ScaleTargetRef) -> Self {
        Self {
            api_version: target.api_version.clone(),
            kind: target.kind().into(),
        }
    }
}

impl From<&AttachedTarget> for Kind {
    fn from(target: &AttachedTarget) -> Self {
        Self {
            api_version: target.api_version.clone(),
            kind: target.kind.clone(),
        }
    }
}

impl Kind {
    /// In whatever version: the objects are the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.gvk().group == other.gvk().group
    }

    pub(crate) fn gvk(&self) -> GroupVersionKind {
        let (group, version) = self
            .api_version
            .rsplit_once('/')
            .unwrap_or(("", &self.api_version));
        GroupVersionKind::gvk(group, version, &self.kind)
    }
}

// === impl Memory ===

impl Memory {
    /// Whether what the triggers said, if they did, still counts.
    pub(crate) fn has_fresh_opinion(&self, now: Timestamp, trust: SignedDuration) -> bool {
        self.answered
            .is_some_and(|answered| now.duration_since(answered) < trust)
    }

    pub(crate) fn note_readiness(&mut self, observed: &Observed) {
        let up = matches!(observed.target, Target::Found { replicas } if replicas > 0);
        let unready = up && observed.ready_endpoints == 0;
        self.unready_since = unready.then_some(observed.unready_since);
        let held = observed.slices != Slices::Absent;
        self.regained = observed.regained.filter(|_| up && !unready && held);
    }

    pub(crate) fn note_leaving(&mut self, leaves: bool, now: Timestamp) {
        if leaves && self.leaving_since.is_none() {
            self.failures = 0;
        }
        self.leaving_since = leaves.then(|| self.leaving_since.unwrap_or(now));
    }

    /// Nobody was given any time while the API server did not answer.
    pub(crate) fn note_outcome(&mut self, error: Option<&apply::Error>, now: Timestamp) {
        let outage = error.is_some_and(apply::Error::is_outage);
        let before = mem::replace(&mut self.outage, outage);
        self.failures = match error {
            None => 0,
            Some(_) if before == outage => self.failures + 1,
            Some(_) => 1,
        };
        if error.is_some_and(apply::Error::is_away) {
            self.leaving_since = self.leaving_since.map(|_| now);
        }
    }
}

// === impl Index ===

impl Index {
    pub(crate) fn new(resolver_service: Key, ports: RangeInclusive<u16>, now: Timestamp) -> Self {
        Self {
            resolver_service,
            declared: HashMap::new(),
            by_service: HashMap::new(),
            by_scaled_object: HashMap::new(),
            by_target: HashMap::new(),
            services: HashMap::new(),
            slices: HashMap::new(),
            slices_of: HashMap::new(),
            targets: HashMap::new(),
            scaled_objects: HashMap::new(),
            scaled_objects_healths: HashMap::new(),
            no_resolver_since: Some(now),
            families: (BTreeSet::new(), now),
            accepted: HashMap::new(),
            refused: HashMap::new(),
            ports: Ports::new(ports),
            sight: Sight::default(),
            memories: HashMap::new(),
        }
    }

    pub(crate) fn declared(&self, key: &Key) -> Option<&Declared> {
        self.declared.get(key)
    }

    pub(crate) fn understood(&self) -> impl Iterator<Item = (&Key, &Understood)> {
        self.declared
            .iter()
            .filter_map(|(key, declared)| match declared {
                Declared::Understood(object) => Some((key, object)),
                Declared::Malformed(_) => None,
            })
    }

    pub(crate) fn everyone(&self) -> Touched {
        self.declared.keys().cloned().collect()
    }

    pub(crate) fn service(&self, key: &Key) -> Option<&ServiceFacts> {
        self.services.get(key).map(Box::as_ref)
    }

    pub(crate) fn uses_keda(&self) -> bool {
        !self.by_scaled_object.is_empty()
    }

    pub(crate) fn scaled_object_facts(&self, key: &Key) -> Option<&ScaledObjectFacts> {
        self.scaled_objects.get(key).map(Box::as_ref)
    }

    pub(crate) fn scaled_object(&self, key: &Key) -> Autoscaler {
        let own = Scope::Namespace(key.namespace.clone());
        let healths = &self.scaled_objects_healths;
        let health = healths.get(&Scope::All).or_else(|| healths.get(&own));
        match (self.scaled_objects.get(key), health) {
            (Some(facts), Some(Health::Synced)) => facts.autoscaler(),
            (None, Some(Health::Synced)) | (_, Some(Health::Absent(_))) => Autoscaler::Missing,
            _ => Autoscaler::Unknown,
        }
    }

    pub(crate) fn change_scaled_objects_health(
        &mut self,
        scope: &Scope,
        health: &Health,
    ) -> Touched {
        self.scaled_objects_healths
            .insert(scope.clone(), health.clone());
        let users = self.by_scaled_object.values().flatten();
        users.filter(|key| scope.covers(key)).cloned().collect()
    }

    pub(crate) fn memory(&self, key: &Key) -> Memory {
        self.memories
            .get(key)
            .map_or_else(Memory::default, |memory| (**memory).clone())
    }

    /// Remembers something of an ElastiService that is known.
    pub(crate) fn remember(&mut self, key: &Key, change: impl FnOnce(&mut Memory)) {
        if self.declared.contains_key(key) {
            change(self.memories.entry(key.clone()).or_default());
        }
    }

    /// What others heard before this replica leads is not known.
    pub(crate) fn take_office(&mut self) {
        self.recount_routes();
        for memory in self.memories.values_mut() {
            memory.unready_since = None;
        }
    }

    /// For the targets of those that leave.
    pub(crate) fn wait_anew(&mut self, now: Timestamp) {
        for memory in self.memories.values_mut() {
            memory.leaving_since = memory.leaving_since.map(|_| now);
        }
    }

    /// The ElastiService that speaks for a service: the oldest that names it.
    pub(crate) fn owner_of_service(&self, service: &Key) -> Option<&Key> {
        self.oldest(self.by_service.get(service)?)
    }

    /// Whether nobody but this one names a target.
    pub(crate) fn is_alone_with_target(&self, key: &Key, kind: &Kind, name: &str) -> bool {
        let target = key.beside(name);
        self.sharing_target(kind, &target).all(|user| user == key)
    }

    pub(crate) fn is_alone_with_scaled_object(&self, key: &Key, name: &str) -> bool {
        let users = self.by_scaled_object.get(&key.beside(name));
        users.into_iter().flatten().all(|user| user == key)
    }

    /// An older ElastiService that names the same service or target.
    pub(crate) fn rival_of(&self, key: &Key, object: &ElastiService) -> Option<&Key> {
        let service = self.owner_of_service(&key.beside(&object.spec.service));
        let (kind, target) = target_key(key, object);
        let target = self.oldest(self.sharing_target(&kind, &target));
        let mut oldest = [service, target].into_iter().flatten();
        oldest.find(|oldest| *oldest != key)
    }

    /// Users of a target, by whatever version of its kind.
    fn sharing_target<'a>(&'a self, kind: &Kind, target: &Key) -> impl Iterator<Item = &'a Key> {
        let kinds = self.by_target.iter();
        let same = kinds.filter(move |(other, _)| other.is_same(kind));
        same.filter_map(move |(_, of_kind)| of_kind.get(target))
            .flatten()
    }

    fn users_of_target(&self, kind: &Kind, target: &Key) -> Option<&Few> {
        self.by_target.get(kind)?.get(target)
    }

    fn oldest<'a>(&self, users: impl IntoIterator<Item = &'a Key>) -> Option<&'a Key> {
        users
            .into_iter()
            .min_by_key(|key| (self.created(key), key.name.clone()))
    }

    fn created(&self, key: &Key) -> Option<Timestamp> {
        match self.declared.get(key)? {
            Declared::Understood(object) => object
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0),
            Declared::Malformed(_) => None,
        }
    }

    pub(crate) fn change_declared(&mut self, change: Change<Declared>, now: Timestamp) -> Touched {
        match change {
            Change::Applied(key, declared) => self.declare(key, declared, now),
            Change::Deleted(key) => self.forget(&key, now),
            Change::Listed(scope, all) => {
                let listed: BTreeSet<&Key> = all.iter().map(|(key, _)| key).collect();
                let is_gone = |key: &&Key| scope.covers(key) && !listed.contains(*key);
                let gone: Vec<Key> = self.declared.keys().filter(is_gone).cloned().collect();
                let mut touched: Touched =
                    gone.iter().flat_map(|key| self.forget(key, now)).collect();
                for (key, declared) in all {
                    touched.append(&mut self.declare(key, declared, now));
                }
                touched
            }
        }
    }

    fn declare(&mut self, key: Key, declared: Declared, now: Timestamp) -> Touched {
        let mut touched = self.unlink(&key);
        let before = self.declared.insert(key.clone(), declared.clone());
        if let Declared::Understood(object) = &declared {
            touched.append(&mut self.link(&key, object));
            self.note_routes(&key, object);
            if let Some(Declared::Understood(before)) = &before {
                self.forget_changed(&key, before, object);
            }
            self.note_sleep(&key, &Kind::from(&object.spec.scale_target_ref), now);
        }
        touched.insert(key);
        touched
    }

    /// What is remembered of another target, or of other triggers, says nothing of these.
    fn forget_changed(&mut self, key: &Key, before: &ElastiService, now: &ElastiService) {
        let (before, now) = (&before.spec, &now.spec);
        let other_target = before.scale_target_ref != now.scale_target_ref;
        let other_service = before.service != now.service;
        let other_question =
            before.triggers != now.triggers || before.enabled_period != now.enabled_period;
        self.remember(key, |memory| {
            if other_target {
                memory.asleep_since = None;
                memory.zeroed = None;
            }
            if other_target || other_service {
                memory.doomed.clear();
            }
            if other_question {
                memory.opinion = None;
                memory.may_sleep = None;
            }
        });
    }

    fn forget(&mut self, key: &Key, now: Timestamp) -> Touched {
        let touched = self.unlink(key);
        self.free_routes(key, now);
        self.declared.remove(key);
        self.memories.remove(key);
        touched
    }

    /// Others that share something with it are touched too: the older of two may have come or gone.
    fn link(&mut self, key: &Key, object: &ElastiService) -> Touched {
        let mut touched = Touched::new();
        for name in [
            object.spec.service.clone(),
            names::private_service(&object.spec.service),
        ] {
            let users = self.by_service.entry(key.beside(&name)).or_default();
            users.insert(key.clone());
            touched.extend(users.iter().cloned());
        }
        let (kind, target) = target_key(key, object);
        let of_kind = self.by_target.entry(kind.clone()).or_default();
        let users = of_kind.entry(target.clone()).or_default();
        users.insert(key.clone());
        touched.extend(self.sharing_target(&kind, &target).cloned());
        if let Some(scaled_object) = scaled_object_key(key, object) {
            self.by_scaled_object
                .entry(scaled_object)
                .or_default()
                .insert(key.clone());
        }
        touched
    }

    fn unlink(&mut self, key: &Key) -> Touched {
        let Some(Declared::Understood(object)) = self.declared.get(key).cloned() else {
            return Touched::new();
        };
        let mut touched = Touched::new();
        for name in [
            object.spec.service.clone(),
            names::private_service(&object.spec.service),
        ] {
            touched.append(&mut leave(&mut self.by_service, &key.beside(&name), key));
        }
        let (kind, target) = target_key(key, &object);
        if let Some(of_kind) = self.by_target.get_mut(&kind) {
            leave(of_kind, &target, key);
            if of_kind.is_empty() {
                self.by_target.remove(&kind);
            }
        }
        touched.extend(self.sharing_target(&kind, &target).cloned());
        if let Some(scaled_object) = scaled_object_key(key, &object) {
            leave(&mut self.by_scaled_object, &scaled_object, key);
        }
        touched
    }

    pub(crate) fn change_services(&mut self, change: Change<ServiceFacts>) -> Touched {
        changed(&mut self.services, change)
            .iter()
            .filter_map(|service| self.by_service.get(service))
            .flatten()
            .cloned()
            .collect()
    }

    /// Whoever names one next waits until they are listed anew.
    pub(crate) fn drop_scaled_objects(&mut self) {
        self.scaled_objects.clear();
        self.scaled_objects_healths.clear();
    }

    pub(crate) fn change_scaled_objects(&mut self, change: Change<ScaledObjectFacts>) -> Touched {
        changed(&mut self.scaled_objects, change)
            .iter()
            .filter_map(|object| self.by_scaled_object.get(object))
            .flatten()
            .cloned()
            .collect()
    }
}

fn target_key(key: &Key, object: &ElastiService) -> (Kind, Key) {
    let target = &object.spec.scale_target_ref;
    (target.into(), key.beside(&target.name))
}

pub(crate) fn scaled_object_key(key: &Key, object: &ElastiService) -> Option<Key> {
    let autoscaler = object.spec.autoscaler.as_ref()?;
    (autoscaler.kind == AutoscalerKind::Keda).then(|| key.beside(&autoscaler.name))
}

/// Those who are left.
fn leave(users: &mut HashMap<Key, Few>, of: &Key, key: &Key) -> Touched {
    let Some(left) = users.get_mut(of) else {
        return Touched::new();
    };
    left.remove(key);
    if left.is_empty() {
        users.remove(of);
        return Touched::new();
    }
    left.iter().cloned().collect()
}

/// Applies a change and tells the keys whose facts are now others than before.
fn changed<F: PartialEq>(known: &mut Known<F>, change: Change<F>) -> Vec<Key> {
    match change {
        Change::Applied(key, facts) => {
            let same = known.get(&key).is_some_and(|known| **known == facts);
            known.insert(key.clone(), facts.into());
            if same { Vec::new() } else { vec![key] }
        }
        Change::Deleted(key) => known.remove(&key).map(|_| key).into_iter().collect(),
        Change::Listed(scope, all) => {
            let mut before: Known<F> = known.extract_if(|key, _| scope.covers(key)).collect();
            let mut keys = Vec::new();
            for (key, facts) in all {
                if before.remove(&key).is_none_or(|before| *before != facts) {
                    keys.push(key.clone());
                }
                known.insert(key, facts.into());
            }
            keys.extend(before.into_keys());
            keys
        }
    }
}
