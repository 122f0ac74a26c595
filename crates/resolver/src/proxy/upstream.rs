//! Connections to targets: new ones, and those that are kept for the next request.

use super::{
    BoxError,
    coming::Coming,
    multiplexed::{Multiplexed, Share},
    single::Single,
    upload::Sent,
};
use crate::{
    alive::{give_up_after, watch_over},
    metrics::{Dialled, Metrics},
    room::{Busy, Lease},
};
use h2::Reason;
use http::{Request, Response};
use hyper::client::conn::TrySendError;
use nix::errno::Errno;
use parking_lot::Mutex;
use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::TcpStream,
    sync::Mutex as AsyncMutex,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::TaskTracker;

#[derive(Clone, Debug)]
pub struct Upstreams(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    kept: Mutex<BTreeMap<SocketAddr, Kept>>,
    tasks: TaskTracker,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The last used last, as below.
    plain: Vec<(TcpStream, Instant)>,
    http1: Vec<(Single, Instant)>,
    /// As few as can carry all requests; whoever dials one makes the others wait for it.
    http2: Arc<AsyncMutex<Vec<Multiplexed>>>,
}

#[derive(Debug)]
pub enum Connection {
    Http1(Single),
    Http2(Share),
}

/// A request that was not answered.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Fallen {
    pub error: BoxError,
    pub how: How,
}

#[derive(Debug)]
pub enum How {
    /// It did not leave. It is given back if it is not the sender's to copy.
    Unsent(Option<Box<Request<Sent>>>),
    /// The target did nothing with it, whatever it was.
    Untouched,
    /// The connection died before any of an answer came.
    Died,
    /// The client's body could not be read to its end.
    GivenUp,
    Broken,
}

/// One attempt to dial; the next ready endpoint may be quicker.
const DIAL: Duration = Duration::from_secs(2);
/// How long a connection without a request is kept.
const KEEP: Duration = Duration::from_secs(10);
/// How many are kept for one address.
const MOST_KEPT: usize = 256;
/// After so long a silence a target is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(15);
/// Before files, ports or memory are asked for again.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// This machine, or this process, has no more of something: no fault of the target.
fn is_ours(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    let ours = [
        Errno::EMFILE,
        Errno::ENFILE,
        Errno::EADDRNOTAVAIL,
        Errno::ENOBUFS,
        Errno::ENOMEM,
    ];
    errno.is_some_and(|errno| ours.contains(&errno))
}

// === impl Upstreams ===

impl Upstreams {
    pub fn new(tasks: TaskTracker, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared {
            kept: Mutex::default(),
            tasks,
            metrics,
        }))
    }

    /// Dials until the deadline, or for as long as one attempt may take.
    pub async fn dial(&self, endpoint: &Busy, deadline: Instant) -> io::Result<TcpStream> {
        let stream = self.connect(endpoint, deadline).await?;
        endpoint.praise();
        Ok(stream)
    }

    async fn connect(&self, endpoint: &Busy, deadline: Instant) -> io::Result<TcpStream> {
        let begun = Instant::now();
        let until = deadline.min(begun + DIAL);
        let dialled = match timeout_at(until, TcpStream::connect(endpoint.address())).await {
            Ok(Ok(stream)) => {
                watch_over(&stream, SILENCE);
                (Dialled::Reached, Ok(stream))
            }
            Ok(Err(error)) if is_ours(&error) => {
                tracing::warn!(%error, "Could not dial, for lack of something here");
                (Dialled::Exhausted, Err(error))
            }
            Ok(Err(error)) => {
                endpoint.shun();
                (Dialled::Refused, Err(error))
            }
            Err(_) => {
                if until < deadline {
                    endpoint.shun();
                }
                (Dialled::Late, Err(io::ErrorKind::TimedOut.into()))
            }
        };
        self.0.metrics.dialled(dialled.0, begun.elapsed());
        if matches!(dialled.0, Dialled::Exhausted) {
            self.let_go();
            sleep(EXHAUSTED).await;
        }
        dialled.1
    }

    /// What is only kept for later is given back at once.
    fn let_go(&self) {
        for kept in self.0.kept.lock().values_mut() {
            kept.plain.clear();
            kept.http1.clear();
        }
    }

    /// Lets go of all that is kept: what carries a request ends with it.
    pub fn close(&self) {
        self.0.kept.lock().clear();
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
        // Boxed, as the other below: whoever waits should not carry the room for it.
        Box::pin(self.new_http1(endpoint, deadline)).await
    }

    async fn new_http1(&self, endpoint: &Busy, deadline: Instant) -> io::Result<Connection> {
        let stream = self.dial(endpoint, deadline).await?;
        let single = Single::new(stream).await.map_err(io::Error::other)?;
        Ok(Connection::Http1(single))
    }

    pub async fn http2(&self, endpoint: &Busy, deadline: Instant) -> io::Result<Connection> {
        let slot = {
            let mut kept = self.0.kept.lock();
            kept.entry(endpoint.address()).or_default().http2.clone()
        };
        if let Ok(mut open) = slot.try_lock()
            && let Some(lent) = lend(&mut open)
        {
            return Ok(lent);
        }
        // Boxed, as the other above.
        Box::pin(self.wait_for_http2(endpoint, &slot, deadline)).await
    }

    async fn wait_for_http2(
        &self,
        endpoint: &Busy,
        slot: &AsyncMutex<Vec<Multiplexed>>,
        deadline: Instant,
    ) -> io::Result<Connection> {
        let mut open = timeout_at(deadline, slot.lock()).await?;
        open.retain_mut(|connection| !connection.is_closed());
        if let Some(lent) = lend(&mut open) {
            return Ok(lent);
        }
        // Whoever had the lock before may have tried in vain.
        if endpoint.is_shunned() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let stream = self.connect(endpoint, deadline).await?;
        give_up_after(&stream, SILENCE);
        let until = deadline.min(Instant::now() + DIAL);
        let begun = Instant::now();
        let greeted = timeout_at(until, Multiplexed::new(stream, &self.0.tasks)).await;
        let connection = match greeted {
            // It speaks something else, and will.
            Ok(Err(error)) if error.is_library() => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            Ok(greeted) => greeted.map_err(io::Error::other),
            // One that has enough to do with its other connections is not to be avoided, and a request that has no time left
            // says nothing of it.
            Err(_) if until == deadline || !open.is_empty() => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(late) => Err(late.into()),
        };
        open.push(connection.inspect_err(|error| {
            tracing::debug!(%error, "A target takes a connection, and no request");
            self.0.metrics.dialled(Dialled::Late, begun.elapsed());
            endpoint.shun();
        })?);
        endpoint.praise();
        lend(&mut open).ok_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    fn take(&self, address: SocketAddr) -> Option<Single> {
        let mut kept = self.0.kept.lock();
        let (single, _) = kept.get_mut(&address)?.http1.pop()?;
        Some(single)
    }

    /// Keeps a connection for the next request, if it is done with the last.
    pub fn give_back(&self, address: SocketAddr, single: Single) {
        if !single.is_free() {
            return single.finish(&self.0.tasks);
        }
        single.rest();
        let now = Instant::now();
        let mut kept = self.0.kept.lock();
        let idle = &mut kept.entry(address).or_default().http1;
        if idle.len() < MOST_KEPT {
            idle.push((single, now));
        }
    }

    /// For requests without a body, of which a target that is there takes all at once.
    pub async fn dial_plain(&self, endpoint: &Busy, deadline: Instant) -> io::Result<TcpStream> {
        let stream = self.dial(endpoint, deadline).await?;
        give_up_after(&stream, SILENCE);
        Ok(stream)
    }

    /// One that nothing but bytes went through.
    pub fn take_plain(&self, address: SocketAddr) -> Option<TcpStream> {
        let mut kept = self.0.kept.lock();
        let idle = &mut kept.get_mut(&address)?.plain;
        loop {
            let (stream, _) = idle.pop()?;
            if is_silent(&stream) {
                return Some(stream);
            }
        }
    }

    pub fn give_back_plain(&self, address: SocketAddr, stream: TcpStream) {
        let now = Instant::now();
        let mut kept = self.0.kept.lock();
        let idle = &mut kept.entry(address).or_default().plain;
        if idle.len() < MOST_KEPT {
            idle.push((stream, now));
        }
    }

    /// Lets a connection go on without us: it becomes a tunnel, or still takes a body.
    pub fn let_go_of(&self, single: Single) {
        single.finish(&self.0.tasks);
    }

    /// Lets go of what nobody has used for a while. Works until it is dropped.
    pub async fn tidy(&self) {
        loop {
            sleep(KEEP / 2).await;
            let now = Instant::now();
            let is_fresh = |since: &Instant| now.duration_since(*since) < KEEP;
            self.0.kept.lock().retain(|_, kept| {
                kept.plain
                    .retain(|(stream, since)| is_fresh(since) && is_silent(stream));
                kept.http1
                    .retain_mut(|(single, since)| is_fresh(since) && single.is_open());
                let in_use = kept.http2.try_lock().map_or(true, |mut open| {
                    open.retain_mut(|connection| {
                        let wanted = connection.is_in_use() || is_fresh(&connection.used());
                        wanted && !connection.is_closed()
                    });
                    !open.is_empty()
                });
                !kept.plain.is_empty() || !kept.http1.is_empty() || in_use
            });
        }
    }
}

/// Whoever has not been asked has nothing to say, and nobody who is gone says nothing.
pub(super) fn is_silent(stream: &TcpStream) -> bool {
    let said = stream.try_read(&mut [0]);
    said.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// The first that can carry one more.
fn lend(open: &mut [Multiplexed]) -> Option<Connection> {
    let lent = open.iter_mut().find_map(Multiplexed::lend)?;
    Some(Connection::Http2(lent))
}

// === impl Connection ===

impl Connection {
    /// What shows that it is in use, until it is dropped.
    pub fn lease(&self) -> Option<Lease> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(share) => Some(share.lease()),
        }
    }

    /// That which carries this alone.
    pub fn single(self) -> Option<Single> {
        match self {
            Self::Http1(single) => Some(single),
            Self::Http2(_) => None,
        }
    }

    pub async fn send(&mut self, request: Request<Sent>) -> Result<Response<Coming>, Fallen> {
        match self {
            Self::Http1(single) => match single.send(request).await {
                Ok(answer) => Ok(answer.map(Coming::Http1)),
                Err(failed) => Err(Fallen::http1(failed, single.has_heard())),
            },
            Self::Http2(share) => Ok(share.send(request).await?.map(Coming::Http2)),
        }
    }
}

// === impl Fallen ===

impl Fallen {
    pub fn unsent(request: Option<Request<Sent>>, error: h2::Error) -> Self {
        Self {
            error: error.into(),
            how: How::Unsent(request.map(Box::new)),
        }
    }

    fn http1(mut failed: TrySendError<Request<Sent>>, heard: bool) -> Self {
        let unsent = failed.take_message();
        let error = failed.into_error();
        let how = match unsent {
            Some(request) => How::Unsent(Some(Box::new(request))),
            None if error.is_user() => How::GivenUp,
            None if heard => How::Broken,
            None => How::Died,
        };
        Self {
            how,
            error: error.into(),
        }
    }

    pub fn given_up(error: BoxError) -> Self {
        Self {
            error,
            how: How::GivenUp,
        }
    }
}

impl From<h2::Error> for Fallen {
    /// A target says so itself by a GOAWAY that names an earlier request as its last, or in so many words.
    fn from(error: h2::Error) -> Self {
        let refused = error.reason() == Some(Reason::REFUSED_STREAM);
        let how = if error.is_remote() && (error.is_go_away() || refused) {
            How::Untouched
        } else if error.is_io() || error.is_go_away() {
            How::Died
        } else {
            How::Broken
        };
        Self {
            how,
            error: error.into(),
        }
    }
}
