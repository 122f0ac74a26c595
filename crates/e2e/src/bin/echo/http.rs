//! What is asked is answered, and some paths do more: `/hold` is answered, and `/events` ended, only
//! after somebody asked for `/release`; `/held` tells how many wait for that, `/metrics` how many
//! came, `/moved` sends elsewhere, and `/exit` ends the process where it stands. As long as it is not ready
//! `/ready` says so, and so does the health protocol of gRPC; whoever asks for anything else came too early.

use anyhow::Result;
use futures::{SinkExt, StreamExt, future, stream};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Bytes, Frame, Incoming},
    header::{
        CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, UPGRADE, USER_AGENT,
    },
    server::conn::{http1, http2},
    service::service_fn,
    upgrade::{self, OnUpgrade},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    env, process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
    time::Instant,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::server::create_response_with_body, protocol::Role},
};

const SERVED_BY: HeaderName = HeaderName::from_static("x-served-by");

const HEALTH: &str = "/grpc.health.v1.Health/Check";

static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// One receiver for each that waits.
#[derive(Clone)]
pub(crate) struct Answers {
    waiting: Arc<watch::Sender<()>>,
    ready: Instant,
}

type Answer = UnsyncBoxBody<Bytes, hyper::Error>;

/// HTTP/1, or HTTP/2 by prior knowledge.
pub(crate) async fn serve(stream: TcpStream, answers: Answers) -> Result<()> {
    let mut first = [0; 3];
    stream.peek(&mut first).await?;
    if &first != b"PRI" {
        return serve_http1(stream, answers).await;
    }
    let answer = service_fn(move |request| answers.clone().answer(request));
    let builder = http2::Builder::new(TokioExecutor::new());
    Ok(builder
        .serve_connection(TokioIo::new(stream), answer)
        .await?)
}

pub(crate) async fn serve_http1<S>(stream: S, answers: Answers) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(move |request| answers.clone().answer(request));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    Ok(connection.with_upgrades().await?)
}

// === impl Answers ===

impl Answers {
    pub(crate) fn ready_after(pause: Duration) -> Self {
        Self {
            waiting: Arc::default(),
            ready: Instant::now() + pause,
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Answer>, hyper::Error> {
        if !is_of_the_cluster(&request) {
            count();
        }
        let is_ready = Instant::now() >= self.ready;
        let mut response = match request.uri().path() {
            HEALTH => health(is_ready),
            "/ready" if !is_ready => status(StatusCode::SERVICE_UNAVAILABLE),
            _ if !is_ready && !is_of_the_cluster(&request) => {
                status(StatusCode::INTERNAL_SERVER_ERROR)
            }
            "/exit" => process::exit(1),
            "/metrics" => text(format!(
                "requests_total {}\n",
                REQUESTS.load(Ordering::Relaxed)
            )),
            "/held" => text(self.waiting.receiver_count().to_string()),
            "/release" => {
                self.waiting.send_replace(());
                text(String::new())
            }
            "/hold" => {
                self.released().await;
                echo(request).await?
            }
            "/events" => self.events(),
            "/moved" => moved(&request),
            _ if is_grpc(&request) => grpc(request),
            _ if request.headers().contains_key(UPGRADE) => websocket(request),
            _ => echo(request).await?,
        };
        if let Some(pod) = env::var("HOSTNAME").ok().and_then(|pod| pod.parse().ok()) {
            response.headers_mut().insert(SERVED_BY, pod);
        }
        Ok(response)
    }

    fn released(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut release = self.waiting.subscribe();
        async move { drop(release.changed().await) }
    }

    fn events(&self) -> Response<Answer> {
        let released = self.released();
        let last = stream::once(async move {
            released.await;
            "data: last\n\n"
        });
        let events = stream::once(future::ready("data: first\n\n")).chain(last);
        let frames = events.map(|event| Ok(Frame::data(Bytes::from(event))));
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        let kind = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Answer>, hyper::Error> {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut answer = format!("{} {path}\n", head.method).into_bytes();
    answer.extend(body.collect().await?.to_bytes());
    Ok(whole(answer))
}

/// One message that says whether it serves.
fn health(is_ready: bool) -> Response<Answer> {
    let answer = [0, 0, 0, 0, 2, 8, if is_ready { 1 } else { 2 }];
    let body = Full::from(answer.to_vec()).map_err(|never| match never {});
    as_grpc(body)
}

fn status(code: StatusCode) -> Response<Answer> {
    let mut response = text(String::new());
    *response.status_mut() = code;
    response
}

/// To the host that was asked for, as applications do.
fn moved(request: &Request<Incoming>) -> Response<Answer> {
    let host = request.headers().get(HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut response = status(StatusCode::FOUND);
    if let Ok(place) = format!("http://{host}/hello").parse() {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

fn text(text: String) -> Response<Answer> {
    whole(text.into())
}

fn whole(bytes: Vec<u8>) -> Response<Answer> {
    let body = Full::from(bytes).map_err(|never| match never {});
    Response::new(body.boxed_unsync())
}

/// One more visitor.
pub(crate) fn count() {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
}

/// Probes, and Prometheus.
fn is_of_the_cluster(request: &Request<impl Body>) -> bool {
    let agent = request.headers().get(USER_AGENT).map(HeaderValue::as_bytes);
    agent.is_some_and(|agent| agent.starts_with(b"kube-probe") || agent.starts_with(b"Prometheus"))
}

fn is_grpc(request: &Request<impl Body>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Every message is sent back as it comes.
fn grpc(request: Request<Incoming>) -> Response<Answer> {
    as_grpc(request.into_body())
}

/// All is well in the end.
fn as_grpc<B>(messages: B) -> Response<Answer>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Send + 'static,
{
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let messages = messages.with_trailers(future::ready(Some(Ok(trailers))));
    let mut response = Response::new(messages.boxed_unsync());
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn websocket(mut request: Request<Incoming>) -> Response<Answer> {
    let upgraded = upgrade::on(&mut request);
    match create_response_with_body(&request, || text(String::new()).into_body()) {
        Ok(response) => {
            tokio::spawn(talk(upgraded));
            response
        }
        Err(error) => text(error.to_string()),
    }
}

async fn talk(upgraded: OnUpgrade) -> Result<()> {
    let stream = TokioIo::new(upgraded.await?);
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    while let Some(message) = socket.next().await.transpose()? {
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}
