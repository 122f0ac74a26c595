//! The proxy against real sockets, in one process: clients, targets and what is between them.

mod holding;
mod http;
mod stage;
mod tcp;
