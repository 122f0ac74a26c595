//! The way of one connection: what does it speak, where does it wait, where does it go.

pub mod answer;
mod checked;
mod coming;
pub mod framing;
mod headers;
mod heard;
mod http;
mod idle;
mod line;
mod multiplexed;
pub mod peek;
pub mod plain;
mod relay;
mod scratch;
mod sieve;
mod single;
mod tcp;
mod upload;
pub mod upstream;
mod wire;

use self::{
    answer::{Carrier, Refusal},
    checked::Checked,
    http::Unanswered,
    idle::Streams,
    peek::{Spoken, has_preface, peek, unless_left},
    plain::Came,
    sieve::Sieve,
    tcp::turn_away,
    upstream::Upstreams,
    wire::Wire,
};
use crate::{
    metrics::Metrics,
    room::Visit,
    route::{Naming, Speaks, Table, Way},
};
use ::http::{HeaderValue, Request, StatusCode, header::CONNECTION};
use futures::{FutureExt, StreamExt, TryFutureExt, stream::FuturesUnordered};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::{
    error::Error,
    future::pending,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::copy_bidirectional,
    net::TcpStream,
    sync::{Notify, OwnedSemaphorePermit, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What every connection shares.
#[derive(Clone, Debug)]
pub struct Proxy {
    pub settings: Arc<Settings>,
    pub upstreams: Upstreams,
    metrics: Arc<Metrics>,
    table: watch::Receiver<Arc<Table>>,
    tasks: TaskTracker,
    /// Clients are asked to go elsewhere.
    leaving: CancellationToken,
    /// Connections end when what they do is done.
    drain: CancellationToken,
}

/// For a connection whose requests are for several services: one of them is better asked directly.
#[derive(Clone, Debug, Default)]
struct Leave(CancellationToken);

#[derive(Clone, Debug)]
pub struct Settings {
    pub naming: Naming,
    /// Whether answers to requests that waited say so.
    pub mark_held: bool,
    /// For the first bytes of a client, before the server is expected to speak first.
    pub first_word: Duration,
    /// For the head of a request, from its first byte.
    pub head: Duration,
    /// For the next request on a connection that has nothing to do.
    pub idle: Duration,
}

/// The first request of a connection, which waited before it was read.
struct Arrival {
    visit: Visit,
    refusal: Option<Refusal>,
}

type BoxError = Box<dyn Error + Send + Sync>;

const MAX_HEAD: usize = 64 * 1024;
/// Of HTTP/2, on one connection.
const MAX_STREAMS: u32 = 1_024;
/// The same where each may be for another service.
const NAMED_STREAMS: u32 = 128;
const MAX_FRAME: u32 = 16 * 1024;
/// What a client may send of a body before anybody takes it: of one stream, and of all together. Two frames, so
/// that one is on its way while the other is passed on; whoever waits may have as much lie here.
const STREAM_WINDOW: u32 = 2 * MAX_FRAME;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What is taken of a body, either way, before it can be sent.
const SEND_BUFFER: usize = 2 * MAX_FRAME as usize;
/// Streams that were reset before we looked at them; and frames for streams that are no more, in the life of a connection:
/// whoever is refused an upload may have sent some.
const MAX_RESETS: usize = 64;
const MAX_ERRORS: usize = 1_024;
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);

// === impl Proxy ===

impl Proxy {
    pub fn new(
        settings: Settings,
        table: watch::Receiver<Arc<Table>>,
        metrics: Arc<Metrics>,
        tasks: TaskTracker,
        leaving: CancellationToken,
        drain: CancellationToken,
    ) -> Self {
        Self {
            settings: Arc::new(settings),
            upstreams: Upstreams::new(tasks.clone(), metrics.clone()),
            metrics,
            table,
            tasks,
            leaving,
            drain,
        }
    }

    pub fn table(&self) -> Arc<Table> {
        self.table.borrow().clone()
    }

    /// A connection on a port that stands for one port of one service. What comes after the wait is
    /// boxed: whoever waits should not carry the room for it.
    pub async fn routed(
        &self,
        way: Arc<Way>,
        stream: TcpStream,
        client: SocketAddr,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        self.metrics.found(true, Some(&way.room));
        let spoken = match way.speaks {
            Speaks::Opaque => Some(Spoken::Opaque),
            Speaks::Anything => match peek(&stream, self.settings.first_word).await {
                Ok(spoken) => spoken,
                Err(_) => return,
            },
            // Its clients speak first: one who says nothing wants nothing.
            Speaks::Http1 | Speaks::Http2 => match peek(&stream, self.settings.head).await {
                Ok(Some(Spoken::Silence)) | Err(_) => return,
                Ok(spoken) => spoken,
            },
        };
        match spoken {
            None => {}
            Some(Spoken::Opaque | Spoken::Silence) => self.opaque(&way, stream).await,
            Some(Spoken::Http2) => Box::pin(self.http2(Some(way), stream, client)).await,
            Some(Spoken::Http1) => {
                if let Some((stream, first)) = self.hold(&way, stream).await {
                    let drain = self.guest(Some(&way));
                    let came = Came::new(stream, headers::client(client.ip()), drain);
                    let came = Came { first, ..came };
                    Box::pin(self.routed_http1(way, came, permit)).await;
                }
            }
        }
    }

    /// A connection on the proxy port: each request says whose it is.
    pub async fn named(
        &self,
        stream: TcpStream,
        client: SocketAddr,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        match peek(&stream, self.settings.head).await {
            Ok(Some(Spoken::Http1)) => {
                let came = Came::new(stream, headers::client(client.ip()), self.guest(None));
                self.http1(None, came, permit).await;
            }
            Ok(Some(Spoken::Http2)) => self.http2(None, stream, client).await,
            Ok(Some(Spoken::Opaque | Spoken::Silence)) => turn_away(stream).await,
            Ok(None) | Err(_) => {}
        }
    }

    /// Waits before any parser or buffer exists. `None` if the client left meanwhile; a refusal is
    /// for the parser to write.
    async fn hold(&self, way: &Way, stream: TcpStream) -> Option<(TcpStream, Option<Arrival>)> {
        if !way.rules.is_empty() {
            return Some((stream, None));
        }
        let mut visit = way.visit();
        let (found, stream) = unless_left(stream, false, visit.endpoint(&way.port)).await?;
        let refusal = found.err().map(Refusal::from);
        Some((stream, Some(Arrival { visit, refusal })))
    }

    async fn routed_http1(&self, way: Arc<Way>, came: Came, permit: Option<OwnedSemaphorePermit>) {
        let rest = match way.speaks {
            Speaks::Http2 => Some(came),
            _ => self.pass(&way, came).await,
        };
        if let Some(rest) = rest {
            Box::pin(self.http1(Some(way), rest, permit)).await;
        }
    }

    async fn http1(&self, way: Option<Arc<Way>>, came: Came, permit: Option<OwnedSemaphorePermit>) {
        let Came {
            stream,
            client,
            drain,
            requests,
            read,
            first,
        } = came;
        let stream = Checked::new(stream, read, self.settings.head, permit);
        let (first, begun) = (Mutex::new(first), Notify::new());
        let line = stream.line();
        let (handshake, answered) = (AtomicBool::new(false), Notify::new());
        let service = service_fn(|request: Request<Incoming>| {
            begun.notify_one();
            let asks = headers::is_websocket(request.headers());
            handshake.store(asks, Ordering::Relaxed);
            let (arrival, this) = (first.lock().take(), requests.begin());
            let way = way.as_ref();
            let answer = http::answer(self, way, arrival, &client, Some(&line), request);
            // An async block around it would carry it twice.
            answer.map_ok(|mut answer| {
                handshake.store(false, Ordering::Relaxed);
                answered.notify_one();
                if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                    line.open_tunnel();
                } else if self.leaving.is_cancelled() {
                    let close = HeaderValue::from_static("close");
                    answer.headers_mut().insert(CONNECTION, close);
                }
                answer.map(|body| this.until_end_of(body))
            })
        });
        // With 100 fields at most, hyper's own limit: with any other it would take room for them from the heap each time.
        let connection = http1::Builder::new()
            .max_header_size(MAX_HEAD)
            .max_buf_size(MAX_HEAD)
            .serve_connection(Wire::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        // A connection that has read nothing ends at once, and with it the request that lies in the
        // kernel. And what is answered from then on says `close`, with which a 101 is none to many clients.
        let drained = async {
            if !requests.has_answered() {
                begun.notified().await;
            }
            drain.cancelled().await;
            while handshake.load(Ordering::Relaxed) {
                answered.notified().await;
            }
            if line.is_tunnel() {
                pending::<()>().await;
            }
        };
        let idle = requests.idle(self.settings.idle);
        // Each looks when it is woken itself, and not with every request.
        let mut ends = FuturesUnordered::from_iter([drained.left_future(), idle.right_future()]);
        let ended = tokio::select! {
            // A request that has come is read before its connection is found to have been idle for too long.
            biased;
            ended = &mut connection => ended,
            Some(()) = ends.next() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        self.log(ended);
    }

    async fn http2(&self, way: Option<Arc<Way>>, stream: TcpStream, client: SocketAddr) {
        if !has_preface(&stream, self.settings.head).await {
            return turn_away(stream).await;
        }
        let streams = Streams::default();
        // Who waits for one service must not take the window from requests for others.
        let (streams_at_most, window) = match way {
            Some(_) => (MAX_STREAMS, CONNECTION_WINDOW),
            None => (NAMED_STREAMS, NAMED_STREAMS * STREAM_WINDOW),
        };
        let drain = self.guest(way.as_deref());
        let room = way.as_ref().map(|way| way.room.clone());
        let leave = Leave::default();
        let told = leave.clone();
        let proxy = self.clone();
        let begun = streams.clone();
        let client = headers::client(client.ip());
        let service = service_fn(move |mut request: Request<Incoming>| {
            if way.is_none() {
                request.extensions_mut().insert(told.clone());
            }
            let (proxy, way, stream) = (proxy.clone(), way.clone(), begun.begin());
            let client = client.clone();
            // Boxed: it is moved several times before it begins.
            Box::pin(async move {
                let way = way.as_ref();
                let answer = http::answer(&proxy, way, None, &client, None, request).await?;
                Ok::<_, Unanswered>(answer.map(|body| stream.until_end_of(body)))
            })
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(streams_at_most)
            .max_pending_accept_reset_streams(MAX_RESETS)
            .max_local_error_reset_streams(MAX_ERRORS)
            .max_header_list_size(MAX_HEAD as u32)
            .max_frame_size(MAX_FRAME)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(window)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .serve_connection(TokioIo::new(Sieve::of_client(stream)), service);
        let mut connection = pin!(connection);
        let to_the_pods = async {
            match room {
                Some(room) => {
                    streams.answered().await;
                    room.serving().await;
                }
                None => leave.0.cancelled().await,
            }
        };
        let elsewhere = async {
            // Whoever comes now does not know better, and would come again.
            if self.leaving.is_cancelled() {
                pending::<()>().await;
            }
            streams.answered().await;
            self.leaving.cancelled().await;
        };
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = drain.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = elsewhere => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = to_the_pods => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = streams.idle(self.settings.idle) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        self.log(ended);
    }

    /// Cancelled when a connection has to end: that to one service, with its service.
    fn guest(&self, way: Option<&Way>) -> CancellationToken {
        way.map_or_else(|| self.drain.clone(), |way| way.room.guest(&self.drain))
    }

    /// Joins the two sides of a WebSocket.
    fn connect_upgrades(&self, client: OnUpgrade, target: OnUpgrade, carrier: Carrier) {
        self.tasks.spawn(async move {
            let _carrier = carrier;
            if let Ok((client, target)) = tokio::try_join!(client, target) {
                let (mut client, mut target) = (TokioIo::new(client), TokioIo::new(target));
                let _ = copy_bidirectional(&mut client, &mut target).await;
            }
        });
    }

    fn log(&self, ended: hyper::Result<()>) {
        let Err(error) = ended else {
            return;
        };
        // The parser has said so to the client.
        if error.is_parse_too_large() {
            self.metrics.turned_away(Refusal::TooLarge);
        } else if error.is_parse() {
            self.metrics.turned_away(Refusal::Malformed);
        }
        tracing::debug!(%error, "Connection of a client ended");
    }
}
