//! The operator on a real cluster, one of its own for each test, which sees that test's namespace
//! alone. Each test says what somebody who runs it would notice.

mod autoscalers;
mod availability;
mod dry_run;
mod fail_open;
mod interruptions;
mod knocks;
mod leaving;
mod periods;
mod permissions;
mod ports;
mod services;
mod sleeping;
mod slices;
mod targets;
mod transitions;
mod triggers;
mod wake_server;
mod waking;
