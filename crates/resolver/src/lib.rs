//! The Elasti resolver: it holds the traffic of sleeping services, has them woken, forwards, and
//! leaves the path.

mod alive;
pub mod directory;
mod early;
mod internal;
mod knock;
pub mod listen;
pub mod metrics;
pub mod proxy;
pub mod room;
pub mod route;
mod run;

pub use self::run::{Parts, Settings};
