//! Whoever vanishes without a word is noticed, by asking the other side's kernel now and then.

use nix::sys::socket::{setsockopt, sockopt};
use std::{os::fd::AsFd, time::Duration};

const AGAIN: u32 = 10;
const TIMES: u32 = 3;

/// Asks after so long a silence, and sends at once what is to be sent. What comes out of a listener is as the listener
/// is. A connection that cannot be watched is a connection all the same.
pub(crate) fn watch_over(socket: &impl AsFd, silence: Duration) {
    let silence = u32::try_from(silence.as_secs()).unwrap_or(u32::MAX);
    let watched = setsockopt(socket, sockopt::TcpNoDelay, &true)
        .and_then(|()| setsockopt(socket, sockopt::KeepAlive, &true))
        .and_then(|()| setsockopt(socket, sockopt::TcpKeepIdle, &silence))
        .and_then(|()| setsockopt(socket, sockopt::TcpKeepInterval, &AGAIN))
        .and_then(|()| setsockopt(socket, sockopt::TcpKeepCount, &TIMES));
    if let Err(error) = watched {
        tracing::debug!(%error, "Cannot watch over a connection");
    }
}

/// Nobody is asked while something is under way. Where none of that is taken for as long as one who is silent would be
/// asked, the other side is gone, or does not read: whoever shares the connection waits for it.
pub(crate) fn give_up_after(socket: &impl AsFd, silence: Duration) {
    let most = silence + Duration::from_secs((AGAIN * TIMES).into());
    let most = u32::try_from(most.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = setsockopt(socket, sockopt::TcpUserTimeout, &most) {
        tracing::debug!(%error, "Cannot limit how long a connection is waited for");
    }
}
