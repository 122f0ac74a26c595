//! Work that is due, one piece per key at a time. An earlier moment beats a later one, and
//! what is asked for while it is being worked on is done again afterwards.

use elasti_runtime::watch::Key;
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::Hash,
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{self, Instant},
};

const LAG: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Queue<K = Key> {
    state: Mutex<State<K>>,
    changed: Notify,
    emptied: Notify,
    caught_up: Notify,
}

#[derive(Debug)]
struct State<K> {
    due: HashMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
    running: HashSet<K>,
}

enum Next<K> {
    Now(K),
    At(Instant),
    Never,
}

// === impl Queue ===

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            due: HashMap::new(),
            order: BTreeSet::new(),
            running: HashSet::new(),
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            emptied: Notify::new(),
            caught_up: Notify::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    pub(crate) fn push(&self, key: K, at: Instant) {
        self.state.lock().push(key, at);
        self.changed.notify_one();
    }

    pub(crate) fn push_all(&self, keys: impl IntoIterator<Item = K>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        keys.into_iter().for_each(|key| state.push(key, now));
        drop(state);
        self.changed.notify_one();
    }

    /// The next piece of work; to be given back with [`done`](Self::done).
    pub(crate) async fn next(&self) -> K {
        loop {
            let changed = self.changed.notified();
            let next = self.state.lock().next(Instant::now());
            match next {
                Next::Now(key) => {
                    // Another worker may have been asleep over what is left.
                    self.changed.notify_one();
                    return key;
                }
                Next::At(moment) => {
                    tokio::select! {
                        () = changed => {}
                        () = time::sleep_until(moment) => {}
                    }
                }
                Next::Never => changed.await,
            }
        }
    }

    pub(crate) fn done(&self, key: &K) {
        let mut state = self.state.lock();
        state.running.remove(key);
        let empty = state.running.is_empty() && state.due.is_empty();
        let lags = state.lags();
        drop(state);
        self.changed.notify_one();
        if !lags {
            self.caught_up.notify_waiters();
        }
        if empty {
            self.emptied.notify_waiters();
        }
    }

    /// Whether something has been due for a while, and nobody has had time for it.
    pub(crate) fn lags(&self) -> bool {
        self.state.lock().lags()
    }

    /// Resolves when nothing has been waiting for long.
    pub(crate) async fn catches_up(&self) {
        loop {
            let caught_up = self.caught_up.notified();
            if !self.lags() {
                return;
            }
            caught_up.await;
        }
    }

    /// Resolves when nothing is due and nothing is worked on.
    pub(crate) async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            {
                let state = self.state.lock();
                if state.running.is_empty() && state.due.is_empty() {
                    return;
                }
            }
            emptied.await;
        }
    }
}

// === impl State ===

impl<K: Clone + Eq + Hash + Ord> State<K> {
    fn push(&mut self, key: K, at: Instant) {
        if let Some(known) = self.due.get(&key).copied() {
            if known <= at {
                return;
            }
            self.order.remove(&(known, key.clone()));
        }
        self.due.insert(key.clone(), at);
        self.order.insert((at, key));
    }

    /// Of what nobody works on.
    fn first(&self) -> Option<&(Instant, K)> {
        let mut order = self.order.iter();
        order.find(|(_, key)| !self.running.contains(key))
    }

    fn lags(&self) -> bool {
        self.first().is_some_and(|(due, _)| due.elapsed() > LAG)
    }

    fn next(&mut self, now: Instant) -> Next<K> {
        match self.first().cloned() {
            None => Next::Never,
            Some((at, _)) if at > now => Next::At(at),
            Some((at, key)) => {
                self.order.remove(&(at, key.clone()));
                self.due.remove(&key);
                self.running.insert(key.clone());
                Next::Now(key)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("shop", name)
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_moment_beats_a_later_one() {
        let queue = Queue::default();
        let start = Instant::now();
        queue.push(key("web"), start + Duration::from_secs(60));
        queue.push(key("web"), start + Duration::from_secs(5));
        queue.push(key("web"), start + Duration::from_secs(30));
        assert_eq!(queue.next().await, key("web"));
        assert_eq!(start.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_worked_on_twice_at_once() {
        let queue = Queue::default();
        queue.push_all([key("web")]);
        let web = queue.next().await;
        queue.push_all([key("web")]);
        let early = time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(early.is_err(), "it is still being worked on");
        queue.done(&web);
        assert_eq!(queue.next().await, web, "and was asked for in between");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_and_left_waiting_shows() {
        let queue = Queue::default();
        queue.push(key("later"), Instant::now() + Duration::from_secs(1));
        queue.push_all([key("now")]);
        assert!(!queue.lags(), "it has just come");
        time::advance(2 * LAG).await;
        assert!(queue.lags());
        queue.next().await;
        queue.push_all([key("now")]);
        time::advance(2 * LAG).await;
        assert!(!queue.lags(), "it is worked on, and the other is not due");
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_way_hears_when_the_last_that_waited_for_long_is_done() {
        let queue = Queue::default();
        queue.push_all([key("web"), key("app")]);
        let first = queue.next().await;
        time::advance(2 * LAG).await;
        let (second, ()) = tokio::join!(
            async {
                queue.done(&first);
                time::sleep(LAG).await;
                let second = queue.next().await;
                time::sleep(LAG).await;
                queue.done(&second);
                Instant::now()
            },
            queue.catches_up(),
        );
        assert_eq!(Instant::now(), second, "and not before");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_worker_hears_of_new_work() {
        let queue = Queue::default();
        queue.push(key("later"), Instant::now() + Duration::from_secs(600));
        let (next, ()) = tokio::join!(queue.next(), async {
            time::sleep(Duration::from_millis(1)).await;
            queue.push_all([key("now")]);
        });
        assert_eq!(next, key("now"));
    }
}
