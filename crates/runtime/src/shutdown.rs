//! How a process is asked to end. Only `main` calls this.

use std::{convert::Infallible, io, process};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// SIGTERM or SIGINT cancels; a second one ends the process at once with code 1. Signals are caught
/// from the call on, and acted upon while the future is polled: select it beside the work.
pub fn on_signals(
    shutdown: CancellationToken,
) -> io::Result<impl Future<Output = Infallible> + Send> {
    let mut signals = Signals::catch()?;
    Ok(async move {
        let name = signals.next().await;
        info!(signal = name, "Shutting down");
        shutdown.cancel();
        let name = signals.next().await;
        warn!(signal = name, "Told twice: ending at once");
        process::exit(1)
    })
}

// === impl Signals ===

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
