//! Connections that we do not look into: TLS, databases, anything.

use super::{
    BUFFER, Proxy,
    answer::Refusal,
    peek::{left, reminded},
};
use crate::{
    room::{Busy, Turned, Visit},
    route::{Speaks, Way},
};
use std::{io, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes},
    net::TcpStream,
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
        let mut visit = way.room.visit();
        let reached = tokio::select! {
            reached = self.reach(way, &mut visit) => reached,
            () = left(&client, true) => return,
        };
        let (mut target, _busy) = match reached {
            Ok(reached) => reached,
            Err(turned) => {
                self.metrics.turned_away(Refusal::from(turned));
                return Box::pin(turn_away(client)).await;
            }
        };
        self.metrics.held(&way.room, visit.waited());
        let Ok(mut client) = reminded(client) else {
            return;
        };
        let _ = client.set_nodelay(true);
        let copied = copy_bidirectional_with_sizes(&mut client, &mut target, BUFFER, BUFFER).await;
        if let Err(error) = copied {
            tracing::debug!(%error, "Connection ended");
        }
    }

    async fn reach(&self, way: &Way, visit: &mut Visit) -> Result<(TcpStream, Busy), Turned> {
        loop {
            let busy = visit.endpoint(&way.port).await?;
            match self.upstreams.dial(&busy, visit.deadline()).await {
                Ok(stream) => return Ok((stream, busy)),
                Err(_) => visit.failed(&busy)?,
            }
        }
    }
}

/// Health checks connect and leave, and so does the operator, before it sends anybody here: that must
/// wake nobody.
async fn only_looks(client: &TcpStream) -> bool {
    let looked = timeout(GLANCE, client.peek(&mut [0])).await;
    matches!(looked, Ok(Ok(0) | Err(_)))
}

/// Closes in order: bytes that nobody has read would make it a reset.
pub(super) async fn turn_away(client: TcpStream) {
    let farewell = async {
        let mut client = reminded(client)?;
        client.shutdown().await?;
        let mut unread = [0; 4096];
        while client.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(FAREWELL, farewell).await;
}
