//! Pure decisions: no runtime, no client, no clock.

pub mod host;
pub mod plan;
pub mod ports;
pub mod probe;
pub mod schedule;
pub mod verdict;
