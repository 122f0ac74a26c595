//! An HTTP/2 connection to a target, which carries many requests at a time.

use super::{
    MAX_HEAD, SEND_BUFFER,
    sieve::Sieve,
    upload::{Sent, pour},
    upstream::Fallen,
};
use crate::room::Lease;
use h2::{
    Reason, RecvStream,
    client::{Builder, SendRequest},
};
use http::{Request, Response, header::CONTENT_LENGTH};
use http_body_util::Either;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::{
    future::poll_fn,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};
use tokio::{net::TcpStream, sync::watch, time::Instant};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

#[derive(Debug)]
pub struct Multiplexed {
    share: Share,
    used: Instant,
}

/// What one request has of it.
#[derive(Clone, Debug)]
pub struct Share {
    sender: SendRequest<Bytes>,
    lease: Lease,
    common: Arc<Common>,
}

#[derive(Debug)]
struct Common {
    /// How many streams the target allows.
    most: watch::Receiver<usize>,
    tasks: TaskTracker,
}

/// The body of an answer.
#[derive(Debug)]
pub struct Received {
    stream: RecvStream,
    has_data: bool,
    /// What is missing of the length that was said.
    missing: Option<u64>,
    /// Whoever leaves before the end takes back what is still uploaded.
    upload: Option<DropGuard>,
}

/// Streams of one connection, if the target allows so many. A slow reader takes room away from the
/// others on its connection.
const MOST_STREAMS: usize = 256;
/// What a target may send of a body before its client takes it: of one stream, and of all together.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = MOST_STREAMS as u32 * STREAM_WINDOW;

// === impl Multiplexed ===

impl Multiplexed {
    /// To a target that has said how many streams it allows, and allows any: one that takes connections may be stuck, or
    /// not speak HTTP/2. It is pinged by nobody: servers of gRPC end connections on which that happens more than every five
    /// minutes. Whether the other side is there is for kernels to find out.
    pub async fn new(stream: TcpStream, tasks: &TaskTracker) -> Result<Self, h2::Error> {
        let handshake = Builder::new()
            .enable_push(false)
            .initial_max_send_streams(0)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(MAX_HEAD as u32)
            .max_concurrent_reset_streams(MOST_STREAMS)
            .max_local_error_reset_streams(None)
            .handshake(Sieve::of_target(stream));
        let (sender, mut connection) = handshake.await?;
        poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(ended) => Poll::Ready(ended.and(Err(Reason::NO_ERROR.into()))),
            Poll::Pending if connection.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let (allowed, most) = watch::channel(connection.max_concurrent_send_streams());
        let carry = poll_fn(move |cx| {
            let ended = Pin::new(&mut connection).poll(cx);
            let now = connection.max_concurrent_send_streams();
            allowed.send_if_modified(|known| mem::replace(known, now) != now);
            ended
        });
        tasks.spawn(async move {
            if let Err(error) = carry.await {
                tracing::debug!(%error, "Connection to a target ended");
            }
        });
        let tasks = tasks.clone();
        let share = Share {
            sender,
            lease: Lease::default(),
            common: Arc::new(Common { most, tasks }),
        };
        let used = Instant::now();
        Ok(Self { share, used })
    }

    /// If it can carry one more.
    pub fn lend(&mut self) -> Option<Share> {
        let most = *self.share.common.most.borrow();
        if self.share.lease.others() >= most.min(MOST_STREAMS) || self.is_closed() {
            return None;
        }
        self.used = Instant::now();
        Some(self.share.clone())
    }

    /// To new requests.
    pub fn is_closed(&mut self) -> bool {
        let mut quietly = Context::from_waker(Waker::noop());
        let ready = self.share.sender.poll_ready(&mut quietly);
        matches!(ready, Poll::Ready(Err(_)))
    }

    pub fn is_in_use(&self) -> bool {
        self.share.lease.others() > 0
    }

    pub fn used(&self) -> Instant {
        self.used
    }
}

// === impl Share ===

impl Share {
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    pub async fn send(&mut self, request: Request<Sent>) -> Result<Response<Received>, Fallen> {
        let (head, body) = request.into_parts();
        if let Either::Right(_) = body {
            let asked = self
                .sender
                .send_request(Request::from_parts(head, ()), true);
            let (answer, _) = asked.map_err(|error| turned_back(None, error))?;
            return Ok(Received::of(answer.await?, None));
        }
        let copy = head.clone();
        let give_back = |body| Some(Request::from_parts(copy, body));
        let asked = self
            .sender
            .send_request(Request::from_parts(head, ()), false);
        let (mut answer, mut stream) = match asked {
            Ok(asked) => asked,
            Err(error) => return Err(turned_back(give_back(body), error)),
        };
        let left = CancellationToken::new();
        let (leaves, lease) = (left.clone(), self.lease.clone());
        let mut upload = Box::pin(async move {
            let _lease = lease;
            let pouring = leaves.run_until_cancelled(pour(body, &mut stream));
            let Some(poured) = pouring.await else {
                stream.send_reset(Reason::CANCEL);
                return Ok(());
            };
            poured
        });
        let guard = left.drop_guard();
        let answer = tokio::select! {
            answer = &mut answer => {
                self.common.tasks.spawn(upload);
                answer?
            }
            poured = &mut upload => {
                poured.map_err(Fallen::given_up)?;
                answer.await?
            }
        };
        Ok(Received::of(answer, Some(guard)))
    }
}

/// It did not leave, for what is wrong with the connection or with itself.
fn turned_back(request: Option<Request<Sent>>, error: h2::Error) -> Fallen {
    if error.is_io() || error.is_go_away() {
        Fallen::unsent(request, error)
    } else {
        error.into()
    }
}

// === impl Received ===

impl Received {
    fn of(answer: Response<RecvStream>, upload: Option<DropGuard>) -> Response<Self> {
        let length = answer.headers().get(CONTENT_LENGTH);
        let missing = length.and_then(|length| length.to_str().ok()?.parse().ok());
        answer.map(|stream| Self {
            stream,
            has_data: true,
            missing,
            upload,
        })
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let data = ready!(self.stream.poll_data(cx));
        if let Some(Ok(data)) = &data {
            self.stream.flow_control().release_capacity(data.len())?;
            let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
            self.missing = self.missing.map(|missing| missing.saturating_sub(length));
        }
        Poll::Ready(data)
    }
}

/// To break off without an error is one.
fn broken_off(error: h2::Error) -> h2::Error {
    match error.reason() {
        Some(Reason::NO_ERROR) => Reason::INTERNAL_ERROR.into(),
        _ => error,
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if self.has_data {
            match ready!(self.poll_data(cx)) {
                Some(Ok(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                // It is whole, though its connection ended before an upload did.
                Some(Err(_)) if self.missing == Some(0) => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(broken_off(error)))),
                None => self.has_data = false,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).map_err(broken_off)?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.is_end_stream() {
            true => SizeHint::with_exact(0),
            false => SizeHint::default(),
        }
    }
}

impl Drop for Received {
    /// An answer may be whole before the upload is.
    fn drop(&mut self) {
        let whole = self.stream.is_end_stream() || self.missing == Some(0);
        if let Some(upload) = self.upload.take_if(|_| whole) {
            upload.disarm();
        }
    }
}
