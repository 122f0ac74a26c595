//! The waiting room of one service: whoever comes while no endpoint is ready takes a seat, and all
//! seats are released by the very change that brings one.

mod door;
mod endpoint;
mod endpoints;
mod starting;

pub use self::{
    endpoint::{Busy, Endpoint, Lease},
    starting::{Pod, Seen, Starting},
};

use self::{door::Door, endpoints::Endpoints, starting::Nursery};
use elasti_api::ReadinessCheck;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Mutex as AsyncMutex, MutexGuard, Semaphore, mpsc, watch},
    task::yield_now,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// All rooms of this process.
#[derive(Debug)]
pub struct House {
    seats: usize,
    taken: AtomicUsize,
    /// Rooms for which somebody has to knock.
    knocks: mpsc::Sender<Arc<Room>>,
    /// Who may leave their seats at once.
    turns: Semaphore,
}

#[derive(Debug)]
pub struct Room {
    pub namespace: Arc<str>,
    pub service: Arc<str>,
    house: Arc<House>,
    limits: Mutex<Limits>,
    endpoints: watch::Sender<Endpoints>,
    door: Door,
    nursery: Nursery,
    /// Of who asks its pods.
    turn: AsyncMutex<()>,
    waiting: AtomicUsize,
    /// Whether resolvers receive its traffic, and the operator has to hear of it.
    proxied: watch::Sender<bool>,
    knocking: AtomicBool,
    reported: Mutex<Option<Instant>>,
    /// Since when somebody waits for the first endpoint.
    cold: Mutex<Option<Instant>>,
    /// For whoever has a connection to this service alone.
    guests: Mutex<Option<CancellationToken>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a request may wait.
    pub patience: Duration,
    /// How many may wait.
    pub seats: usize,
}

/// Why somebody is sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// All seats of the service, or of this process, are taken.
    Full,
    /// Nothing became ready in time.
    Late,
    /// Nobody speaks for the service any more.
    Gone,
}

/// One request, or one connection, on its way to the target.
#[derive(Debug)]
pub struct Visit {
    room: Arc<Room>,
    /// Of the service's port, if that is known.
    number: Option<u16>,
    begun: Instant,
    deadline: Instant,
    seat: Option<Seat>,
    /// Whether it found the target asleep.
    slept: bool,
    held: Option<Duration>,
    /// Whether it was let go before Kubernetes said that the target is ready.
    early: bool,
    avoided: Option<SocketAddr>,
    /// How often a target let it fall.
    fallen: usize,
    /// Whether the operator is to hear of it where it need not wait.
    counts: bool,
}

#[derive(Debug)]
struct Seat(Arc<Room>);

/// Few, so that thousands who wake together are at the target one after the other, and not all of
/// them half way.
const TURNS: usize = 8;
/// How often passing traffic is reported while the target may be falling asleep.
const REPORT: Duration = Duration::from_secs(1);
/// How often a request is sent again that a target let fall: it may be what makes targets fall.
const REPLAYS: usize = 5;
/// How long somebody who waits is kept when nobody speaks for the service any more: an ElastiService may be
/// made anew.
const RETURN: Duration = Duration::from_secs(10);

// === impl House ===

impl House {
    pub fn new(seats: usize, knocks: mpsc::Sender<Arc<Room>>) -> Arc<Self> {
        Arc::new(Self {
            seats,
            taken: AtomicUsize::new(0),
            knocks,
            turns: Semaphore::new(TURNS),
        })
    }

    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub fn free(&self) -> usize {
        self.seats.saturating_sub(self.taken())
    }

    /// Resolves when those who left before have been served as far as they can be now.
    async fn turn(&self) {
        let _turn = self.turns.acquire().await;
        yield_now().await;
    }
}

// === impl Room ===

impl Room {
    pub fn new(house: &Arc<House>, namespace: &str, service: &str, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            namespace: namespace.into(),
            service: service.into(),
            house: house.clone(),
            limits: Mutex::new(limits),
            endpoints: watch::Sender::default(),
            door: Door::shut(),
            nursery: Nursery::default(),
            turn: AsyncMutex::default(),
            waiting: AtomicUsize::new(0),
            proxied: watch::Sender::new(false),
            knocking: AtomicBool::new(false),
            reported: Mutex::default(),
            cold: Mutex::default(),
            guests: Mutex::default(),
        })
    }

    pub fn set_limits(&self, limits: Limits) {
        *self.limits.lock() = limits;
    }

    /// Whether that is news.
    pub fn set_proxied(&self, proxied: bool) -> bool {
        self.proxied
            .send_if_modified(|known| std::mem::replace(known, proxied) != proxied)
    }

    /// Resolves when clients should go to the pods themselves.
    pub async fn serving(&self) {
        let mut proxied = self.proxied.subscribe();
        loop {
            let _ = proxied.wait_for(|proxied| !proxied).await;
            self.awake().await;
            if !*proxied.borrow() {
                return;
            }
        }
    }

    /// Whether clients should go to the pods themselves from now on.
    pub fn is_serving(&self) -> bool {
        !*self.proxied.borrow() && self.is_awake()
    }

    pub fn is_awake(&self) -> bool {
        self.endpoints.borrow().any()
    }

    /// Whether the door is.
    fn is_open(&self) -> bool {
        self.endpoints.borrow().is_news()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes the addresses that are ready now. Those known before keep their connections and counts.
    /// How long somebody has waited for the first, if that is what came.
    pub fn publish(
        self: &Arc<Self>,
        ready: &HashMap<Arc<str>, Vec<SocketAddr>>,
    ) -> Option<Duration> {
        self.change_endpoints(|endpoints| {
            let known = &mut endpoints.by_port;
            let same = known.len() == ready.len()
                && ready.iter().all(|(port, addresses)| {
                    known.get(port).is_some_and(|known| {
                        known.iter().map(|endpoint| &endpoint.address).eq(addresses)
                    })
                });
            if same {
                return false;
            }
            let before = std::mem::take(known);
            for (port, addresses) in ready {
                let old = before.get(port);
                let endpoint = |address: &SocketAddr| {
                    old.into_iter()
                        .flatten()
                        .find(|endpoint| endpoint.address == *address)
                        .cloned()
                        .unwrap_or_else(|| Arc::new(Endpoint::new(*address)))
                };
                known.insert(port.clone(), addresses.iter().map(endpoint).collect());
            }
            true
        });
        let cold = self.is_awake().then(|| self.cold.lock().take());
        Some(cold??.elapsed())
    }

    /// What its ports are called, by their numbers.
    pub fn set_names(&self, names: Vec<(u16, Arc<str>)>) {
        self.endpoints.send_if_modified(|known| {
            let is_news = known.names != names;
            known.names = names;
            is_news
        });
    }

    /// Nobody speaks for the service any more. What was known of it is not true for long, and its clients are
    /// shown out.
    pub fn close(self: &Arc<Self>) {
        self.change_endpoints(|known| {
            known.by_port.clear();
            known.gone = Some(Instant::now());
            true
        });
        if let Some(guests) = self.guests.lock().take() {
            guests.cancel();
        }
    }

    /// Somebody speaks for it again.
    pub fn reopen(self: &Arc<Self>) {
        self.change_endpoints(|known| known.gone.take().is_some());
    }

    /// Cancelled when whoever is only here for this service has to go: then, and when all have to.
    pub fn guest(&self, all: &CancellationToken) -> CancellationToken {
        let mut guests = self.guests.lock();
        guests.get_or_insert_with(|| all.child_token()).clone()
    }

    /// Its pods, ready or not, and whether somebody waits.
    pub fn starting(&self) -> watch::Receiver<Starting> {
        self.nursery.watch()
    }

    /// How long before Kubernetes they were let in whom it calls ready now.
    pub fn set_pods(
        &self,
        checks: Option<Arc<[ReadinessCheck]>>,
        pods: HashMap<IpAddr, Seen>,
    ) -> Vec<Duration> {
        self.nursery.set(checks, pods)
    }

    /// Resolves when nobody else asks its pods.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// It is ready by its own measure, at this port.
    pub fn let_in(&self, pod: &Pod, port: u16) {
        self.nursery.let_in(pod, port);
    }

    /// It is not, after all.
    pub fn send_back(&self, pod: &Pod) {
        self.nursery.send_back(pod);
    }

    /// Whether it was let in before Kubernetes called it ready.
    pub fn has_let_in(&self, socket: SocketAddr) -> bool {
        self.nursery.has_let_in(socket)
    }

    /// The door is as the endpoints are before anybody can look at them. Whoever has not come through when it
    /// closes does not look: it is knocked for them.
    fn change_endpoints(self: &Arc<Self>, change: impl FnOnce(&mut Endpoints) -> bool) {
        let mut closes = false;
        self.endpoints.send_if_modified(|known| {
            let was_open = known.is_news();
            let changed = change(known);
            match (was_open, known.is_news()) {
                (false, true) => self.door.open(),
                (true, false) => {
                    self.door.close();
                    closes = true;
                }
                _ => {}
            }
            changed
        });
        if closes && self.waiting.load(Ordering::SeqCst) > 0 {
            self.knock();
        }
    }

    pub fn visit(self: &Arc<Self>) -> Visit {
        let begun = Instant::now();
        Visit {
            deadline: begun + self.limits.lock().patience,
            room: self.clone(),
            number: None,
            begun,
            seat: None,
            slept: false,
            held: None,
            early: false,
            avoided: None,
            fallen: 0,
            counts: true,
        }
    }

    /// The operator hears of traffic that passes, now and then, while it may be about to put the
    /// target to sleep.
    fn report(self: &Arc<Self>) {
        if !*self.proxied.borrow() {
            return;
        }
        let now = Instant::now();
        let mut reported = self.reported.lock();
        if reported.is_none_or(|reported| now.duration_since(reported) >= REPORT) {
            *reported = Some(now);
            drop(reported);
            self.knock();
        }
    }

    fn knock(self: &Arc<Self>) {
        if !self.knocking.swap(true, Ordering::SeqCst)
            && self.house.knocks.try_send(self.clone()).is_err()
        {
            self.knocking.store(false, Ordering::Release);
        }
    }

    /// For whoever knocks: whether to go on. If not, the next who needs it asks again.
    pub fn still_wants_knocks(&self) -> bool {
        if self.wants_knocks() {
            return true;
        }
        self.knocking.swap(false, Ordering::SeqCst);
        // Somebody may have sat down in between: each of us writes before it looks at the other. And what
        // becomes ready or ceases to be is looked at by all who sit.
        self.wants_knocks() && !self.knocking.swap(true, Ordering::SeqCst)
    }

    fn wants_knocks(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 && !self.is_awake()
    }

    /// Resolves when an endpoint is ready.
    pub async fn awake(&self) {
        let mut endpoints = self.endpoints.subscribe();
        let _ = endpoints.wait_for(Endpoints::any).await;
    }

    /// Resolves when nobody waits.
    pub async fn left(&self) {
        let mut starting = self.starting();
        let _ = starting.wait_for(|starting| !starting.awaited).await;
    }

    fn look(&self) {
        self.nursery
            .look(|| self.waiting.load(Ordering::SeqCst) > 0);
    }

    fn grows_cold(&self) {
        if !self.is_awake() {
            self.cold.lock().get_or_insert_with(Instant::now);
        }
    }

    fn sit(self: &Arc<Self>) -> Result<Seat, Turned> {
        let seats = self.limits.lock().seats;
        let take = |counter: &AtomicUsize, most: usize| {
            let more = |taken| (taken < most).then_some(taken + 1);
            counter.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more)
        };
        take(&self.waiting, seats).map_err(|_| Turned::Full)?;
        if take(&self.house.taken, self.house.seats).is_err() {
            self.rise();
            return Err(Turned::Full);
        }
        if !self.nursery.is_awaited() {
            self.look();
        }
        Ok(Seat(self.clone()))
    }

    fn rise(&self) {
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            *self.cold.lock() = None;
            self.look();
        }
    }
}

// === impl Visit ===

impl Visit {
    /// For the port of the service that has this number.
    pub fn at(mut self, number: u16) -> Self {
        self.number = Some(number);
        self
    }

    /// It is no use of the service, and keeps nothing awake.
    pub fn without_count(mut self) -> Self {
        self.counts = false;
        self
    }

    pub fn room(&self) -> &Arc<Room> {
        &self.room
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How long it has waited for a sleeping target, if it had to.
    pub fn waited(&self) -> Option<Duration> {
        self.held
    }

    pub fn was_early(&self) -> bool {
        self.early
    }

    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// It could not be reached, for whatever reason: another one first, if there is time left.
    pub fn failed(&mut self, endpoint: &Busy) -> Result<(), Turned> {
        self.avoided = Some(endpoint.address());
        if endpoint.is_shunned() {
            self.room.nursery.doubt(endpoint.address());
        }
        if Instant::now() < self.deadline {
            Ok(())
        } else {
            Err(Turned::Late)
        }
    }

    /// It was sent and nothing came of it.
    pub fn fell(&mut self) {
        self.fallen += 1;
    }

    pub fn has_fallen(&self) -> bool {
        self.fallen > 0
    }

    pub fn may_fall_again(&self) -> bool {
        self.fallen < REPLAYS
    }

    fn choose(&self, endpoints: &Endpoints, port: &str) -> endpoint::Choice {
        endpoint::choose(endpoints.of(self.number, port), self.avoided)
    }

    /// The endpoint with the least to do, if there is one and nobody has to wait.
    pub fn endpoint_now(&self, port: &str) -> Option<Busy> {
        if self.counts {
            self.room.report();
        }
        match self.choose(&self.room.endpoints.borrow(), port) {
            endpoint::Choice::This(busy) if self.seat.is_none() => Some(busy),
            _ => None,
        }
    }

    /// The same, as soon as there is one.
    pub async fn endpoint(&mut self, port: &str) -> Result<Busy, Turned> {
        if let Some(busy) = self.endpoint_now(port) {
            return Ok(busy);
        }
        let room = self.room.clone();
        let mut endpoints = room.endpoints.subscribe();
        let mut pass = None;
        let mut has_turn = false;
        loop {
            let (choice, gone) = {
                let known = endpoints.borrow_and_update();
                (self.choose(&known, port), known.gone)
            };
            let (until, turned) = match choice {
                endpoint::Choice::This(busy) if has_turn || self.seat.is_none() => {
                    if self.seat.take().is_some() && self.slept {
                        self.held = Some(self.begun.elapsed());
                        self.early = self.room.has_let_in(busy.address());
                    }
                    return Ok(busy);
                }
                endpoint::Choice::This(_) => {
                    self.room.house.turn().await;
                    has_turn = true;
                    continue;
                }
                endpoint::Choice::Later(moment) if moment < self.deadline => (moment, None),
                endpoint::Choice::Later(_) => (self.deadline, Some(Turned::Late)),
                endpoint::Choice::None => {
                    self.slept = true;
                    match gone.map(|since| since + RETURN) {
                        Some(end) if end <= Instant::now() => return Err(Turned::Gone),
                        Some(end) if end < self.deadline => (end, Some(Turned::Gone)),
                        _ => (self.deadline, Some(Turned::Late)),
                    }
                }
            };
            if self.seat.is_none() {
                self.seat = Some(self.room.sit()?);
                // Whoever comes back has been counted.
                if self.avoided.is_none() {
                    self.room.grows_cold();
                }
            }
            if self.room.is_awake() {
                self.room.report();
            } else {
                self.room.knock();
            }
            has_turn = false;
            drop(pass.take());
            let change = async {
                if room.is_open() {
                    let _ = endpoints.changed().await;
                    None
                } else {
                    room.door.pass(|| room.is_open()).await
                }
            };
            match timeout_at(until, change).await {
                Ok(passes) => pass = passes,
                Err(_) => turned.map_or(Ok(()), Err)?,
            }
        }
    }
}

// === impl Seat ===

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.rise();
        self.0.house.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
