//! What operator and resolver both need of their surroundings.

pub mod admin;
pub mod client;
pub mod lease;
pub mod listen;
pub mod logs;
pub mod pool;
pub mod readiness;
pub mod sentry;
pub mod shutdown;
pub mod watch;
