use elasti_api::ReadinessCheck;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// The pods of a service that are not ready as far as Kubernetes knows, and when one of them is.
#[derive(Clone, Debug, Default)]
pub struct Starting {
    pub checks: Arc<[ReadinessCheck]>,
    pub pods: Vec<Pod>,
}

#[derive(Clone, Debug)]
pub struct Pod {
    pub address: IpAddr,
    /// Where the service would send its traffic.
    pub ports: Arc<[u16]>,
    pub since: Instant,
    /// Not one that may have been made by another template.
    pub askable: bool,
}

/// Those of one room.
#[derive(Debug, Default)]
pub(super) struct Nursery {
    starting: watch::Sender<Starting>,
    passed: Mutex<HashMap<IpAddr, Instant>>,
}

// === impl Nursery ===

impl Nursery {
    pub(super) fn watch(&self) -> watch::Receiver<Starting> {
        self.starting.subscribe()
    }

    /// What there is now. How long before Kubernetes they were known to be ready of whom it says so now.
    pub(super) fn set(
        &self,
        checks: &Arc<[ReadinessCheck]>,
        starting: &HashMap<IpAddr, Vec<u16>>,
        ready: &HashSet<IpAddr>,
    ) -> Vec<Duration> {
        let now = Instant::now();
        self.starting.send_if_modified(|known| {
            let same = known.checks == *checks;
            if same
                && known.pods.len() == starting.len()
                && known
                    .pods
                    .iter()
                    .all(|pod| starting.contains_key(&pod.address))
            {
                return false;
            }
            let before = std::mem::take(&mut known.pods);
            known.checks = checks.clone();
            known.pods = starting
                .iter()
                .map(|(address, ports)| {
                    let old = before.iter().find(|pod| pod.address == *address);
                    Pod {
                        address: *address,
                        ports: ports.as_slice().into(),
                        since: old.map_or(now, |old| old.since),
                        askable: old.is_none_or(|old| old.askable && same),
                    }
                })
                .collect();
            true
        });
        let mut passed = self.passed.lock();
        let gone = passed.extract_if(|address, _| !starting.contains_key(address));
        gone.filter(|(address, _)| ready.contains(address))
            .map(|(_, since)| now.duration_since(since))
            .collect()
    }

    /// Whether that is news, and of a pod that is still starting.
    pub(super) fn pass(&self, address: IpAddr) -> bool {
        let starts = self
            .starting
            .borrow()
            .pods
            .iter()
            .any(|pod| pod.address == address);
        starts && self.passed.lock().insert(address, Instant::now()).is_none()
    }

    pub(super) fn has_passed(&self, address: IpAddr) -> bool {
        self.passed.lock().contains_key(&address)
    }

    /// Whether it had passed. It has to pass again.
    pub(super) fn revoke(&self, address: IpAddr) -> bool {
        let revoked = self.passed.lock().remove(&address).is_some();
        if revoked {
            self.starting.send_modify(|_| {});
        }
        revoked
    }
}
