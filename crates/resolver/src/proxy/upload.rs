//! What clients send behind the heads of their requests.

use super::BoxError;
use h2::{Reason, SendStream};
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// What is sent to a target: the client's body, or none.
pub type Sent = Either<Upload, Empty<Bytes>>;

/// A client's body that ends when the client says so, not when the client is gone.
#[derive(Debug)]
pub struct Upload {
    body: Incoming,
    /// Hyper takes an HTTP/2 stream that is reset without an error for one that has come to its end.
    multiplexed: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the client gave up before the end")]
struct GivenUp;

// === impl Upload ===

impl Upload {
    pub fn new(body: Incoming, multiplexed: bool) -> Self {
        Self { body, multiplexed }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() && self.multiplexed && !self.body.is_end_stream() {
            return Poll::Ready(Some(Err(GivenUp.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why a body did not come to its end.
enum Ended {
    Client(BoxError),
    Target,
}

/// Sends a body on a stream of HTTP/2, as fast as the target takes it and for as long as it wants more. Fails where the
/// client does.
pub async fn pour(mut body: Sent, stream: &mut SendStream<Bytes>) -> Result<(), BoxError> {
    let Err(ended) = send(&mut body, stream).await else {
        return Ok(());
    };
    stream.send_reset(Reason::CANCEL);
    match ended {
        Ended::Client(error) => Err(error),
        Ended::Target => Ok(()),
    }
}

async fn send(body: &mut Sent, stream: &mut SendStream<Bytes>) -> Result<(), Ended> {
    loop {
        let unwanted = poll_fn(|cx| stream.poll_reset(cx));
        let frame = tokio::select! {
            biased;
            _ = unwanted => return Ok(()),
            frame = body.frame() => frame,
        };
        let Some(frame) = frame else {
            return over(stream.send_data(Bytes::new(), true));
        };
        match frame.map_err(Ended::Client)?.into_data() {
            Ok(data) => {
                let ends = body.is_end_stream();
                // What says nothing would be held against all who share the connection.
                if data.is_empty() && !ends {
                    continue;
                }
                if !data.is_empty() {
                    room(stream).await?;
                }
                over(stream.send_data(data, ends))?;
                if ends {
                    return Ok(());
                }
            }
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    return over(stream.send_trailers(trailers));
                }
            }
        }
    }
}

/// Waits until the target takes something. What it does not take yet of one piece lies here.
async fn room(stream: &mut SendStream<Bytes>) -> Result<(), Ended> {
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Err(Ended::Target),
        }
    }
    Ok(())
}

/// What cannot be sent goes to a stream, or a connection, that is no more.
fn over(sent: Result<(), h2::Error>) -> Result<(), Ended> {
    sent.map_err(|_| Ended::Target)
}
