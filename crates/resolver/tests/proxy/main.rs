//! The proxy against real sockets, in one process: clients, targets and what is between them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers, too"
)]

mod holding;
mod http;
mod limits;
mod malformed;
mod multiplexed;
mod plain;
mod ports;
mod protocols;
mod stage;
mod start;
mod tcp;
