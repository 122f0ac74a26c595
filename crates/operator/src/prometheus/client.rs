//! One exchange over HTTP.

use super::failure::Failure;
use axum::body::Bytes;
use http::{StatusCode, uri::Scheme};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, ResponseFuture, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use std::{error::Error, time::Duration};
use tokio::time;

/// A single value needs a few hundred bytes, with long labels a few thousand.
const MAX_BODY: usize = 1 << 20;

pub(super) type Request = http::Request<Nothing>;
type Nothing = Empty<&'static [u8]>;
type Pool<C> = legacy::Client<C, Nothing>;

/// An image without CA certificates can still ask in plain text.
pub(super) struct Client {
    plain: Pool<HttpConnector>,
    secure: Result<Pool<HttpsConnector<HttpConnector>>, String>,
    timeout: Duration,
}

fn pool() -> legacy::Builder {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new());
    builder
}

/// Trusts the CAs of the system, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn secure() -> Result<Pool<HttpsConnector<HttpConnector>>, String> {
    let connector = HttpsConnectorBuilder::new()
        .try_with_platform_verifier()
        .map_err(|error| error.to_string())?
        .https_only()
        .enable_http1()
        .build();
    Ok(pool().build(connector))
}

/// The innermost error names the cause; the others say that there was one.
fn cause(mut error: &(dyn Error + 'static)) -> Failure {
    while let Some(source) = error.source() {
        error = source;
    }
    Failure::Unanswered(error.to_string())
}

// === impl Client ===

impl Client {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            plain: pool().build_http(),
            secure: secure(),
            timeout,
        }
    }

    pub(super) async fn fetch(&self, request: Request) -> Result<(StatusCode, Bytes), Failure> {
        match time::timeout(self.timeout, self.exchange(request)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let late = format!("no answer within {:?}", self.timeout);
                Err(Failure::Unanswered(late))
            }
        }
    }

    async fn exchange(&self, request: Request) -> Result<(StatusCode, Bytes), Failure> {
        let response = match self.send(request.clone())?.await {
            // A kept connection may end just as it is used; to ask twice harms nothing.
            Err(error) if !error.is_connect() => self.send(request)?.await,
            outcome => outcome,
        };
        let response = response.map_err(|error| cause(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        match body {
            Ok(body) => Ok((status, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                let long = format!("the answer is longer than {MAX_BODY} bytes");
                Err(Failure::Unanswered(long))
            }
            Err(error) => Err(cause(&*error)),
        }
    }

    fn send(&self, request: Request) -> Result<ResponseFuture, Failure> {
        if request.uri().scheme() == Some(&Scheme::HTTP) {
            return Ok(self.plain.request(request));
        }
        match &self.secure {
            Ok(secure) => Ok(secure.request(request)),
            Err(reason) => Err(Failure::Unanswered(reason.clone())),
        }
    }
}
