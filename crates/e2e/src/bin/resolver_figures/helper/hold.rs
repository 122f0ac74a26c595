//! Many who wait at once.

use super::{
    Prepared,
    exchange::{REQUEST, answer},
    say,
};
use crate::clock::Moment;
use anyhow::{Result, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinSet};

/// What became of all of them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) answered: usize,
    pub(crate) lost: usize,
    pub(crate) last: Option<Moment>,
    /// Of one that was lost.
    pub(crate) why: Option<String>,
}

/// A request on each.
pub(super) async fn connections(address: SocketAddr, count: usize) -> Result<()> {
    let mut waiting = JoinSet::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(REQUEST).await?;
        waiting.spawn(async move {
            let mut buffer = Vec::with_capacity(512);
            answer(&mut stream, &mut buffer).await?;
            Ok(Moment::now())
        });
    }
    say(&Prepared)?;
    Outcome::of(waiting).await
}

/// HTTP/2, so many of them on one connection.
pub(super) async fn streams(address: SocketAddr, count: usize, streams: usize) -> Result<()> {
    let mut waiting = JoinSet::new();
    let mut connections = JoinSet::new();
    for _ in 0..count.div_ceil(streams) {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let builder = http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        connections.spawn(connection);
        for _ in 0..streams {
            let mut sender = sender.clone();
            let request = Request::get(format!("http://{address}/"))
                .header("user-agent", "elasti-figures")
                .body(Empty::<Bytes>::new())?;
            waiting.spawn(async move {
                let response = sender.send_request(request).await?;
                ensure!(response.status() == 200, "answered {}", response.status());
                response.into_body().collect().await?;
                Ok(Moment::now())
            });
        }
    }
    say(&Prepared)?;
    Outcome::of(waiting).await
}

// === impl Outcome ===

impl Outcome {
    async fn of(mut waiting: JoinSet<Result<Moment>>) -> Result<()> {
        let mut outcome = Self::default();
        while let Some(ended) = waiting.join_next().await {
            match ended? {
                Ok(moment) => {
                    outcome.answered += 1;
                    outcome.last = outcome.last.max(Some(moment));
                }
                Err(error) => {
                    outcome.lost += 1;
                    outcome.why = Some(format!("{error:#}"));
                }
            }
        }
        say(&outcome)
    }
}
