//! Whoever vanishes without a word is noticed, by asking the other side's kernel now and then.

use nix::sys::socket::{setsockopt, sockopt};
use std::time::Duration;
use tokio::net::TcpStream;

const AGAIN: u32 = 10;
const TIMES: u32 = 3;

/// Asks after so long a silence. A connection that cannot be watched is a connection all the same.
pub(crate) fn watch_over(stream: &TcpStream, silence: Duration) {
    let silence = u32::try_from(silence.as_secs()).unwrap_or(u32::MAX);
    let watched = setsockopt(stream, sockopt::KeepAlive, &true)
        .and_then(|()| setsockopt(stream, sockopt::TcpKeepIdle, &silence))
        .and_then(|()| setsockopt(stream, sockopt::TcpKeepInterval, &AGAIN))
        .and_then(|()| setsockopt(stream, sockopt::TcpKeepCount, &TIMES));
    if let Err(error) = watched {
        tracing::debug!(%error, "Cannot watch over a connection");
    }
}
