//! Whether an HTTP/2 connection has anything to do.

use super::answer::Answer;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The streams of one connection.
#[derive(Clone, Debug, Default)]
pub struct Streams(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    open: AtomicUsize,
    ever: AtomicUsize,
    answered: CancellationToken,
}

/// One of them, from its request to the end of its answer.
#[derive(Debug)]
pub struct Stream(Streams);

/// An answer with its stream.
pub struct Answered {
    body: Answer,
    _stream: Stream,
}

// === impl Streams ===

impl Streams {
    pub fn begin(&self) -> Stream {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.ever.fetch_add(1, Ordering::Relaxed);
        Stream(self.clone())
    }

    /// Resolves when one of them has ended. A connection that ends before takes a request with it that is on its
    /// way, and not every client sends it again.
    pub async fn answered(&self) {
        self.0.answered.cancelled().await;
    }

    /// Resolves when there was no stream for `patience`, or up to twice as long: a look now and then costs
    /// less than a timer for each stream.
    pub async fn idle(&self, patience: Duration) {
        let mut before = 0;
        loop {
            sleep(patience).await;
            let ever = self.0.ever.load(Ordering::Relaxed);
            let none = self.0.open.load(Ordering::Relaxed) == 0;
            if none && std::mem::replace(&mut before, ever) == ever {
                return;
            }
        }
    }
}

// === impl Stream ===

impl Stream {
    pub fn until_end_of(self, body: Answer) -> Answered {
        Answered {
            body,
            _stream: self,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.0.answered.cancel();
    }
}

// === impl Answered ===

impl Body for Answered {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
