//! Answers of our own: refusals, and those given in a sleeping target's name.

use super::{BoxError, coming::Coming, single::Single, upstream::Upstreams};
use crate::room::Busy;
use elasti_api::probe::ProbeAnswer;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use serde_json::json;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

/// Why a request gets no answer of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too many wait already.
    Full,
    /// Nothing became ready in time.
    Late,
    /// The ElastiService that spoke for the service is no more.
    Gone,
    /// The target broke the connection, and the request cannot be sent twice.
    Broken,
    /// No ElastiService speaks for what was asked.
    Unknown,
    /// What was asked cannot be forwarded.
    Unsupported,
    /// What was sent is not HTTP, or can be read in more than one way.
    Malformed,
    /// The head is longer than any should be.
    TooLarge,
}

/// The body of any answer.
pub enum Answer {
    /// The target's, which has one thing to do until its end.
    Target {
        body: Coming,
        carrier: Option<Carrier>,
    },
    Own(Full<Bytes>),
}

/// What brings an answer, until its end.
pub struct Carrier {
    pub busy: Busy,
    /// Of its own. Others are shared.
    pub single: Option<Single>,
    pub upstreams: Upstreams,
}

/// What a refusal tells of.
pub struct Refused {
    pub refusal: Refusal,
    pub service: Option<String>,
    pub waited: Duration,
    pub asked: Asked,
}

/// In what words a request wants to be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Text,
    Json,
    Grpc,
}

// === impl Refusal ===

impl Refusal {
    /// The one place where errors become status codes.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Full | Self::Gone => StatusCode::SERVICE_UNAVAILABLE,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
            Self::Broken => StatusCode::BAD_GATEWAY,
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }

    /// The one place where errors become metric labels.
    pub fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Late => "late",
            Self::Gone => "gone",
            Self::Broken => "broken",
            Self::Unknown => "unknown_service",
            Self::Unsupported => "unsupported",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
        }
    }

    /// UNAVAILABLE, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL.
    fn grpc_status(self) -> &'static str {
        match self {
            Self::Full | Self::Gone | Self::Broken => "14",
            Self::Late => "4",
            Self::Unknown | Self::Unsupported => "12",
            Self::Malformed | Self::TooLarge => "13",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Full => "too many requests wait for it already",
            Self::Late => "it did not become ready in time",
            Self::Gone => "its ElastiService was deleted",
            Self::Broken => "it broke the connection, or gave no answer that could be passed on",
            Self::Unknown => "no ElastiService speaks for the service that the request names",
            Self::Unsupported => "this kind of request is not forwarded",
            Self::Malformed => "the request is malformed",
            Self::TooLarge => "the head of the request is too large",
        }
    }
}

// === impl Asked ===

impl Asked {
    pub fn of(headers: &HeaderMap) -> Self {
        let text = |name: HeaderName| headers.get(name)?.to_str().ok();
        let is_grpc = |kind: &str| kind.starts_with("application/grpc");
        if text(header::CONTENT_TYPE).is_some_and(is_grpc) {
            Self::Grpc
        } else if text(header::ACCEPT).is_some_and(|accept| accept.contains("json")) {
            Self::Json
        } else {
            Self::Text
        }
    }
}

// === impl Refused ===

impl Refused {
    pub fn into_response(self) -> Response<Answer> {
        let service = self.service.as_deref().unwrap_or("the service");
        let waited = self.waited.as_secs_f64();
        let text = format!(
            "{service}: {} (waited {waited:.1} s)",
            self.refusal.reason()
        );
        let mut response = match self.asked {
            Asked::Grpc => trailers_only(self.refusal, &text),
            Asked::Json => self.json(),
            Asked::Text => own(
                self.refusal.status(),
                "text/plain; charset=utf-8",
                format!("{text}\n"),
            ),
        };
        if matches!(self.refusal, Refusal::Full | Refusal::Gone) {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn json(&self) -> Response<Answer> {
        let object = json!({
            "service": self.service,
            "reason": self.refusal.reason(),
            "waitedSeconds": self.waited.as_secs_f64(),
        });
        own(
            self.refusal.status(),
            "application/json",
            object.to_string(),
        )
    }
}

fn trailers_only(refusal: Refusal, text: &str) -> Response<Answer> {
    let mut response = own(StatusCode::OK, "application/grpc", String::new());
    let headers = response.headers_mut();
    headers.insert(
        "grpc-status",
        HeaderValue::from_static(refusal.grpc_status()),
    );
    if let Ok(message) = HeaderValue::from_str(text) {
        headers.insert("grpc-message", message);
    }
    response
}

/// In the target's name, while it sleeps.
pub fn probe(answer: &ProbeAnswer, method: &Method) -> Response<Answer> {
    let body = answer.body.clone().unwrap_or_default();
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&body).is_ok();
    let kind = if is_json {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    let status = StatusCode::from_u16(answer.status.get()).unwrap_or(StatusCode::OK);
    let body = if *method == Method::HEAD || status == StatusCode::NO_CONTENT {
        String::new()
    } else {
        body
    };
    own(status, kind, body)
}

fn own(status: StatusCode, kind: &'static str, body: String) -> Response<Answer> {
    let mut response = Response::new(Answer::Own(Full::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

// === impl Answer ===

impl Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Target { body, carrier } => {
                let carrier = carrier.as_mut();
                body.poll_frame(cx, carrier.and_then(|carrier| carrier.single.as_mut()))
            }
            Self::Own(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Target { body, .. } => body.is_end_stream(),
            Self::Own(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Target { body, .. } => body.size_hint(),
            Self::Own(body) => body.size_hint(),
        }
    }
}

// === impl Carrier ===

impl Drop for Carrier {
    fn drop(&mut self) {
        if let Some(single) = self.single.take() {
            self.upstreams.give_back(self.busy.address(), single);
        }
    }
}
