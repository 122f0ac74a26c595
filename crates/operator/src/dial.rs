//! Whether a resolver takes connections on a port. A resolver is listed in a slice only after one was
//! accepted: nobody is sent where nobody listens.

use crate::operator::Operator;
use std::{net::SocketAddr, time::Duration};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

const PATIENCE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(250);
const LATER: Duration = Duration::from_secs(2);

/// Works until it is dropped.
pub(crate) async fn work(operator: &Operator) {
    loop {
        let address = operator.dials.next().await;
        dial(operator, address).await;
        operator.dials.done(&address);
    }
}

async fn dial(operator: &Operator, address: SocketAddr) {
    let wanted =
        operator.read(|index| index.is_ready_resolver(address.ip()) && !index.accepts(address));
    if !wanted || !operator.claim.holds() {
        return;
    }
    let again = match timeout(PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(_)) => {
            operator.learn(|index| index.note_accepted(address));
            return;
        }
        // It may be about to listen.
        Ok(Err(_)) => RETRY,
        Err(_) => LATER,
    };
    operator.dials.push(address, Instant::now() + again);
}
