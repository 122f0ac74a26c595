//! Connections to targets: new ones, and those that are kept for the next request.

use crate::room::Busy;
use http::{Request, Response};
use http_body_util::{Either, Empty};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::{TrySendError, http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use std::{collections::HashMap, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::TcpStream,
    sync::Mutex as AsyncMutex,
    time::{Instant, timeout_at},
};
use tokio_util::task::TaskTracker;

/// What is sent to a target: the client's body, or that of a request which is sent again.
pub type Sent = Either<Incoming, Empty<Bytes>>;

#[derive(Clone, Debug)]
pub struct Upstreams(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    kept: Mutex<HashMap<SocketAddr, Kept>>,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct Kept {
    /// The last used first.
    http1: Vec<(http1::SendRequest<Sent>, Instant)>,
    /// One for all requests; whoever dials it first makes the others wait for it.
    http2: Arc<AsyncMutex<Option<http2::SendRequest<Sent>>>>,
}

#[derive(Debug)]
pub enum Connection {
    Http1(http1::SendRequest<Sent>),
    Http2(http2::SendRequest<Sent>),
}

/// One attempt to dial; the next ready endpoint may be quicker.
const DIAL: Duration = Duration::from_secs(2);
/// How long a connection without a request is kept.
const KEEP: Duration = Duration::from_secs(10);
/// How many are kept for one address.
const MOST_KEPT: usize = 256;
/// How many are looked at for one that is free.
const LOOKS: usize = 4;

/// Dials until the deadline, or for as long as one attempt may take.
pub async fn dial(endpoint: &Busy, deadline: Instant) -> io::Result<TcpStream> {
    let until = deadline.min(Instant::now() + DIAL);
    let dialled = timeout_at(until, TcpStream::connect(endpoint.address())).await;
    let dialled = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    match &dialled {
        Ok(stream) => {
            endpoint.praise();
            stream.set_nodelay(true)?;
        }
        Err(_) => endpoint.shun(),
    }
    dialled
}

// === impl Upstreams ===

impl Upstreams {
    pub fn new(tasks: TaskTracker) -> Self {
        Self(Arc::new(Shared {
            kept: Mutex::default(),
            tasks,
        }))
    }

    pub async fn http1(
        &self,
        endpoint: &Busy,
        reuse: bool,
        deadline: Instant,
    ) -> io::Result<Connection> {
        if reuse && let Some(kept) = self.take(endpoint.address()) {
            return Ok(Connection::Http1(kept));
        }
        let stream = dial(endpoint, deadline).await?;
        let handshake = http1::Builder::new().handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        self.0.tasks.spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "Connection to a target ended");
            }
        });
        Ok(Connection::Http1(sender))
    }

    pub async fn http2(&self, endpoint: &Busy, deadline: Instant) -> io::Result<Connection> {
        let slot = {
            let mut kept = self.0.kept.lock();
            kept.entry(endpoint.address()).or_default().http2.clone()
        };
        let mut slot = slot.lock().await;
        if let Some(sender) = slot.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(Connection::Http2(sender.clone()));
        }
        let stream = dial(endpoint, deadline).await?;
        let handshake = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(1 << 24)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        self.0.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "Connection to a target ended");
            }
        });
        *slot = Some(sender.clone());
        Ok(Connection::Http2(sender))
    }

    fn take(&self, address: SocketAddr) -> Option<http1::SendRequest<Sent>> {
        let mut kept = self.0.kept.lock();
        let idle = &mut kept.get_mut(&address)?.http1;
        idle.retain(|(sender, _)| !sender.is_closed());
        let free = idle
            .iter()
            .rev()
            .take(LOOKS)
            .position(|(sender, _)| sender.is_ready())?;
        let at = idle.len() - 1 - free;
        Some(idle.remove(at).0)
    }

    /// Keeps a connection for the next request; it is free once its answer was read to the end.
    pub fn keep(&self, address: SocketAddr, connection: Connection) {
        let Connection::Http1(sender) = connection else {
            return;
        };
        let now = Instant::now();
        let mut kept = self.0.kept.lock();
        let idle = &mut kept.entry(address).or_default().http1;
        if idle.len() < MOST_KEPT {
            idle.push((sender, now));
        }
    }

    /// Lets go of what nobody has used for a while. Works until it is dropped.
    pub async fn tidy(&self) {
        loop {
            tokio::time::sleep(KEEP / 2).await;
            let now = Instant::now();
            self.0.kept.lock().retain(|_, kept| {
                kept.http1.retain(|(sender, since)| {
                    !sender.is_closed() && now.duration_since(*since) < KEEP
                });
                let is_open = |slot: &Option<http2::SendRequest<Sent>>| {
                    slot.as_ref().is_some_and(|sender| !sender.is_closed())
                };
                let in_use = kept.http2.try_lock().map_or(true, |slot| is_open(&slot));
                !kept.http1.is_empty() || in_use
            });
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Gives a request back that did not leave.
    pub async fn send(
        &mut self,
        request: Request<Sent>,
    ) -> Result<Response<Incoming>, Box<TrySendError<Request<Sent>>>> {
        match self {
            Self::Http1(sender) => sender.try_send_request(request).await.map_err(Box::new),
            Self::Http2(sender) => sender.try_send_request(request).await.map_err(Box::new),
        }
    }
}
