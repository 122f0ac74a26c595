use elasti_api::ReadinessCheck;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Notify, futures::Notified, watch},
    time::Instant,
};

/// The pods of a service, and whether somebody waits for one.
#[derive(Debug, Default)]
pub struct Starting {
    pub pods: HashMap<IpAddr, Arc<Pod>>,
    pub awaited: bool,
    checks: Option<Arc<[ReadinessCheck]>>,
}

/// What Kubernetes tells of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub uid: Arc<str>,
    /// Where the service sends its traffic.
    pub ports: Vec<u16>,
    pub ready: bool,
}

/// One for as long as Kubernetes tells the same of it, and asks the same.
#[derive(Debug)]
pub struct Pod {
    pub address: IpAddr,
    pub seen: Seen,
    /// What it is asked before it is ready, unless that may be meant for pods of another template.
    checks: Option<Arc<[ReadinessCheck]>>,
    trust: Mutex<Trust>,
    doubted: Notify,
}

/// What it has shown by itself.
#[derive(Debug)]
struct Trust {
    /// It began then, as far as we know.
    since: Instant,
    passed: Option<Instant>,
    open: Vec<u16>,
    /// How often it was sent back.
    back: u32,
    rests: Instant,
}

/// Those of one room.
#[derive(Debug, Default)]
pub(super) struct Nursery {
    starting: watch::Sender<Starting>,
}

/// For one that was sent back before it is asked again, at first and at last: what it answers is not what it
/// does.
const REST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(4);

// === impl Starting ===

impl Starting {
    /// Whether nobody waits, and nobody was let in of whom Kubernetes does not know.
    pub fn is_over(&self) -> bool {
        !self.awaited && !self.pods.values().any(|pod| pod.has_passed())
    }

    /// How long before Kubernetes they were let in whom it calls ready now, and whether anything is new.
    fn change(
        &mut self,
        checks: Option<Arc<[ReadinessCheck]>>,
        pods: HashMap<IpAddr, Seen>,
    ) -> (Vec<Duration>, bool) {
        let now = Instant::now();
        let mut won = Vec::new();
        let mut before = std::mem::take(&mut self.pods);
        let same = self.checks == checks;
        let mut news = pods.len() != before.len();
        for (address, seen) in pods {
            let old = before.remove(&address);
            let old = old.filter(|old| old.seen.uid == seen.uid);
            let passed = old.as_ref().and_then(|old| old.trust.lock().passed);
            won.extend(passed.filter(|_| seen.ready).map(|since| now - since));
            let pod = match old {
                Some(old) if same && old.seen == seen => old,
                old => {
                    news = true;
                    let (since, asked) = match old {
                        Some(old) => (old.times().0, old.checks.clone().filter(|_| same)),
                        None => (now, checks.clone()),
                    };
                    Arc::new(Pod::new(address, seen, asked, since))
                }
            };
            self.pods.insert(address, pod);
        }
        self.checks = checks;
        (won, news)
    }
}

// === impl Pod ===

impl Pod {
    fn new(
        address: IpAddr,
        seen: Seen,
        checks: Option<Arc<[ReadinessCheck]>>,
        since: Instant,
    ) -> Self {
        Self {
            address,
            seen,
            checks,
            trust: Mutex::new(Trust {
                since,
                passed: None,
                open: Vec::new(),
                back: 0,
                rests: since,
            }),
            doubted: Notify::new(),
        }
    }

    /// What there is to ask, if it is not for Kubernetes alone.
    pub fn checks(&self) -> Option<&Arc<[ReadinessCheck]>> {
        self.checks.as_ref().filter(|_| !self.seen.ready)
    }

    /// When it began, and when it may be asked.
    pub fn times(&self) -> (Instant, Instant) {
        let trust = self.trust.lock();
        (trust.since, trust.rests)
    }

    pub fn has_passed(&self) -> bool {
        self.trust.lock().passed.is_some()
    }

    /// Resolves when somebody who was sent to it is refused from now on.
    pub fn doubted(&self) -> Notified<'_> {
        self.doubted.notified()
    }

    fn is_open(&self, port: u16) -> bool {
        self.trust.lock().open.contains(&port)
    }

    fn let_in(&self, port: u16) {
        let mut trust = self.trust.lock();
        trust.passed.get_or_insert_with(Instant::now);
        trust.open.push(port);
    }

    /// It is as one that has just begun, and is left alone for longer each time.
    fn send_back(&self) {
        let now = Instant::now();
        let mut trust = self.trust.lock();
        let rest = REST.saturating_mul(2_u32.saturating_pow(trust.back));
        *trust = Trust {
            since: now,
            passed: None,
            open: Vec::new(),
            back: trust.back + 1,
            rests: now + rest.min(LONGEST),
        };
    }
}

// === impl Nursery ===

impl Nursery {
    pub(super) fn watch(&self) -> watch::Receiver<Starting> {
        self.starting.subscribe()
    }

    pub(super) fn set(
        &self,
        checks: Option<Arc<[ReadinessCheck]>>,
        pods: HashMap<IpAddr, Seen>,
    ) -> Vec<Duration> {
        let mut won = Vec::new();
        self.starting.send_if_modified(|known| {
            let news;
            (won, news) = known.change(checks, pods);
            news
        });
        won
    }

    /// Whoever looks last is right.
    pub(super) fn look(&self, is_awaited: impl Fn() -> bool) {
        self.starting.send_if_modified(|known| {
            let now = is_awaited();
            std::mem::replace(&mut known.awaited, now) != now
        });
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.starting.borrow().awaited
    }

    pub(super) fn let_in(&self, pod: &Pod, port: u16) {
        pod.let_in(port);
        self.starting.send_modify(|_| {});
    }

    pub(super) fn send_back(&self, pod: &Pod) {
        pod.send_back();
        self.starting.send_modify(|_| {});
    }

    pub(super) fn has_let_in(&self, socket: SocketAddr) -> bool {
        let known = self.starting.borrow();
        let pod = known.pods.get(&socket.ip());
        pod.is_some_and(|pod| pod.is_open(socket.port()))
    }

    /// Only those who were let in.
    pub(super) fn doubt(&self, socket: SocketAddr) {
        let known = self.starting.borrow();
        let pod = known.pods.get(&socket.ip());
        if let Some(pod) = pod.filter(|pod| pod.is_open(socket.port())) {
            pod.doubted.notify_waiters();
        }
    }
}
