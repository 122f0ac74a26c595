//! What tests on a real cluster share: the cluster, a namespace for each test, the application that
//! they deploy, and the operator with what it needs around it.

mod address;
mod app;
pub mod client;
mod fetch;
pub mod foreign;
pub mod grpc;
pub mod install;
mod kind;
pub mod kubeelasti;
mod measured;
mod namespace;
mod paused;
mod place;
mod pod_process;
pub mod report;
mod running;
pub mod stage;
mod trial;
mod usage;
mod visitor;

pub use self::{
    address::own_address,
    app::app,
    fetch::{exchange, fetch},
    kind::{establish, scalable},
    measured::measured,
    namespace::Namespace,
    paused::Paused,
    place::Place,
    pod_process::{is_alive, kill_pod_process},
    running::{Running, built},
    trial::Trial,
    usage::{Memory, Usage},
    visitor::{Identity, Manner, Visitor},
};

use anyhow::{Result, anyhow};
use elasti_cluster::Cluster;
use futures::FutureExt;
use std::{
    env,
    panic::{self, AssertUnwindSafe},
    sync::OnceLock,
    thread,
    time::Duration,
};
use tokio::time::timeout;

/// What hangs is a failure, too.
pub const LONGEST: Duration = Duration::from_secs(300);

/// The cluster that `KUBECONFIG` names, or else the local one, started if need be.
pub fn cluster() -> Result<&'static Cluster> {
    static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();
    let found = CLUSTER.get_or_init(|| match env::var("KUBECONFIG") {
        Ok(config) if !config.is_empty() => Ok(Cluster::existing(None)),
        _ => Cluster::up(&local_name()).map_err(|error| format!("{error:#}")),
    });
    found
        .as_ref()
        .map_err(|error| anyhow::Error::msg(error.clone()))
}

/// Of the local cluster.
pub fn local_name() -> String {
    env::var("ELASTI_CLUSTER").unwrap_or_else(|_| "elasti".into())
}

/// Runs one test in a namespace named after it. When it fails, what is in there is printed.
pub fn test(work: impl AsyncFnOnce(&Place) -> Result<()> + Send) -> Result<()> {
    test_on(cluster()?, LONGEST, work)
}

/// One that may take longer than others.
pub fn long_test(work: impl AsyncFnOnce(&Place) -> Result<()> + Send) -> Result<()> {
    test_on(cluster()?, 3 * LONGEST, work)
}

/// Runs a test on a cluster of its own, which is gone afterwards in any case.
pub fn test_alone(
    purpose: &str,
    longest: Duration,
    work: impl AsyncFnOnce(&Place) -> Result<()> + Send,
) -> Result<()> {
    if env::var("KUBECONFIG").is_ok_and(|config| !config.is_empty()) {
        println!("KUBECONFIG names the cluster, so no local one is tried");
        return Ok(());
    }
    // The same name each time: a run that was killed is cleaned up by the next.
    let name = format!("alone-{purpose}");
    Cluster::down(&name)?;
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        let cluster = Box::leak(Box::new(Cluster::up(&name)?));
        test_on(cluster, longest, work)
    }));
    Cluster::down(&name)?;
    outcome.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

fn test_on(
    cluster: &'static Cluster,
    longest: Duration,
    work: impl AsyncFnOnce(&Place) -> Result<()> + Send,
) -> Result<()> {
    let name = thread::current().name().unwrap_or("test").to_owned();
    cluster.run(async || {
        let place = Place::find(cluster, &name).await?;
        // A failed assertion must not skip what follows.
        let outcome = AssertUnwindSafe(work(&place)).catch_unwind();
        let outcome = match timeout(longest, outcome).await {
            Ok(outcome) => outcome.unwrap_or_else(|_| Err(anyhow!("an assertion failed"))),
            Err(_) => Err(anyhow!("it did not end within {longest:?}")),
        };
        if let Err(error) = &outcome {
            // In short: it is told whole at the end of all that is there to look at.
            eprintln!("--- {name}: {error}");
            place.dump();
        }
        let left = place.leave().await;
        outcome.and(left)
    })
}
