//! `/metrics`, `/healthz` and `/readyz`, and the server that carries them.

mod serve;

pub use self::serve::serve;

use crate::readiness::Readiness;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::stream;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use std::{convert::Infallible, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A text of metrics may be megabytes, and lives until its reader has taken it.
const READERS: usize = 8;
const CHUNK: usize = 16 * 1024;

#[derive(Clone)]
struct Metrics {
    registry: Registry,
    readers: Arc<Semaphore>,
}

pub fn router(registry: Registry, readiness: Readiness) -> Router {
    let readers = Arc::new(Semaphore::new(READERS));
    Router::new()
        .route(
            "/metrics",
            get(metrics).with_state(Metrics { registry, readers }),
        )
        .route("/healthz", get("ok"))
        .route("/readyz", get(readyz).with_state(readiness))
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    if readiness.is_ready() {
        return "ok".into_response();
    }
    let waiting = format!("waiting for {}\n", readiness.pending().join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, waiting).into_response()
}

async fn metrics(State(metrics): State<Metrics>) -> Response {
    let Ok(reader) = metrics.readers.try_acquire_owned() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many readers at once\n",
        )
            .into_response();
    };
    match TextEncoder::new().encode_to_string(&metrics.registry.gather()) {
        Ok(text) => text_response(text, reader),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn text_response(text: String, reader: OwnedSemaphorePermit) -> Response {
    let headers = [
        (header::CONTENT_TYPE, TEXT_FORMAT.to_owned()),
        (header::CONTENT_LENGTH, text.len().to_string()),
    ];
    (headers, in_chunks(text.into(), reader)).into_response()
}

/// Handed out piece by piece as the reader takes them, so that the permit outlives the text.
fn in_chunks(text: Bytes, reader: OwnedSemaphorePermit) -> Body {
    let chunks = stream::unfold((text, reader), async |(mut rest, reader)| {
        let chunk = rest.split_to(CHUNK.min(rest.len()));
        (!chunk.is_empty()).then_some((Ok::<_, Infallible>(chunk), (rest, reader)))
    });
    Body::from_stream(chunks)
}
