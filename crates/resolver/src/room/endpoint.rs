use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// One address of a target that is ready.
#[derive(Debug)]
pub struct Endpoint {
    pub address: SocketAddr,
    busy: AtomicUsize,
    /// It failed a moment ago.
    shunned: Mutex<Option<Shunned>>,
}

#[derive(Clone, Copy, Debug)]
struct Shunned {
    until: Instant,
    times: u32,
}

/// An endpoint with one more thing to do, until this is dropped.
#[derive(Debug)]
pub struct Busy {
    endpoint: Arc<Endpoint>,
    lease: Option<Lease>,
}

/// A part in a connection that several requests share.
#[derive(Clone, Debug, Default)]
pub struct Lease(Arc<()>);

pub(super) enum Choice {
    This(Busy),
    /// All failed a moment ago; the first is tried again then.
    Later(Instant),
    None,
}

const SHUNNED: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// The one with the least to do; among equals the first, so that few connections serve few requests.
/// One that is avoided is the last resort.
pub(super) fn choose(
    endpoints: Option<&Vec<Arc<Endpoint>>>,
    avoided: Option<SocketAddr>,
) -> Choice {
    let endpoints = endpoints.map_or(&[][..], Vec::as_slice);
    let willing = endpoints.iter().filter(|endpoint| !endpoint.is_shunned());
    let reluctance = |endpoint: &&Arc<Endpoint>| {
        let is_avoided = avoided == Some(endpoint.address);
        (is_avoided, endpoint.busy.load(Ordering::Relaxed))
    };
    if let Some(endpoint) = willing.min_by_key(reluctance) {
        return Choice::This(Busy::new(endpoint));
    }
    let again = endpoints
        .iter()
        .filter_map(|endpoint| endpoint.shunned_until());
    again.min().map_or(Choice::None, Choice::Later)
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            busy: AtomicUsize::new(0),
            shunned: Mutex::default(),
        }
    }

    fn is_shunned(&self) -> bool {
        self.shunned_until()
            .is_some_and(|until| Instant::now() < until)
    }

    fn shunned_until(&self) -> Option<Instant> {
        self.shunned.lock().map(|shunned| shunned.until)
    }
}

// === impl Busy ===

impl Busy {
    fn new(endpoint: &Arc<Endpoint>) -> Self {
        endpoint.busy.fetch_add(1, Ordering::Relaxed);
        Self {
            endpoint: endpoint.clone(),
            lease: None,
        }
    }

    /// Whether somebody else has just found that it takes no connections.
    pub fn is_shunned(&self) -> bool {
        self.endpoint.is_shunned()
    }

    pub fn address(&self) -> SocketAddr {
        self.endpoint.address
    }

    /// Gives a lease back with the rest.
    pub fn keep(&mut self, lease: Option<Lease>) {
        self.lease = lease;
    }

    /// It does not take connections: others are preferred for a while, longer each time. Those who
    /// tried at once are one time.
    pub fn shun(&self) {
        self.shun_for(0);
    }

    /// The same for somebody who failed so often before, whatever others say of it.
    pub fn shun_for(&self, failed: u32) {
        let now = Instant::now();
        let mut shunned = self.endpoint.shunned.lock();
        if shunned.is_some_and(|shunned| now < shunned.until) {
            return;
        }
        let times = shunned.map_or(0, |shunned| shunned.times + 1).max(failed);
        let pause = SHUNNED
            .saturating_mul(2_u32.saturating_pow(times))
            .min(LONGEST);
        *shunned = Some(Shunned {
            until: now + pause,
            times,
        });
    }

    /// It does.
    pub fn praise(&self) {
        *self.endpoint.shunned.lock() = None;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.endpoint.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Lease ===

impl Lease {
    /// How many more there are.
    pub fn others(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}
