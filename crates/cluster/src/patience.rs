//! Waiting for the kernel, which offers no event for the end of somebody else's processes.

use std::{io, thread, time::Duration};

const TICK: Duration = Duration::from_millis(10);
const TICKS: u32 = 3_000;

/// Tries until it works, for half a minute at most.
pub(crate) fn patiently(mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 1..TICKS {
        if attempt().is_ok() {
            return Ok(());
        }
        tick();
    }
    attempt()
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing to await, and no runtime here"
)]
fn tick() {
    thread::sleep(TICK);
}
