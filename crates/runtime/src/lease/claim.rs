use parking_lot::Mutex;
use std::{mem, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};

/// Whether this process leads, to be asked at the moment of each write.
#[derive(Clone, Debug)]
pub struct Claim(Arc<State>);

/// The side that renews. A claim ends with it.
#[derive(Debug)]
pub(super) struct Reign {
    state: Arc<State>,
    term: Duration,
}

#[derive(Debug)]
struct State {
    until: Mutex<Option<Instant>>,
    /// Follows `until`, but only while this process runs: good for waking up, not for deciding.
    leads: watch::Sender<bool>,
}

// === impl Claim ===

impl Claim {
    /// For a process that runs without election: it always leads.
    pub fn unopposed() -> Self {
        let forever = Instant::now() + Duration::from_secs(60 * 60 * 24 * 365 * 30);
        Self(Arc::new(State {
            until: Mutex::new(Some(forever)),
            leads: watch::Sender::new(true),
        }))
    }

    /// By the clock alone: a process that was stopped for longer than its claim learns of it here,
    /// whatever its other tasks have noticed so far.
    pub fn holds(&self) -> bool {
        self.0.holds()
    }

    /// Tells of the beginning and the end of leading.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.0.leads.subscribe()
    }
}

// === impl Reign ===

impl Reign {
    pub(super) fn new(term: Duration) -> Self {
        let state = State {
            until: Mutex::new(None),
            leads: watch::Sender::new(false),
        };
        Self {
            state: Arc::new(state),
            term,
        }
    }

    pub(super) fn claim(&self) -> Claim {
        Claim(self.state.clone())
    }

    /// After a renewal that succeeded, with the time before it was sent.
    pub(super) fn extend(&self, sent: Instant) {
        self.state.set(Some(sent + self.term));
    }

    pub(super) fn end(&self) {
        self.state.set(None);
    }

    /// The end of the claim, if it still holds.
    pub(super) fn until(&self) -> Option<Instant> {
        self.state
            .until
            .lock()
            .filter(|until| Instant::now() < *until)
    }
}

impl Drop for Reign {
    fn drop(&mut self) {
        self.end();
    }
}

// === impl State ===

impl State {
    fn holds(&self) -> bool {
        self.until
            .lock()
            .is_some_and(|until| Instant::now() < until)
    }

    fn set(&self, until: Option<Instant>) {
        *self.until.lock() = until;
        let leads = self.holds();
        self.leads
            .send_if_modified(|before| mem::replace(before, leads) != leads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const TERM: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_claim_counts_from_before_the_renewal_was_sent() {
        let reign = Reign::new(TERM);
        let claim = reign.claim();
        assert!(!claim.holds(), "nobody leads before the first renewal");

        let sent = Instant::now();
        advance(Duration::from_secs(4)).await;
        reign.extend(sent);
        assert!(claim.holds());
        advance(Duration::from_millis(5999)).await;
        assert!(claim.holds());
        advance(Duration::from_millis(1)).await;
        assert!(!claim.holds(), "and lapses though nobody said so");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_came_too_late_gives_no_claim() {
        let reign = Reign::new(TERM);
        let sent = Instant::now();
        advance(TERM).await;
        reign.extend(sent);
        assert!(!reign.claim().holds());
        assert!(!*reign.claim().watch().borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_beginning_and_the_end_are_told() {
        let reign = Reign::new(TERM);
        let mut leads = reign.claim().watch();
        reign.extend(Instant::now());
        assert!(*leads.borrow_and_update());
        reign.extend(Instant::now());
        assert!(!leads.has_changed().unwrap(), "a renewal is no news");
        reign.end();
        assert!(!*leads.borrow_and_update());
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_ends_with_whoever_renews_it() {
        let reign = Reign::new(TERM);
        let claim = reign.claim();
        reign.extend(Instant::now());
        drop(reign);
        assert!(!claim.holds());
        assert!(!*claim.watch().borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn without_election_one_always_leads() {
        let claim = Claim::unopposed();
        advance(Duration::from_secs(1_000_000)).await;
        assert!(claim.holds() && *claim.watch().borrow());
    }
}
