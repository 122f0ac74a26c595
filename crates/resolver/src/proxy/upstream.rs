//! Connections to targets: new ones, and those that are kept for the next request.

use super::{sieve::Sieve, single::Single};
use crate::{
    alive::watch_over,
    metrics::{Dialled, Metrics},
    room::{Busy, Lease},
};
use http::{Request, Response};
use http_body_util::{Either, Empty};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::{TrySendError, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use nix::errno::Errno;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap, future::poll_fn, io, net::SocketAddr, pin::Pin, sync::Arc,
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::{Mutex as AsyncMutex, watch},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::TaskTracker;

/// What is sent to a target: the client's body, or that of a request which is sent again.
pub type Sent = Either<Incoming, Empty<Bytes>>;

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
struct Multiplexed {
    sender: http2::SendRequest<Sent>,
    lease: Lease,
    /// How many streams the target allows; none before it has said so.
    most: watch::Receiver<usize>,
    used: Instant,
}

#[derive(Debug)]
pub enum Connection {
    Http1(Single),
    Http2(http2::SendRequest<Sent>, Lease),
}

/// One attempt to dial; the next ready endpoint may be quicker.
const DIAL: Duration = Duration::from_secs(2);
/// How long a connection without a request is kept.
const KEEP: Duration = Duration::from_secs(10);
/// How many are kept for one address.
const MOST_KEPT: usize = 256;
/// Streams of one HTTP/2 connection, if the target allows so many. A slow reader takes room away from the
/// others on its connection.
const MOST_STREAMS: usize = 256;
/// What a target may send of a body before its client takes it: of one stream, and of all together.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = MOST_STREAMS as u32 * STREAM_WINDOW;
/// A target that has died without a word is noticed.
const PING: Duration = Duration::from_secs(10);
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
        let begun = Instant::now();
        let until = deadline.min(begun + DIAL);
        let dialled = match timeout_at(until, TcpStream::connect(endpoint.address())).await {
            Ok(Ok(stream)) => {
                endpoint.praise();
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
        open.retain(|connection| !connection.sender.is_closed());
        // Whoever dialled the last has sent its request by now, or soon will.
        if let Some(last) = open.last_mut() {
            let said = last.most.wait_for(|most| *most > 0);
            let _ = timeout_at(deadline.min(Instant::now() + DIAL), said).await;
        }
        if let Some(lent) = lend(&mut open) {
            return Ok(lent);
        }
        // Whoever had the lock before may have tried in vain.
        if endpoint.is_shunned() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let connection = self.new_http2(endpoint, deadline).await?;
        let lent = connection.lend();
        open.push(connection);
        Ok(lent)
    }

    async fn new_http2(&self, endpoint: &Busy, deadline: Instant) -> io::Result<Multiplexed> {
        let stream = self.dial(endpoint, deadline).await?;
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_max_send_streams(0)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(super::SEND_BUFFER)
            .max_header_list_size(super::MAX_HEAD as u32)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .handshake(TokioIo::new(Sieve::of_target(stream)))
            .await;
        let (sender, mut connection) = handshake.map_err(io::Error::other)?;
        let (allowed, most) = watch::channel(0);
        let carry = poll_fn(move |cx| {
            let ended = Pin::new(&mut connection).poll(cx);
            let now = connection.current_max_send_streams();
            allowed.send_if_modified(|known| std::mem::replace(known, now) != now);
            ended
        });
        self.0.tasks.spawn(async move {
            if let Err(error) = carry.await {
                tracing::debug!(%error, "Connection to a target ended");
            }
        });
        Ok(Multiplexed {
            sender,
            lease: Lease::default(),
            most,
            used: Instant::now(),
        })
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

    /// One that nothing but bytes went through.
    pub fn take_plain(&self, address: SocketAddr) -> Option<TcpStream> {
        let mut kept = self.0.kept.lock();
        let idle = &mut kept.get_mut(&address)?.plain;
        loop {
            let (stream, _) = idle.pop()?;
            if is_open(&stream) {
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
                    .retain(|(stream, since)| is_fresh(since) && is_open(stream));
                kept.http1
                    .retain_mut(|(single, since)| is_fresh(since) && single.is_open());
                let in_use = kept.http2.try_lock().map_or(true, |mut open| {
                    open.retain(|connection| connection.is_worth_keeping(now));
                    !open.is_empty()
                });
                !kept.plain.is_empty() || !kept.http1.is_empty() || in_use
            });
        }
    }
}

/// A target that has not been asked has nothing to say.
fn is_open(stream: &TcpStream) -> bool {
    let said = stream.try_read(&mut [0]);
    said.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// The first that can carry one more.
fn lend(open: &mut [Multiplexed]) -> Option<Connection> {
    let connection = open.iter_mut().find(|connection| connection.has_room())?;
    connection.used = Instant::now();
    Some(connection.lend())
}

// === impl Multiplexed ===

impl Multiplexed {
    fn has_room(&self) -> bool {
        let most = *self.most.borrow();
        self.lease.others() < most.min(MOST_STREAMS) && !self.sender.is_closed()
    }

    fn lend(&self) -> Connection {
        Connection::Http2(self.sender.clone(), self.lease.clone())
    }

    fn is_worth_keeping(&self, now: Instant) -> bool {
        let in_use = self.lease.others() > 0 || now.duration_since(self.used) < KEEP;
        in_use && !self.sender.is_closed()
    }
}

// === impl Connection ===

impl Connection {
    /// What shows that it is in use, until it is dropped.
    pub fn lease(&self) -> Option<Lease> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(_, lease) => Some(lease.clone()),
        }
    }

    /// That which carries this alone.
    pub fn single(self) -> Option<Single> {
        match self {
            Self::Http1(single) => Some(single),
            Self::Http2(..) => None,
        }
    }

    /// Whether an answer has begun to the request that was sent last. Of HTTP/2 only whole heads are told of.
    pub fn has_heard(&self) -> bool {
        match self {
            Self::Http1(single) => single.has_heard(),
            Self::Http2(..) => false,
        }
    }

    /// Gives a request back that did not leave.
    pub async fn send(
        &mut self,
        request: Request<Sent>,
    ) -> Result<Response<Incoming>, Box<TrySendError<Request<Sent>>>> {
        match self {
            Self::Http1(single) => single.send(request).await.map_err(Box::new),
            Self::Http2(sender, _) => sender.try_send_request(request).await.map_err(Box::new),
        }
    }
}
