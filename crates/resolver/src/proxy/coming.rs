//! What comes back from a target.

use super::{BoxError, multiplexed::Received, single::Single};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// The body of an answer.
#[derive(Debug)]
pub enum Coming {
    Http1(Incoming),
    Http2(Received),
}

// === impl Coming ===

impl Coming {
    /// Whoever has the connection alone works on it.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        single: Option<&mut Single>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match (self, single) {
            (Self::Http1(body), Some(single)) => single.poll_frame(cx, body).map_err(Into::into),
            (Self::Http1(body), None) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            (Self::Http2(body), _) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    pub fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}
