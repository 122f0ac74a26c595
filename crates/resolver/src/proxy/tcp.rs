//! Connections that we do not look into: TLS, databases, anything.

use super::{
    BUFFER, Proxy,
    peek::{left, reminded},
    upstream::dial,
};
use crate::{
    room::{Turned, Visit},
    route::Way,
};
use std::{io, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes},
    net::TcpStream,
    time::timeout,
};

/// For a client to take note that it is turned away.
const FAREWELL: Duration = Duration::from_secs(1);

impl Proxy {
    /// Held until the target takes it, then joined with it, each side closing by itself.
    pub(super) async fn opaque(&self, way: &Way, client: TcpStream) {
        let mut visit = way.room.visit();
        let reached = tokio::select! {
            reached = reach(way, &mut visit) => reached,
            () = left(&client, true) => return,
        };
        let Ok(mut client) = reminded(client) else {
            return;
        };
        let Ok((mut target, _busy)) = reached else {
            return turn_away(client).await;
        };
        let _ = client.set_nodelay(true);
        let copied = copy_bidirectional_with_sizes(&mut client, &mut target, BUFFER, BUFFER).await;
        if let Err(error) = copied {
            tracing::debug!(%error, "Connection ended");
        }
    }
}

async fn reach(way: &Way, visit: &mut Visit) -> Result<(TcpStream, crate::room::Busy), Turned> {
    loop {
        let busy = visit.endpoint(&way.port).await?;
        if let Ok(stream) = dial(&busy, visit.deadline()).await {
            return Ok((stream, busy));
        }
    }
}

/// Closes in order: bytes that nobody has read would make it a reset.
async fn turn_away(mut client: TcpStream) {
    let farewell = async {
        client.shutdown().await?;
        let mut unread = [0; 4096];
        while client.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(FAREWELL, farewell).await;
}
