//! The next request as soon as the last is answered, on every connection.

use super::{
    exchange::{LAST_REQUEST, REQUEST, answer},
    say,
};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    task::JoinSet,
    time::{Instant, timeout},
};

/// What passed, once it was warm.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Passed {
    pub(crate) per_second: f64,
    /// In microseconds.
    pub(crate) median: f64,
}

const WARM: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn play(
    address: SocketAddr,
    connections: usize,
    fresh: bool,
    long: Duration,
) -> Result<()> {
    let begin = Instant::now() + WARM;
    let end = begin + long;
    let mut asking = JoinSet::new();
    for _ in 0..connections {
        asking.spawn(ask(address, fresh, begin, end));
    }
    let mut took = Vec::new();
    while let Some(asked) = asking.join_next().await {
        took.extend(asked??);
    }
    took.sort_unstable();
    let median = took.get(took.len() / 2).context("nothing was answered")?;
    say(&Passed {
        per_second: took.len() as f64 / long.as_secs_f64(),
        median: f64::from(*median) / 1e3,
    })
}

/// Returns how many nanoseconds each took.
async fn ask(address: SocketAddr, fresh: bool, begin: Instant, end: Instant) -> Result<Vec<u32>> {
    let mut stream = connect(address).await?;
    let request = if fresh { LAST_REQUEST } else { REQUEST };
    let mut buffer = Vec::with_capacity(1_024);
    let mut took = Vec::new();
    let mut before = Instant::now();
    let all = async {
        while before < end {
            stream.write_all(request).await?;
            answer(&mut stream, &mut buffer).await?;
            if fresh {
                stream = connect(address).await?;
            }
            let now = Instant::now();
            if before >= begin && now < end {
                let nanoseconds = now.duration_since(before).as_nanos();
                took.push(nanoseconds.try_into().unwrap_or(u32::MAX));
            }
            before = now;
        }
        anyhow::Ok(())
    };
    timeout(PATIENCE, all)
        .await
        .context("waiting for an answer")??;
    Ok(took)
}

async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
