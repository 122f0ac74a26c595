use super::loss::{Failure, Loss};
use jiff::Timestamp;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    time::Duration,
};

/// Longer than a pod needs, and an API server.
const SLOW: Duration = Duration::from_secs(30);
/// So many losses are told one by one.
const TOLD: usize = 8;

/// What came of all that was asked.
#[derive(Default)]
pub struct Ledger {
    asked: RefCell<BTreeMap<&'static str, usize>>,
    answered: Cell<usize>,
    /// Asked once more, because a resolver was killed, by what was seen of that.
    again: RefCell<BTreeMap<Failure, usize>>,
    slowest: Cell<Duration>,
    slept: RefCell<BTreeMap<&'static str, usize>>,
    lost: RefCell<Vec<Loss>>,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn asks(&self, service: &'static str) {
        *self.asked.borrow_mut().entry(service).or_default() += 1;
    }

    pub(super) fn asks_again(&self, after: Failure) {
        *self.again.borrow_mut().entry(after).or_default() += 1;
    }

    pub(super) fn answered(&self, what: &str, after: Duration) {
        self.answered.update(|count| count + 1);
        let slowest = self.slowest.replace(self.slowest.get().max(after));
        if after > SLOW.max(slowest) {
            println!("SLOW: {what} took {after:.1?} until {:.3}", now());
        }
    }

    pub(super) fn lost(&self, loss: Loss) {
        self.lost.borrow_mut().push(loss);
    }

    pub(super) fn fell_asleep(&self, name: &'static str) {
        *self.slept.borrow_mut().entry(name).or_default() += 1;
    }

    /// How often the service of this name fell asleep.
    pub fn slept(&self, name: &str) -> usize {
        self.slept.borrow().get(name).copied().unwrap_or_default()
    }

    /// Of the service of this name.
    pub fn asked(&self, name: &str) -> usize {
        self.asked.borrow().get(name).copied().unwrap_or_default()
    }

    /// Of the service of this name.
    pub fn lost_of(&self, name: &str) -> usize {
        let lost = self.lost.borrow();
        lost.iter().filter(|loss| loss.service == name).count()
    }

    pub fn is_clean(&self) -> bool {
        self.lost.borrow().is_empty()
    }

    /// How many were lost of each kind, and the first of them.
    pub(super) fn losses(&self) -> String {
        let lost = self.lost.borrow();
        let mut kinds = BTreeMap::<_, usize>::new();
        for loss in &*lost {
            *kinds.entry(loss.kind()).or_default() += 1;
        }
        let kinds = kinds
            .iter()
            .map(|(kind, times)| format!("\nLOST {times} times: {kind}"));
        let first = lost.iter().take(TOLD).map(|loss| format!("\nLOST: {loss}"));
        kinds.chain(first).collect()
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked: usize = self.asked.borrow().values().sum();
        let answered = self.answered.get();
        let lost = self.lost.borrow().len();
        write!(
            f,
            "{asked} asked, {answered} answered, {lost} lost, {} under way; slowest {:.1?}",
            asked - answered - lost,
            self.slowest.get(),
        )?;
        for (after, times) in &*self.again.borrow() {
            write!(f, "; {times} asked again after {after:?}")?;
        }
        write!(f, "; asleep")?;
        for (name, times) in &*self.slept.borrow() {
            write!(f, " {name} {times}")?;
        }
        Ok(())
    }
}

/// As logs tell it.
#[expect(clippy::disallowed_methods, reason = "it is for people to read")]
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}
