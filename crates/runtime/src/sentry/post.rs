//! Reports on their way: a short queue, and a thread with a runtime of its own, because a panic
//! holds up the worker that it happens on.

use super::Error;
use axum::body::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode, Uri,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        self,
        connect::{Connect, HttpConnector},
    },
    rt::TokioExecutor,
};
use parking_lot::{Condvar, Mutex};
use sentry_core::{
    Envelope, Transport,
    types::{Dsn, Scheme},
};
use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    runtime,
    sync::mpsc,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

const QUEUE: usize = 32;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Between being told to be quiet and speaking again.
const QUIET: Duration = Duration::from_secs(60);
const LONGEST_QUIET: Duration = Duration::from_secs(60 * 60);

pub(super) struct Post {
    queue: mpsc::Sender<Letter>,
    unsent: Arc<Unsent>,
    end: CancellationToken,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Unsent {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// Unsent until it is dropped.
struct Letter {
    envelope: Envelope,
    unsent: Arc<Unsent>,
}

struct Address {
    uri: Uri,
    headers: HeaderMap,
}

/// Works until cancelled or until nobody can post any more.
struct Courier<C> {
    client: legacy::Client<C, Full<Bytes>>,
    address: Address,
    quiet_until: Instant,
    failing: bool,
}

fn work(scheme: Scheme, address: Address, queue: mpsc::Receiver<Letter>, end: &CancellationToken) {
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return warn!(%error, "Cannot report to Sentry"),
    };
    runtime.block_on(async {
        let deliver = async {
            match scheme {
                Scheme::Http => {
                    Courier::new(HttpConnector::new(), address)
                        .work(queue)
                        .await
                }
                Scheme::Https => match secure() {
                    Ok(connector) => Courier::new(connector, address).work(queue).await,
                    Err(error) => warn!(%error, "Cannot report to Sentry"),
                },
            }
        };
        end.run_until_cancelled(deliver).await
    });
    // A name that is being looked up would hold up the end.
    runtime.shutdown_background();
}

/// Trusts the CAs of the system, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn secure() -> io::Result<HttpsConnector<HttpConnector>> {
    let builder = HttpsConnectorBuilder::new()
        .try_with_platform_verifier()
        .map_err(io::Error::other)?;
    Ok(builder.https_only().enable_http1().build())
}

fn pause(headers: &HeaderMap) -> Duration {
    let seconds = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    seconds
        .map_or(QUIET, Duration::from_secs)
        .min(LONGEST_QUIET)
}

// === impl Post ===

impl Post {
    pub(super) fn start(dsn: &Dsn) -> Result<Self, Error> {
        let (scheme, address) = (dsn.scheme(), Address::of(dsn)?);
        let (queue, letters) = mpsc::channel(QUEUE);
        let end = CancellationToken::new();
        let told = end.clone();
        let thread = thread::Builder::new()
            .name("sentry".into())
            .spawn(move || work(scheme, address, letters, &told))?;
        Ok(Self {
            queue,
            unsent: Arc::default(),
            end,
            thread: Mutex::new(Some(thread)),
        })
    }
}

impl Transport for Post {
    fn send_envelope(&self, envelope: Envelope) {
        // Full means that Sentry is slow or gone, and what waits already says why.
        let _ = self.queue.try_send(Letter::new(envelope, &self.unsent));
    }

    fn flush(&self, timeout: Duration) -> bool {
        let mut unsent = self.unsent.count.lock();
        let waited = self
            .unsent
            .fewer
            .wait_while_for(&mut unsent, |count| *count > 0, timeout);
        !waited.timed_out()
    }

    fn shutdown(&self, timeout: Duration) -> bool {
        let all_sent = self.flush(timeout);
        self.end.cancel();
        let thread = self.thread.lock().take();
        thread.is_none_or(|thread| thread.join().is_ok()) && all_sent
    }
}

// === impl Letter ===

impl Letter {
    fn new(envelope: Envelope, unsent: &Arc<Unsent>) -> Self {
        *unsent.count.lock() += 1;
        Self {
            envelope,
            unsent: unsent.clone(),
        }
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        *self.unsent.count.lock() -= 1;
        self.unsent.fewer.notify_all();
    }
}

// === impl Address ===

impl Address {
    fn of(dsn: &Dsn) -> Result<Self, Error> {
        let uri = dsn.envelope_api_url().as_str().parse();
        let agent = concat!("elasti/", env!("CARGO_PKG_VERSION"));
        let auth = HeaderValue::try_from(dsn.to_auth(Some(agent)).to_string());
        let mut auth = auth.map_err(Error::dsn)?;
        auth.set_sensitive(true);
        let envelope = HeaderValue::from_static("application/x-sentry-envelope");
        let mut headers = HeaderMap::new();
        headers.insert("x-sentry-auth", auth);
        headers.insert(CONTENT_TYPE, envelope);
        Ok(Self {
            uri: uri.map_err(Error::dsn)?,
            headers,
        })
    }

    fn request(&self, envelope: &Envelope) -> io::Result<Request<Full<Bytes>>> {
        let mut body = Vec::new();
        envelope.to_writer(&mut body)?;
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }
}

// === impl Courier ===

impl<C: Connect + Clone + Send + Sync + 'static> Courier<C> {
    fn new(connector: C, address: Address) -> Self {
        // Reports are rare: a kept connection would mostly be found closed.
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector);
        Self {
            client,
            address,
            quiet_until: Instant::now(),
            failing: false,
        }
    }

    async fn work(mut self, mut queue: mpsc::Receiver<Letter>) {
        while let Some(letter) = queue.recv().await {
            if Instant::now() >= self.quiet_until {
                let outcome = self.deliver(&letter.envelope).await;
                self.judge(outcome);
            }
        }
    }

    async fn deliver(&self, envelope: &Envelope) -> Result<Response<Incoming>, String> {
        let request = self.address.request(envelope);
        let request = request.map_err(|error| error.to_string())?;
        match time::timeout(TIMEOUT, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|error| cause(&error)),
            Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
        }
    }

    /// A failure is said once, and again after a success.
    fn judge(&mut self, outcome: Result<Response<Incoming>, String>) {
        let problem = match outcome {
            Ok(answer) if answer.status() == StatusCode::TOO_MANY_REQUESTS => {
                self.quiet_until = Instant::now() + pause(answer.headers());
                None
            }
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("the answer is {}", answer.status())),
            Err(problem) => Some(problem),
        };
        if let (Some(error), false) = (&problem, self.failing) {
            warn!(%error, "Cannot report to Sentry");
        }
        self.failing = problem.is_some();
    }
}

/// The innermost error names the cause; the others say that there was one.
fn cause(mut error: &(dyn std::error::Error + 'static)) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
