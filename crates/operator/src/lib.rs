//! The Elasti operator: one flow of state, from watches through a pure plan to writes.

mod apply;
mod clock;
mod desired;
mod dial;
mod facts;
mod farewell;
mod feed;
mod few;
mod index;
mod kinds;
mod metrics;
mod observe;
mod operator;
pub mod prometheus;
mod queue;
mod readiness;
mod reconcile;
mod run;
mod say;
mod settings;
mod status;
mod token;
mod triggers;
mod wake;

pub use self::{
    run::Parts,
    settings::{Routing, Settings},
};
