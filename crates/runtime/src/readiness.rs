//! What a process still waits for before it may be sent work.

use std::{collections::BTreeMap, future};
use tokio::sync::watch;

/// Ready when all that was registered is done; never again once failed.
#[derive(Clone, Debug, Default)]
pub struct Readiness(watch::Sender<Progress>);

/// Something that readiness waits for until it is done or dropped.
#[derive(Debug)]
#[must_use = "dropping it says that it is done"]
pub struct Pending {
    readiness: Readiness,
    number: u64,
}

#[derive(Debug, Default)]
struct Progress {
    registered: u64,
    pending: BTreeMap<u64, String>,
    failed: bool,
}

// === impl Readiness ===

impl Readiness {
    pub fn new() -> Self {
        Self::default()
    }

    /// Names what must be done first. Before anything is registered, one is ready.
    pub fn register(&self, name: impl Into<String>) -> Pending {
        let mut number = 0;
        self.0.send_modify(|progress| {
            number = progress.registered;
            progress.registered += 1;
            progress.pending.insert(number, name.into());
        });
        let readiness = self.clone();
        Pending { readiness, number }
    }

    pub fn is_ready(&self) -> bool {
        self.0.borrow().is_ready()
    }

    /// What is waited for, in the order of registration.
    pub fn pending(&self) -> Vec<String> {
        let progress = self.0.borrow();
        let ending = progress.failed.then(|| "shutdown".to_owned());
        ending
            .into_iter()
            .chain(progress.pending.values().cloned())
            .collect()
    }

    /// Resolves when ready, and so not at all after [`fail`](Self::fail).
    pub async fn ready(&self) {
        let mut progress = self.0.subscribe();
        if progress.wait_for(Progress::is_ready).await.is_err() {
            future::pending().await
        }
    }

    /// For a process that is about to end.
    pub fn fail(&self) {
        self.0.send_modify(|progress| progress.failed = true);
    }
}

// === impl Pending ===

impl Pending {
    pub fn done(self) {}
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.readiness.0.send_modify(|progress| {
            progress.pending.remove(&self.number);
        });
    }
}

// === impl Progress ===

impl Progress {
    fn is_ready(&self) -> bool {
        !self.failed && self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[test]
    fn ready_when_all_that_was_registered_is_done() {
        let readiness = Readiness::new();
        assert!(readiness.is_ready());
        let services = readiness.register("services");
        let slices = readiness.register("slices");
        assert_eq!(readiness.pending(), ["services", "slices"]);
        services.done();
        assert_eq!(readiness.pending(), ["slices"]);
        assert!(!readiness.is_ready());
        drop(slices);
        assert!(readiness.is_ready());
    }

    #[test]
    fn two_of_the_same_name_are_two() {
        let readiness = Readiness::new();
        let first = readiness.register("port");
        let _second = readiness.register("port");
        first.done();
        assert_eq!(readiness.pending(), ["port"]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_wakes_with_the_last_one_done() {
        let readiness = Readiness::new();
        let services = readiness.register("services");
        let (before, after) =
            tokio::join!(timeout(Duration::from_secs(1), readiness.ready()), async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                services.done();
                timeout(Duration::from_secs(1), readiness.ready()).await
            });
        assert!(before.is_err() && after.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn once_failed_never_ready_again() {
        let readiness = Readiness::new();
        let services = readiness.register("services");
        readiness.fail();
        services.done();
        assert!(!readiness.is_ready());
        assert_eq!(readiness.pending(), ["shutdown"]);
        assert!(
            timeout(Duration::from_secs(60), readiness.ready())
                .await
                .is_err()
        );
    }
}
