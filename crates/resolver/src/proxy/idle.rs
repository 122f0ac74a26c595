//! Whether a client's connection has anything to do.

use super::{BoxError, answer::Answer};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::{
    mem,
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

/// The streams of one connection, or the requests of one that carries one at a time.
#[derive(Clone, Debug, Default)]
pub struct Streams(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicUsize,
    ended: AtomicUsize,
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

const LOOKS: u32 = 4;

// === impl Streams ===

impl Streams {
    pub fn begin(&self) -> Stream {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        Stream(self.clone())
    }

    /// Resolves when one of them has ended. A connection that ends before takes a request with it that is on its
    /// way, and not every client sends it again.
    pub async fn answered(&self) {
        self.0.answered.cancelled().await;
    }

    pub fn has_answered(&self) -> bool {
        self.0.answered.is_cancelled()
    }

    /// Resolves when there was no stream for `patience`, or for up to a quarter longer: a look now and then costs
    /// less than a timer for each stream.
    pub async fn idle(&self, patience: Duration) {
        let (mut before, mut looks) = ((0, 0), 0);
        while looks < LOOKS {
            sleep(patience / LOOKS).await;
            let [begun, ended] =
                [&self.0.begun, &self.0.ended].map(|count| count.load(Ordering::Relaxed));
            let same = mem::replace(&mut before, (begun, ended)) == (begun, ended);
            looks = if same && begun == ended { looks + 1 } else { 0 };
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
        let counts = &self.0.0;
        if counts.ended.fetch_add(1, Ordering::Relaxed) == 0 {
            counts.answered.cancel();
        }
    }
}

// === impl Answered ===

impl Body for Answered {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
