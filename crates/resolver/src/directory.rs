//! What the API server tells of the services that may sleep: one watch per kind feeds the rooms and
//! the table of ways. A change of endpoints goes straight to its room.

mod facts;

pub use self::facts::{Declared, Listed, Port, Ports, Ready};

use crate::{
    metrics::Metrics,
    room::{House, Limits, Pod, Room, Seen},
    route::{Table, Way},
};
use elasti_api::{Mode, ReadinessCheck, Release, names};
use elasti_core::{host::ServiceName, probe::ProbeRules};
use elasti_runtime::watch::{Change, Key};
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Weak},
};
use tokio::sync::Notify;

/// Shared by the watches; the table is made anew, after a change, by whoever awaits it.
pub struct Directory {
    house: Arc<House>,
    defaults: Limits,
    dial: Dial,
    /// Of services that do not say.
    release: Release,
    metrics: Arc<Metrics>,
    known: Mutex<Known>,
    changed: Notify,
}

/// Where a target is reached once an endpoint of it is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dial {
    /// At the endpoint itself.
    #[default]
    Endpoints,
    /// At the private service, for meshes that know services only. It waits for the data plane.
    ClusterIp,
}

#[derive(Default)]
struct Known {
    declared: HashMap<Key, Arc<Declared>>,
    /// By the public service, who speaks for it.
    by_service: HashMap<Key, BTreeSet<Key>>,
    /// By private service.
    ports: HashMap<Key, Ports>,
    /// By slice.
    ready: HashMap<Key, Ready>,
    slices_of: HashMap<Key, BTreeSet<Key>>,
    rooms: HashMap<Key, Entry>,
    /// Of services for which nobody speaks any more, until those who are still there have gone.
    closed: HashMap<Key, Weak<Room>>,
}

struct Entry {
    room: Arc<Room>,
    rules: Arc<ProbeRules>,
    spoken_for: Arc<Declared>,
    /// Of its private service, when that went: one that is made anew must not close the door on those who
    /// wait.
    ports: Option<Ports>,
}

// === impl Directory ===

impl Directory {
    pub fn new(
        house: Arc<House>,
        defaults: Limits,
        dial: Dial,
        release: Release,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            house,
            defaults,
            dial,
            release,
            metrics,
            known: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub fn change_declared(&self, change: Change<Arc<Declared>>) {
        let mut known = self.known.lock();
        let services = known.change_declared(change);
        for service in services {
            let asked_before = known.rooms.get(&service).map(|entry| self.checks(entry));
            if let Some(proxied) = known.settle(&service, &self.house, self.defaults) {
                self.metrics.switched(&service.name, proxied);
            }
            if known.rooms.get(&service).map(|entry| self.checks(entry)) != asked_before {
                self.publish(&known, &service);
            }
        }
        drop(known);
        self.changed.notify_one();
        self.tidy();
    }

    pub fn change_ports(&self, change: Change<Ports>) {
        let mut known = self.known.lock();
        let changed = differences(&mut known.ports, change);
        for (key, before, now) in &changed {
            if let (Some(before), None) = (before, now)
                && let Some(entry) = known.rooms.get_mut(&key.beside(&before.service))
            {
                entry.ports = Some(before.clone());
            }
        }
        for (key, before, now) in changed {
            for ports in before.into_iter().chain(now) {
                self.publish(&known, &key.beside(&ports.service));
            }
        }
        drop(known);
        self.changed.notify_one();
    }

    /// On the wake path: whoever waits is released before this returns.
    pub fn change_ready(&self, change: Change<Ready>) {
        let mut known = self.known.lock();
        for service in known.change_ready(change) {
            self.publish(&known, &service);
        }
    }

    fn publish(&self, known: &Known, service: &Key) {
        let Some(entry) = known.rooms.get(service) else {
            return;
        };
        let ports = known.ports(service, entry);
        let names = ports.map(|port| (port.number, port.name.clone()));
        entry.room.set_names(names.collect());
        let mut ready = known.endpoints(service, |pod| pod.ready);
        let release = match ready.is_empty() {
            true => Release::EarliestReady,
            false => Release::KubernetesReady,
        };
        self.let_early_in(known, service, entry, &mut ready);
        if self.dial == Dial::ClusterIp {
            known.dial_the_service(service, &mut ready);
        }
        // One that moves from slice to slice is in both for a while.
        for addresses in ready.values_mut() {
            addresses.sort_unstable();
            addresses.dedup();
        }
        if let Some(took) = entry.room.publish(&ready) {
            self.metrics.woken(&entry.room, release, took);
        }
    }

    /// What is asked of the pods of a service before Kubernetes knows, if anything is.
    fn checks(&self, entry: &Entry) -> Option<Arc<[ReadinessCheck]>> {
        let declared = &entry.spoken_for;
        let early = declared.release.unwrap_or(self.release) == Release::EarliestReady;
        // Nobody reaches a pod through its service before.
        let early = early && self.dial == Dial::Endpoints;
        declared.checks.clone().filter(|_| early)
    }

    /// With those that are ready by their own measure.
    fn let_early_in(
        &self,
        known: &Known,
        service: &Key,
        entry: &Entry,
        ready: &mut HashMap<Arc<str>, Vec<SocketAddr>>,
    ) {
        let room = &entry.room;
        for won in room.set_pods(self.checks(entry), known.pods(service)) {
            self.metrics.won(room, won);
        }
        for (port, sockets) in known.endpoints(service, |pod| !pod.ready) {
            let early = sockets
                .into_iter()
                .filter(|socket| room.has_let_in(*socket));
            let early: Vec<_> = early.collect();
            if !early.is_empty() {
                ready.entry(port).or_default().extend(early);
            }
        }
    }

    /// A pod is ready by its own measure: whoever waits for it is released before this returns.
    pub(crate) fn passed(&self, room: &Room, pod: &Pod, port: u16) {
        let known = self.known.lock();
        room.let_in(pod, port);
        self.publish(&known, &Key::new(&room.namespace, &room.service));
    }

    /// It is not any more.
    pub(crate) fn failed(&self, room: &Room, pod: &Pod) {
        let known = self.known.lock();
        room.send_back(pod);
        self.publish(&known, &Key::new(&room.namespace, &room.service));
    }

    /// Resolves after a change of what the table is made of.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    pub fn table(&self) -> Table {
        let known = self.known.lock();
        let mut table = Table::default();
        for (service, entry) in &known.rooms {
            let ways = known.ways(service, entry);
            for routed in &entry.spoken_for.routed {
                let way = ways
                    .iter()
                    .find(|(number, _)| i32::from(*number) == routed.port);
                if let (Some((_, way)), Ok(port)) = (way, routed.resolver_port.try_into()) {
                    table.by_port.insert(port, way.clone());
                }
            }
            let name = ServiceName {
                namespace: service.namespace.to_string(),
                name: service.name.to_string(),
            };
            if !ways.is_empty() {
                table.by_name.insert(name, ways);
            }
        }
        table
    }

    pub fn room(&self, namespace: &str, service: &str) -> Option<Arc<Room>> {
        let known = self.known.lock();
        let entry = known.rooms.get(&Key::new(namespace, service))?;
        Some(entry.room.clone())
    }

    /// Forgets what was measured of services that are gone, after the last who was there.
    pub fn tidy(&self) {
        let mut known = self.known.lock();
        let gone = known.closed.extract_if(|_, room| room.strong_count() == 0);
        let gone: HashSet<Key> = gone.map(|(service, _)| service).collect();
        if gone.is_empty() {
            return;
        }
        let names = known.rooms.keys().map(|service| service.name.clone());
        let names: HashSet<Arc<str>> = names.collect();
        drop(known);
        self.metrics.forget(&gone, |name| names.contains(name));
    }

    pub fn house(&self) -> &House {
        &self.house
    }

    /// Those for which somebody waits.
    pub fn waited_for(&self) -> Vec<Arc<Room>> {
        let known = self.known.lock();
        let rooms = known.rooms.values().map(|entry| &entry.room);
        rooms.filter(|room| room.waiting() > 0).cloned().collect()
    }

    pub fn rooms(&self) -> Vec<(Key, Arc<Declared>)> {
        let known = self.known.lock();
        let rooms = known.rooms.iter();
        rooms
            .map(|(service, entry)| (service.clone(), entry.spoken_for.clone()))
            .collect()
    }
}

// === impl Known ===

impl Known {
    /// The services that may be spoken for by others than before.
    fn change_declared(&mut self, change: Change<Arc<Declared>>) -> BTreeSet<Key> {
        let mut services = BTreeSet::new();
        let changed = differences(&mut self.declared, change);
        for (key, before, now) in changed {
            if let Some(before) = before {
                let service = key.beside(&before.service);
                if let Some(users) = self.by_service.get_mut(&service) {
                    users.remove(&key);
                }
                services.insert(service);
            }
            if let Some(now) = now {
                let service = key.beside(&now.service);
                self.by_service
                    .entry(service.clone())
                    .or_default()
                    .insert(key);
                services.insert(service);
            }
        }
        services
    }

    /// The oldest that names a service speaks for it. Whether its traffic comes here, if that is
    /// news.
    fn settle(&mut self, service: &Key, house: &Arc<House>, defaults: Limits) -> Option<bool> {
        let users = self.by_service.get(service).into_iter().flatten();
        let candidates = users.filter_map(|key| Some((key, self.declared.get(key)?)));
        let oldest = candidates.min_by_key(|(key, declared)| (declared.created, (*key).clone()));
        let Some((_, declared)) = oldest else {
            self.by_service.remove(service);
            self.close(service);
            return None;
        };
        let declared = declared.clone();
        let limits = Limits {
            patience: declared.patience.unwrap_or(defaults.patience),
            seats: declared.seats.unwrap_or(defaults.seats),
        };
        let entry = self.rooms.entry(service.clone()).or_insert_with(|| Entry {
            room: reopened(&mut self.closed, service)
                .unwrap_or_else(|| Room::new(house, &service.namespace, &service.name, limits)),
            rules: declared.compiled(),
            spoken_for: declared.clone(),
            ports: None,
        });
        if entry.spoken_for.probe_rules != declared.probe_rules {
            entry.rules = declared.compiled();
        }
        entry.room.set_limits(limits);
        let proxied = declared.mode == Some(Mode::Proxy);
        let is_news = entry.room.set_proxied(proxied);
        entry.spoken_for = declared;
        is_news.then_some(proxied)
    }

    fn close(&mut self, service: &Key) {
        if let Some(Entry { room, .. }) = self.rooms.remove(service) {
            // Whoever looks after its pods ends.
            room.set_pods(None, HashMap::new());
            room.close();
            self.closed.insert(service.clone(), Arc::downgrade(&room));
        }
    }

    fn change_ready(&mut self, change: Change<Ready>) -> BTreeSet<Key> {
        let mut services = BTreeSet::new();
        for (key, before, now) in differences(&mut self.ready, change) {
            if let Some(before) = before {
                let service = key.beside(&before.service);
                if let Some(slices) = self.slices_of.get_mut(&service) {
                    slices.remove(&key);
                }
                services.insert(service);
            }
            if let Some(now) = now {
                let service = key.beside(&now.service);
                self.slices_of
                    .entry(service.clone())
                    .or_default()
                    .insert(key);
                services.insert(service);
            }
        }
        services
    }

    fn slices(&self, service: &Key) -> impl Iterator<Item = &Ready> {
        let slices = self.slices_of.get(service).into_iter().flatten();
        slices.filter_map(|key| self.ready.get(key))
    }

    fn endpoints(
        &self,
        service: &Key,
        of: impl Fn(&&Listed) -> bool,
    ) -> HashMap<Arc<str>, Vec<SocketAddr>> {
        let mut all: HashMap<Arc<str>, Vec<SocketAddr>> = HashMap::new();
        for slice in self.slices(service) {
            for (name, number) in &slice.ports {
                let pods = slice.pods.iter().filter(&of);
                all.entry(name.clone())
                    .or_default()
                    .extend(pods.map(|pod| SocketAddr::new(pod.address, *number)));
            }
        }
        all.retain(|_, addresses| !addresses.is_empty());
        all
    }

    fn pods(&self, service: &Key) -> HashMap<IpAddr, Seen> {
        let mut all: HashMap<IpAddr, Seen> = HashMap::new();
        for slice in self.slices(service) {
            for pod in &slice.pods {
                let seen = all.entry(pod.address).or_insert_with(|| Seen {
                    uid: pod.uid.clone(),
                    ports: Vec::new(),
                    ready: pod.ready,
                });
                seen.ready |= pod.ready;
                seen.ports
                    .extend(slice.ports.iter().map(|(_, number)| number));
                seen.ports.sort_unstable();
                seen.ports.dedup();
            }
        }
        all
    }

    /// The addresses of the private service in the place of those behind it.
    fn dial_the_service(&self, service: &Key, ready: &mut HashMap<Arc<str>, Vec<SocketAddr>>) {
        let private = self.private_service(service);
        ready.retain(|name, addresses| {
            let port = private.and_then(|service| {
                let mut ports = service.ports.iter();
                Some((service, ports.find(|port| port.name == *name)?))
            });
            let Some((service, port)) = port else {
                return false;
            };
            let ips = service.cluster_ips.iter();
            *addresses = ips.map(|ip| SocketAddr::new(*ip, port.number)).collect();
            !addresses.is_empty()
        });
        if private.is_some_and(|private| private.cluster_ips.is_empty()) {
            tracing::warn!(%service, "Its private service has no address to dial: the operator gives it one with --private-addresses");
        }
    }

    fn private_service(&self, service: &Key) -> Option<&Ports> {
        let private = service.beside(&names::private_service(&service.name));
        self.ports.get(&private)
    }

    fn ports<'a>(&'a self, service: &Key, entry: &'a Entry) -> impl Iterator<Item = &'a Port> {
        let ports = self.private_service(service).or(entry.ports.as_ref());
        ports.into_iter().flat_map(|ports| &ports.ports)
    }

    fn ways(&self, service: &Key, entry: &Entry) -> Vec<(u16, Arc<Way>)> {
        self.ports(service, entry)
            .map(|port| {
                let way = Way {
                    room: entry.room.clone(),
                    number: port.number,
                    port: port.name.clone(),
                    speaks: port.speaks,
                    rules: entry.rules.clone(),
                };
                (port.number, Arc::new(way))
            })
            .collect()
    }
}

/// For whoever still waits there.
fn reopened(closed: &mut HashMap<Key, Weak<Room>>, service: &Key) -> Option<Arc<Room>> {
    let room = closed.remove(service)?.upgrade()?;
    room.reopen();
    Some(room)
}

/// Applies a change and tells what is other than before, with before and now.
pub(crate) fn differences<F: Clone + PartialEq>(
    known: &mut HashMap<Key, F>,
    change: Change<F>,
) -> Vec<(Key, Option<F>, Option<F>)> {
    let mut differences = Vec::new();
    let mut put = |known: &mut HashMap<Key, F>, key: Key, now: F| {
        let before = known.insert(key.clone(), now.clone());
        if before.as_ref() != Some(&now) {
            differences.push((key, before, Some(now)));
        }
    };
    match change {
        Change::Applied(key, now) => put(known, key, now),
        Change::Deleted(key) => {
            let before = known.remove(&key);
            differences.extend(before.map(|before| (key, Some(before), None)));
        }
        Change::Listed(scope, all) => {
            let listed: BTreeSet<Key> = all.iter().map(|(key, _)| key.clone()).collect();
            for (key, now) in all {
                put(known, key, now);
            }
            let gone = known.extract_if(|key, _| scope.covers(key) && !listed.contains(key));
            differences.extend(gone.map(|(key, before)| (key, Some(before), None)));
        }
    }
    differences
}

#[cfg(test)]
mod tests;
