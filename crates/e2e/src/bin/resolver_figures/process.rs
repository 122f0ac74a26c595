//! Processes that are measured, or that help to measure.

use anyhow::Result;
use elasti_cluster::Cluster;
use std::process::Command;

/// The core of whatever is measured, and the one of all that helps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Core {
    Any,
    Measured,
    Helping,
}

/// A command that reaches the cluster, on its core.
pub(crate) fn command(cluster: &Cluster, program: &str, core: Core) -> Result<Command> {
    let core = match core {
        Core::Any => return cluster.command(program),
        Core::Measured => "0",
        Core::Helping => "1",
    };
    let mut command = cluster.command("taskset")?;
    command.args(["--cpu-list", core, program]);
    Ok(command)
}
