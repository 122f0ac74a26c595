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
use std::{convert::Infallible, iter, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A text of metrics may be megabytes, and lives until its reader has taken it.
const READERS: usize = 8;
const CHUNK: usize = 16 * 1024;

/// Pages of metrics beside those that are registered, each written when it is read.
pub type Pages = Arc<dyn Fn() -> Box<dyn Iterator<Item = String> + Send> + Send + Sync>;

#[derive(Clone)]
struct Metrics {
    registry: Registry,
    pages: Pages,
    readers: Arc<Semaphore>,
}

pub fn router(registry: Registry, readiness: Readiness, pages: Pages) -> Router {
    let metrics = Metrics {
        registry,
        pages,
        readers: Arc::new(Semaphore::new(READERS)),
    };
    Router::new()
        .route("/metrics", get(read_metrics).with_state(metrics))
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

async fn read_metrics(State(metrics): State<Metrics>) -> Response {
    let Ok(reader) = metrics.readers.try_acquire_owned() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many readers at once\n",
        )
            .into_response();
    };
    match TextEncoder::new().encode_to_string(&metrics.registry.gather()) {
        Ok(text) => text_response(text, (metrics.pages)(), reader),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn text_response(
    text: String,
    pages: Box<dyn Iterator<Item = String> + Send>,
    reader: OwnedSemaphorePermit,
) -> Response {
    let headers = [(header::CONTENT_TYPE, TEXT_FORMAT)];
    let texts = iter::once(text).chain(pages);
    (headers, in_chunks(texts, reader)).into_response()
}

/// Handed out piece by piece as the reader takes them, so that the permit outlives the text.
fn in_chunks(
    texts: impl Iterator<Item = String> + Send + 'static,
    reader: OwnedSemaphorePermit,
) -> Body {
    let rest = Bytes::new();
    let chunks = stream::unfold(
        (rest, texts, reader),
        async |(mut rest, mut texts, reader)| {
            while rest.is_empty() {
                rest = texts.next()?.into();
            }
            let chunk = rest.split_to(CHUNK.min(rest.len()));
            Some((Ok::<_, Infallible>(chunk), (rest, texts, reader)))
        },
    );
    Body::from_stream(chunks)
}
