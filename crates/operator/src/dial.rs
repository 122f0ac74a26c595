//! Whether a resolver takes connections on a port. A resolver is listed in a slice only after one was
//! accepted: nobody is sent where nobody listens.

use crate::{clock, operator::Operator};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

const PATIENCE: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);

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
    if let Ok(Ok(_)) = timeout(PATIENCE, TcpStream::connect(address)).await {
        operator.learn(|index| index.note_accepted(address));
        return None;
    }
    operator.learn(|index| index.note_refused(address, clock::now()));
    let mut failures = operator.dial_failures.lock();
    let times = failures.entry(address).or_default();
    let pause = FIRST.saturating_mul(2_u32.saturating_pow(*times));
    *times += 1;
    Some(pause.min(LONGEST))
}
