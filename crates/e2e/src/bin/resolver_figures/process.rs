//! Processes that are measured, or that help to measure.

use anyhow::{Context, Result};
use elasti_cluster::Cluster;
use std::process::Command;
use tokio::{
    net::TcpStream,
    time::{self, Duration},
};

const LOOK: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(10);

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

/// Nothing tells when another program listens.
pub(crate) async fn listens(program: &str, port: u16) -> Result<()> {
    let listens = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            time::sleep(LOOK).await;
        }
    };
    time::timeout(PATIENCE, listens)
        .await
        .with_context(|| format!("waiting for {program}: is its package installed?"))
}
