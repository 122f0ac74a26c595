//! Which port of the resolvers stands for which port of which service. A number that is let go of
//! rests before it names another: a stale rule in some data plane must never reach a stranger.

use jiff::{SignedDuration, Timestamp};
use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    ops::RangeInclusive,
};

/// How long a number rests.
pub const REST: SignedDuration = SignedDuration::from_mins(10);

#[derive(Clone, Debug)]
pub struct Ports<O> {
    range: RangeInclusive<u16>,
    by_owner: HashMap<O, u16>,
    by_port: HashMap<u16, O>,
    /// Since when each rests.
    resting: HashMap<u16, Timestamp>,
    /// The same in the order of their beginning.
    order: VecDeque<(Timestamp, u16)>,
}

// === impl Ports ===

impl<O: Clone + Eq + Hash> Ports<O> {
    pub fn new(range: RangeInclusive<u16>) -> Self {
        Self {
            range,
            by_owner: HashMap::new(),
            by_port: HashMap::new(),
            resting: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub fn of(&self, owner: &O) -> Option<u16> {
        self.by_owner.get(owner).copied()
    }

    pub fn owner(&self, port: u16) -> Option<&O> {
        self.by_port.get(&port)
    }

    /// Takes note of what is written down. Of two with one number the first keeps it, and the other
    /// is assigned a new one.
    pub fn hold(&mut self, owner: O, port: u16) {
        if self.by_port.get(&port).is_some_and(|other| *other != owner) {
            return;
        }
        if let Some(before) = self.by_owner.insert(owner.clone(), port) {
            self.by_port.remove(&before);
        }
        self.by_port.insert(port, owner);
    }

    /// The owner's number, a new one if need be; none when all are taken or at rest. A number
    /// depends on its owner, so that after a loss of memory it most likely is the same.
    pub fn assign(&mut self, owner: &O, now: Timestamp) -> Option<u16> {
        if let Some(port) = self.of(owner) {
            return Some(port);
        }
        let count = u64::from(self.range.end().checked_sub(*self.range.start())?) + 1;
        let mut hasher = DefaultHasher::new();
        owner.hash(&mut hasher);
        let first = hasher.finish() % count;
        let port = (0..count)
            .filter_map(|step| u16::try_from((first + step) % count).ok())
            .map(|offset| self.range.start() + offset)
            .find(|port| self.is_free(*port, now))?;
        self.hold(owner.clone(), port);
        Some(port)
    }

    fn is_free(&self, port: u16, now: Timestamp) -> bool {
        let rests = |since: &Timestamp| now.duration_since(*since) < REST;
        !self.by_port.contains_key(&port) && !self.resting.get(&port).is_some_and(rests)
    }

    /// Lets go of a number, which rests from `now` on.
    pub fn free(&mut self, owner: &O, now: Timestamp) {
        if let Some(port) = self.by_owner.remove(owner) {
            self.by_port.remove(&port);
            self.rest(port, now);
        }
    }

    pub fn rest(&mut self, port: u16, since: Timestamp) {
        while let Some((rests, port)) = self.order.front().copied()
            && since.duration_since(rests) >= REST
        {
            self.order.pop_front();
            if self.resting.get(&port) == Some(&rests) {
                self.resting.remove(&port);
            }
        }
        let known = self.resting.entry(port).or_insert(since);
        *known = since.max(*known);
        self.order.push_back((since, port));
    }

    /// Forgets who has which, not what rests.
    pub fn forget_owners(&mut self) {
        self.by_owner.clear();
        self.by_port.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn a_number_is_kept_and_is_the_same_after_a_loss_of_memory() {
        let mut ports = Ports::new(10_000..=19_999);
        let web = ports.assign(&"web", at(0)).unwrap();
        assert_eq!(ports.assign(&"web", at(1)), Some(web));
        assert_eq!(ports.owner(web), Some(&"web"));
        let mut again = Ports::new(10_000..=19_999);
        assert_eq!(again.assign(&"web", at(2)), Some(web));
    }

    #[test]
    fn a_freed_number_rests_before_it_names_another() {
        let mut ports = Ports::new(10_000..=10_000);
        let only = ports.assign(&"web", at(0)).unwrap();
        ports.free(&"web", at(5));
        assert_eq!(ports.assign(&"shop", at(604)), None, "ten minutes of rest");
        assert_eq!(ports.assign(&"shop", at(605)), Some(only));
    }

    #[test]
    fn a_full_range_has_none_left() {
        let mut ports = Ports::new(10_000..=10_001);
        assert!(ports.assign(&1, at(0)).is_some());
        assert!(ports.assign(&2, at(0)).is_some());
        assert_eq!(ports.assign(&3, at(0)), None);
    }

    #[test]
    fn of_two_with_one_number_the_second_gets_another() {
        let mut ports = Ports::new(10_000..=10_009);
        ports.hold("web", 10_003);
        ports.hold("shop", 10_003);
        assert_eq!(ports.of(&"web"), Some(10_003));
        assert_ne!(ports.assign(&"shop", at(0)), Some(10_003));
    }

    proptest! {
        #[test]
        fn no_number_names_two_or_comes_back_too_early(
            acts in proptest::collection::vec((0..12u8, any::<bool>(), 0..200i64), 1..200)
        ) {
            let mut ports = Ports::new(100..=107);
            let mut freed: HashMap<u16, i64> = HashMap::new();
            let mut now = 0;
            for (owner, take, later) in acts {
                now += later;
                if take {
                    let known = ports.of(&owner);
                    if let Some(port) = ports.assign(&owner, at(now)) && known.is_none() {
                        let rested = freed.get(&port).is_none_or(|since| now - since >= 600);
                        prop_assert!(rested, "{} came back after {:?}", port, freed.get(&port));
                    }
                } else if let Some(port) = ports.of(&owner) {
                    ports.free(&owner, at(now));
                    freed.insert(port, now);
                }
                let distinct: HashSet<u16> = ports.by_owner.values().copied().collect();
                prop_assert_eq!(distinct.len(), ports.by_owner.len());
                prop_assert_eq!(ports.by_port.len(), ports.by_owner.len());
            }
        }
    }
}
