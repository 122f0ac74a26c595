//! The Elasti resolver: it holds the traffic of sleeping services, has them woken, forwards, and
//! leaves the path.

pub mod proxy;
pub mod room;
pub mod route;
