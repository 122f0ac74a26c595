//! An HTTP/1 connection to a target, which carries one request at a time.

use super::{
    heard::{Heard, Listened},
    upload::Sent,
    wire::Wire,
};
use futures::task::AtomicWaker;
use http::{Request, Response};
use hyper::{
    body::{Body, Bytes, Frame, Incoming},
    client::conn::{TrySendError, http1},
};
use std::{
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};
use tokio::{net::TcpStream, runtime::Handle};
use tokio_util::task::TaskTracker;

/// Whoever has a request on it works on it, too: a task of its own would be woken, and wake, twice for each.
/// While nobody has one, nobody looks at it.
pub struct Single {
    sender: http1::SendRequest<Sent>,
    /// Until it has ended.
    connection: Option<Work>,
    gate: Arc<Gate>,
    /// The gate's.
    waker: Waker,
    heard: Heard,
}

type Work = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// Wakes the task that has the connection, but not for what this task itself does to it: that only means one more
/// round.
#[derive(Default)]
struct Gate {
    task: AtomicWaker,
    state: AtomicU8,
}

const OUTSIDE: u8 = 0;
const INSIDE: u8 = 1;
const AGAIN: u8 = 2;

/// Before others get their turn.
const ROUNDS: usize = 4;

// === impl Single ===

impl Single {
    pub async fn new(stream: TcpStream) -> hyper::Result<Self> {
        let (stream, heard) = Listened::new(stream);
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(super::MAX_HEAD)
            .handshake(Wire::new(stream))
            .await?;
        let gate = Arc::new(Gate::default());
        Ok(Self {
            sender,
            connection: Some(Box::pin(connection.with_upgrades())),
            waker: gate.clone().into(),
            gate,
            heard,
        })
    }

    /// Gives a request back that did not leave.
    pub async fn send(
        &mut self,
        request: Request<Sent>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Sent>>> {
        self.heard.forget();
        self.gate.enter();
        let mut answer = pin!(self.sender.try_send_request(request));
        let (connection, gate, waker) = (&mut self.connection, &self.gate, &self.waker);
        poll_fn(|cx| work(connection, gate, waker, cx, |cx| answer.as_mut().poll(cx))).await
    }

    /// What comes next of the body of the answer.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Incoming,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.gate.enter();
        let mut body = Pin::new(body);
        let at_hand = body.as_mut().poll_frame(&mut quietly());
        if at_hand.is_ready() {
            self.gate.leave();
            return at_hand;
        }
        let (connection, gate, waker) = (&mut self.connection, &self.gate, &self.waker);
        work(connection, gate, waker, cx, |cx| {
            body.as_mut().poll_frame(cx)
        })
    }

    /// Whether an answer has begun to the request that was sent last.
    pub fn has_heard(&self) -> bool {
        self.heard.anything()
    }

    /// Whether it can take a request. One that the target has closed is found out by whoever tries.
    pub fn is_free(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Looks whether the target has closed it.
    pub fn is_open(&mut self) -> bool {
        let idle = |_: &mut Context<'_>| Poll::<()>::Pending;
        let (connection, gate, waker) = (&mut self.connection, &self.gate, &self.waker);
        let _ = work(connection, gate, waker, &mut quietly(), idle);
        self.is_free()
    }

    /// Nobody has a request on it any more.
    pub fn rest(&self) {
        self.gate.task.take();
    }

    /// Does without us what is still to be done on it: it becomes a tunnel, or the request is not at its end yet.
    pub fn finish(self, tasks: &TaskTracker) {
        if let Some(connection) = self.connection
            && let Ok(runtime) = Handle::try_current()
        {
            tasks.spawn_on(async { log(connection.await) }, &runtime);
        }
    }
}

impl fmt::Debug for Single {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Single").finish_non_exhaustive()
    }
}

/// Works on a connection until that has led to what is waited for, or leads to nothing more for now.
fn work<T>(
    connection: &mut Option<Work>,
    gate: &Gate,
    waker: &Waker,
    cx: &mut Context<'_>,
    mut awaited: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    gate.task.register(cx.waker());
    for _ in 0..ROUNDS {
        gate.enter();
        let Some(working) = connection else {
            return awaited(cx);
        };
        if let Poll::Ready(ended) = working.as_mut().poll(&mut Context::from_waker(waker)) {
            log(ended);
            *connection = None;
            return awaited(cx);
        }
        let done = awaited(&mut quietly());
        if gate.leave() || done.is_ready() {
            return done;
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// For what only our own work can lead to.
fn quietly() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "Connection to a target ended");
    }
}

// === impl Gate ===

impl Gate {
    fn enter(&self) {
        self.state.store(INSIDE, Ordering::Release);
    }

    /// Whether nothing happened meanwhile.
    fn leave(&self) -> bool {
        self.state.swap(OUTSIDE, Ordering::AcqRel) == INSIDE
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let inside = |state| (state != OUTSIDE).then_some(AGAIN);
        let state = &self.state;
        if state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, inside)
            .is_err()
        {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{Either, Empty};
    use std::{sync::atomic::AtomicUsize, task::ready};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn connected() -> (Single, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (
            Single::new(stream.unwrap()).await.unwrap(),
            accepted.unwrap().0,
        )
    }

    fn question() -> Request<Sent> {
        let request = Request::get("/").header("host", "web.shop");
        request.body(Either::Right(Empty::new())).unwrap()
    }

    async fn answer(target: &mut TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert!(target.read_buf(&mut head).await.unwrap() > 0);
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nheard";
        target.write_all(answer).await.unwrap();
    }

    #[tokio::test]
    async fn whoever_works_on_it_is_woken_by_the_target_and_not_by_its_own_work() {
        let (mut single, mut target) = connected().await;
        for _ in 0..3 {
            let woken = Arc::new(Counter::default());
            let waker = Waker::from(woken.clone());
            let mut sent = Box::pin(single.send(question()));
            let polled = sent.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            assert_eq!(woken.0.load(Ordering::Relaxed), 0, "it has only asked");
            answer(&mut target).await;
            while woken.0.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            let mut body = sent.await.unwrap().into_body();
            let frame = poll_fn(|cx| single.poll_frame(cx, &mut body)).await;
            assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "heard");
            assert!(single.is_free(), "its answer was read to the end");
            single.rest();
        }
    }

    #[tokio::test]
    async fn one_that_the_target_has_closed_is_found_out_and_gives_the_request_back() {
        let (mut single, mut target) = connected().await;
        let (sent, ()) = tokio::join!(single.send(question()), answer(&mut target));
        let mut body = sent.unwrap().into_body();
        poll_fn(|cx| {
            while !body.is_end_stream() {
                let _ = ready!(single.poll_frame(cx, &mut body));
            }
            Poll::Ready(())
        })
        .await;
        single.rest();
        assert!(single.is_open());
        drop(target);
        while single.is_open() {
            tokio::task::yield_now().await;
        }
        let mut failed = single.send(question()).await.unwrap_err();
        assert!(failed.take_message().is_some(), "nobody has seen it");
    }
}
