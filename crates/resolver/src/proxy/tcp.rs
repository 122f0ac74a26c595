//! Connections that we do not look into: TLS, databases, anything.

use super::{
    Proxy,
    answer::Refusal,
    peek::{reminded, unless_left, within},
    relay::relay,
};
use crate::{
    room::{Busy, Turned},
    route::{Speaks, Way},
};
use std::{io, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::yield_now,
    time::timeout,
};

/// For a client who only wants to know whether somebody listens.
const GLANCE: Duration = Duration::from_millis(200);
/// For a client to take note that it is turned away.
const FAREWELL: Duration = Duration::from_secs(1);

impl Proxy {
    /// Held until the target takes it, then joined with it, each side closing by itself.
    pub(super) async fn opaque(&self, way: &Way, client: TcpStream) {
        if way.speaks == Speaks::Opaque && !way.room.is_serving() && only_looks(&client).await {
            return;
        }
        let Some((reached, mut client)) = self.reach(way, client).await else {
            return;
        };
        let (mut target, _busy) = match reached {
            Ok(reached) => reached,
            Err(turned) => {
                self.metrics.turned_away(Refusal::from(turned));
                return Box::pin(turn_away(client)).await;
            }
        };
        if let Err(error) = relay(&mut client, &mut target).await {
            tracing::debug!(%error, "Connection ended");
        }
    }

    /// Nothing if the client has left meanwhile.
    async fn reach(
        &self,
        way: &Way,
        mut client: TcpStream,
    ) -> Option<(Result<(TcpStream, Busy), Turned>, TcpStream)> {
        let mut visit = way.visit();
        loop {
            let found;
            (found, client) = unless_left(client, true, visit.endpoint(&way.port)).await?;
            let busy = match found {
                Ok(busy) => busy,
                Err(turned) => return Some((Err(turned), client)),
            };
            if let Ok(target) = self.upstreams.dial(&busy, visit.deadline()).await {
                self.metrics.held(&way.room, visit.waited());
                return Some((Ok((target, busy)), client));
            }
            if let Err(turned) = visit.failed(&busy) {
                return Some((Err(turned), client));
            }
            ((), client) = unless_left(client, true, yield_now()).await?;
        }
    }
}

/// Health checks connect and leave, and so does the operator, before it sends anybody here: that must
/// wake nobody.
async fn only_looks(client: &TcpStream) -> bool {
    let looked = within(GLANCE, client.peek(&mut [0])).await;
    matches!(looked, Some(Ok(0) | Err(_)))
}

/// For a client that was only looked at so far.
pub(super) async fn turn_away(client: TcpStream) {
    if let Ok(client) = reminded(client) {
        see_off(client).await;
    }
}

/// Closes in order: bytes that nobody has read would make it a reset.
pub(super) async fn see_off(mut client: TcpStream) {
    let farewell = async {
        client.shutdown().await?;
        let mut unread = [0; 4096];
        while client.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(FAREWELL, farewell).await;
}
