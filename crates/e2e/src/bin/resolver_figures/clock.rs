//! The one clock that all processes of a machine share.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Moment(pub(crate) u64);

// === impl Moment ===

impl Moment {
    pub(crate) fn now() -> Self {
        let since = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
        Self(since.as_nanos().try_into().unwrap_or(u64::MAX))
    }

    /// Less than nothing if it was before.
    pub(crate) fn milliseconds_since(self, before: Self) -> f64 {
        (self.0 as f64 - before.0 as f64) / 1e6
    }
}
