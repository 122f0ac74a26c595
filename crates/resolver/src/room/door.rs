use tokio::sync::{Semaphore, SemaphorePermit};

/// The way out of a room: open while an endpoint is ready, and a few go through at a time. That all of
/// them wake at once would delay the first.
#[derive(Debug)]
pub(super) struct Door(Semaphore);

/// So many are between their seats and the target.
const WIDTH: usize = 8;

// === impl Door ===

impl Door {
    pub(super) fn shut() -> Self {
        Self(Semaphore::new(0))
    }

    /// Whoever waits sees the endpoint for which it opens.
    pub(super) fn open(&self) {
        let more = WIDTH.saturating_sub(self.0.available_permits());
        self.0.add_permits(more);
    }

    pub(super) fn close(&self) {
        self.0.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Resolves when it is open and those who came before are through. Whoever goes while it closes brings
    /// back a pass that counts no more, and `is_open` tells.
    pub(super) async fn pass(&self, is_open: impl Fn() -> bool) -> Option<SemaphorePermit<'_>> {
        loop {
            let pass = self.0.acquire().await.ok()?;
            if is_open() {
                return Some(pass);
            }
            pass.forget();
        }
    }
}
