//! Endpoint slices: of the services, of the resolvers, and our own.

use super::{Index, Touched, changed};
use crate::facts::SliceFacts;
use elasti_runtime::watch::{Change, Key};
use jiff::Timestamp;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry},
    net::{IpAddr, SocketAddr},
};

impl Index {
    pub(crate) fn slices_of(&self, service: &Key) -> impl Iterator<Item = (&Key, &SliceFacts)> {
        let keys = self.slices_of.get(service).into_iter().flatten();
        let found = keys.filter_map(|key| self.slices.get_key_value(key));
        found.map(|(key, slice)| (key, slice.as_ref()))
    }

    /// Addresses that a service lists as ready, and that are not resolvers.
    pub(crate) fn ready_pods(&self, service: &Key) -> impl Iterator<Item = &str> {
        let slices = self.slices_of(service).filter(|(_, slice)| !slice.ours);
        slices.flat_map(|(_, slice)| slice.ready.iter().map(String::as_str))
    }

    /// Whether a service lists ready pods of some address families, and none of others: each is written by itself.
    pub(crate) fn lists_unevenly(&self, service: &Key) -> bool {
        let mut families = BTreeMap::<&str, bool>::new();
        for (_, slice) in self.slices_of(service).filter(|(_, slice)| !slice.ours) {
            *families.entry(&slice.family).or_default() |= !slice.ready.is_empty();
        }
        families.values().any(|any| *any) && families.values().any(|any| !any)
    }

    /// Whether a service lists pods that were told to end. While no other is ready, data planes lead to all of them, and
    /// those may have stopped listening.
    pub(crate) fn lists_ending(&self, service: &Key) -> bool {
        self.slices_of(service)
            .any(|(_, slice)| !slice.ours && slice.ending)
    }

    pub(crate) fn no_resolver_since(&self) -> Option<Timestamp> {
        self.no_resolver_since
    }

    /// Since when resolvers have the address families that they have.
    pub(crate) fn families_since(&self) -> Timestamp {
        self.families.1
    }

    /// Ready resolvers, by address family.
    pub(crate) fn resolvers(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut resolvers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (_, slice) in self.slices_of(&self.resolver_service) {
            let ready = slice.ready.iter().map(String::as_str);
            resolvers.entry(&*slice.family).or_default().extend(ready);
        }
        resolvers
    }

    /// Whether a resolver was seen to accept connections on a port.
    pub(crate) fn accepts(&self, address: SocketAddr) -> bool {
        let ports = self.accepted.get(&address.ip());
        ports.is_some_and(|ports| ports.contains(&address.port()))
    }

    pub(crate) fn is_ready_resolver(&self, ip: IpAddr) -> bool {
        self.ready_ips().contains(&ip)
    }

    /// A resolver accepted a connection. Those whose port it is are touched, or all that share one.
    pub(crate) fn note_accepted(&mut self, address: SocketAddr) -> Touched {
        if !self.is_ready_resolver(address.ip()) {
            return Touched::new();
        }
        self.refused.remove(&address);
        self.accepted
            .entry(address.ip())
            .or_default()
            .insert(address.port());
        self.users_of_port(address.port())
    }

    /// A resolver did not. Only the first time is news.
    pub(crate) fn note_refused(&mut self, address: SocketAddr, now: Timestamp) -> Touched {
        match self.refused.entry(address) {
            Entry::Occupied(_) => Touched::new(),
            Entry::Vacant(vacant) => {
                vacant.insert(now);
                self.users_of_port(address.port())
            }
        }
    }

    /// Since when all of these refuse, if all of them do.
    pub(crate) fn refuse_since(&self, addresses: &[SocketAddr]) -> Option<Timestamp> {
        let since = addresses.iter().map(|address| self.refused.get(address));
        since
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .max()
            .copied()
    }

    fn users_of_port(&self, port: u16) -> Touched {
        match self.ports.owner(port) {
            Some(route) => Touched::from([route.elasti_service.clone()]),
            None => self.everyone(),
        }
    }

    pub(crate) fn change_slices(
        &mut self,
        mut change: Change<SliceFacts>,
        now: Timestamp,
    ) -> Touched {
        let mut before = self.services_of_slices(&change);
        match &mut change {
            Change::Applied(key, facts) => self.date(key, facts, Some(now)),
            Change::Listed(_, all) => {
                all.iter_mut()
                    .for_each(|(key, facts)| self.date(key, facts, None));
            }
            Change::Deleted(_) => {}
        }
        let mut services = BTreeSet::new();
        for key in changed(&mut self.slices, change) {
            services.extend(before.remove(&key));
            if let Some(slice) = self.slices.get(&key) {
                let service = key.beside(&slice.service);
                self.slices_of
                    .entry(service.clone())
                    .or_default()
                    .insert(key);
                services.insert(service);
            }
        }
        services
            .iter()
            .for_each(|service| self.unlink_slices(service));
        if services.contains(&self.resolver_service) {
            return self.resolvers_changed(now);
        }
        let mut touched = Touched::new();
        for service in &services {
            let users = self.by_service.get(service).into_iter().flatten();
            let users: Vec<Key> = users.cloned().collect();
            for user in &users {
                self.bury(user, service);
            }
            touched.extend(users);
        }
        touched
    }

    /// A pod that is listed no more has ended; whoever comes with its address is another.
    fn bury(&mut self, user: &Key, service: &Key) {
        let memory = self.memories.get(user);
        if memory.is_none_or(|memory| memory.doomed.is_empty()) {
            return;
        }
        let listed: HashSet<String> = self.ready_pods(service).map(Into::into).collect();
        self.remember(user, |memory| {
            memory.doomed.retain(|address| listed.contains(address));
        });
    }

    /// By our own clock, from when on a slice says what it says; of one that was there before us,
    /// since it was made.
    fn date(&self, key: &Key, facts: &mut SliceFacts, now: Option<Timestamp>) {
        if !facts.ours {
            return;
        }
        let known = self.slices.get(key).map(Box::as_ref);
        let says_the_same =
            |known: &&SliceFacts| known.ready == facts.ready && known.ports == facts.ports;
        facts.since = match known.filter(says_the_same) {
            Some(known) => known.since,
            None => now.or(facts.since),
        };
    }

    /// Of the slices that a change is about, as they are known so far.
    fn services_of_slices(&self, change: &Change<SliceFacts>) -> HashMap<Key, Key> {
        let known = |key: &Key| Some((key.clone(), key.beside(&self.slices.get(key)?.service)));
        match change {
            Change::Applied(key, _) | Change::Deleted(key) => known(key).into_iter().collect(),
            Change::Listed(scope, _) => {
                let covered = self.slices.keys().filter(|key| scope.covers(key));
                covered.filter_map(known).collect()
            }
        }
    }

    /// Slices that are gone, or of another service now.
    fn unlink_slices(&mut self, service: &Key) {
        if let Some(keys) = self.slices_of.get_mut(service) {
            keys.retain(|key| {
                self.slices
                    .get(key)
                    .is_some_and(|slice| slice.service == service.name)
            });
            if keys.is_empty() {
                self.slices_of.remove(service);
            }
        }
    }

    /// Whatever is proxied points at them. One that comes back has to prove itself anew.
    fn resolvers_changed(&mut self, now: Timestamp) -> Touched {
        let ready = self.ready_ips();
        self.no_resolver_since = match (ready.is_empty(), self.no_resolver_since) {
            (false, _) => None,
            (true, since) => Some(since.unwrap_or(now)),
        };
        let slices = self.slices_of(&self.resolver_service);
        let some = slices.filter(|(_, slice)| !slice.ready.is_empty());
        let families = some.map(|(_, slice)| slice.family.clone()).collect();
        if self.families.0 != families {
            self.families = (families, now);
        }
        self.accepted.retain(|ip, _| ready.contains(ip));
        self.refused
            .retain(|address, _| ready.contains(&address.ip()));
        self.everyone()
    }

    fn ready_ips(&self) -> HashSet<IpAddr> {
        let resolvers = self.resolvers();
        let addresses = resolvers.values().flatten();
        addresses.filter_map(|text| text.parse().ok()).collect()
    }
}
