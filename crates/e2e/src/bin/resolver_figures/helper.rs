//! Clients and targets: further processes of this program, which say in lines of JSON what they saw.

mod body;
mod exchange;
mod hold;
mod load;
mod target;

pub(crate) use self::{body::Moved, hold::Outcome, load::Passed, target::Tally};

use crate::{
    process::{Core, command},
    stage::Stage,
};
use anyhow::{Context, Result};
use elasti_e2e::Usage;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{env, net::SocketAddr, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time,
};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Answers; for each line that it is given, says what came since the last.
    Target { address: SocketAddr },
    /// Opens that many at once and waits for each answer; says when all are sent, and when all is over.
    Hold {
        address: SocketAddr,
        count: usize,
        streams: Option<usize>,
    },
    /// Asks again and again, on so many connections, or on a new one each time.
    Load {
        address: SocketAddr,
        connections: usize,
        fresh: bool,
        milliseconds: u64,
    },
    /// Moves one body.
    Body {
        address: SocketAddr,
        way: Way,
        bytes: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    Up,
    Down,
}

/// That what was to be prepared is done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Prepared;

/// One that lives as long as its handle.
pub(crate) struct Helper {
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    child: Child,
}

const PATIENCE: Duration = Duration::from_secs(120);

// === impl Role ===

impl Role {
    pub(crate) fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

/// The life of a helper: it ends when nobody is left to give it orders.
pub(crate) fn play(role: Role) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        let mut orders = tokio::io::stdin();
        match role {
            Role::Target { address } => target::play(address).await,
            _ => tokio::select! {
                outcome = client(role) => outcome,
                _ = orders.read_u8() => Ok(()),
            },
        }
    });
    // A read of the orders may still be under way.
    runtime.shutdown_background();
    outcome
}

async fn client(role: Role) -> Result<()> {
    match role {
        Role::Target { .. } => Ok(()),
        Role::Hold {
            address,
            count,
            streams: None,
        } => hold::connections(address, count).await,
        Role::Hold {
            address,
            count,
            streams: Some(streams),
        } => hold::streams(address, count, streams).await,
        Role::Load {
            address,
            connections,
            fresh,
            milliseconds,
        } => {
            let long = Duration::from_millis(milliseconds);
            load::play(address, connections, fresh, long).await
        }
        Role::Body {
            address,
            way,
            bytes,
        } => body::play(address, way, bytes).await,
    }
}

/// To whoever gives the orders.
fn say(what: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(what)?);
    Ok(())
}

// === impl Helper ===

impl Helper {
    pub(crate) fn start(stage: &Stage<'_>, core: Core, role: Role) -> Result<Self> {
        let this = env::current_exe()?.display().to_string();
        let mut command = command(stage.cluster, &this, core)?;
        command
            .args(["--role", &serde_json::to_string(&role)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Command::from(command).kill_on_drop(true).spawn()?;
        let orders = child.stdin.take().context("it takes orders")?;
        let said = child.stdout.take().context("it speaks")?;
        Ok(Self {
            orders,
            lines: BufReader::new(said).lines(),
            child,
        })
    }

    /// A target that listens.
    pub(crate) async fn target(stage: &Stage<'_>, core: Core) -> Result<Self> {
        let address = stage.target;
        let mut target = Self::start(stage, core, Role::Target { address })?;
        target.says::<Prepared>().await?;
        Ok(target)
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        Ok(Usage::of(self.child.id().context("it runs")?))
    }

    pub(crate) async fn says<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = time::timeout(PATIENCE, self.lines.next_line())
            .await
            .context("waiting for a helper")??;
        Ok(serde_json::from_str(&line.context("a helper failed")?)?)
    }

    /// What came to a target since it was last asked.
    pub(crate) async fn tally(&mut self) -> Result<Tally> {
        self.orders.write_all(b"\n").await?;
        self.says().await
    }
}
