//! Whether a resolver takes connections on a port. A resolver is listed in a slice only after one was
//! accepted: nobody is sent where nobody listens.

use crate::{clock, operator::Operator};
use jiff::SignedDuration;
use std::{
    net::{SocketAddr, TcpStream},
    time::Duration,
};
use tokio::{task::spawn_blocking, time::Instant};

const PATIENCE: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);
/// A resolver learns of a port when we do, and may need a moment longer.
const NEWS: SignedDuration = SignedDuration::from_millis(300);

/// Works until it is dropped.
pub(crate) async fn work(operator: &Operator) {
    loop {
        let address = operator.dials.next().await;
        let again = dial(operator, address).await;
        if let Some(again) = again {
            operator.dials.push(address, Instant::now() + again);
        } else {
            operator.dial_failures.lock().remove(&address);
        }
        operator.dials.done(&address);
    }
}

/// How long to wait before the next attempt, if there has to be one: the resolver may be about to
/// listen.
async fn dial(operator: &Operator, address: SocketAddr) -> Option<Duration> {
    let proxy_port = operator.settings.proxy_port;
    let wanted = operator.read(|index| {
        index.is_ready_resolver(address.ip())
            && !index.accepts(address)
            && (address.port() == proxy_port || index.is_routed(address.port()))
    });
    if !wanted || !operator.claim.holds() {
        return None;
    }
    let begun = clock::now();
    if accepts(address).await {
        operator.learn(|index| index.note_accepted(address));
        return None;
    }
    let (times, since) = {
        let mut failures = operator.dial_failures.lock();
        let (times, since) = failures.entry(address).or_insert((0, begun));
        *times += 1;
        (*times, *since)
    };
    if clock::now().duration_since(since) >= NEWS {
        operator.learn(|index| index.note_refused(address, since));
    }
    let pause = FIRST.saturating_mul(2_u32.saturating_pow(times - 1));
    Some(pause.min(LONGEST))
}

/// On a thread of its own, which has nothing else to do before it closes: whoever stays and says nothing is a client that
/// waits for the server to speak, and wakes it. A task may have to wait for its turn for longer than a resolver does.
async fn accepts(address: SocketAddr) -> bool {
    let dialled = spawn_blocking(move || TcpStream::connect_timeout(&address, PATIENCE).is_ok());
    dialled.await.unwrap_or(false)
}
