//! A place between an operator and the API server where every request can be seen, and stopped. What
//! comes through is the real API server's.

use crate::Place;
use anyhow::{Context, Result};
use elasti_cluster::Cluster;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::json;
use std::{fs, future, net, path::PathBuf, sync::Arc, thread};
use tokio::{
    net::TcpListener,
    runtime,
    sync::{oneshot, watch},
    task::JoinSet,
    time,
};

/// Lives on a thread of its own, so that nothing that a test does delays an operator.
pub struct Gate {
    state: Arc<State>,
    kubeconfig: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Which requests are meant: those of this method whose path and body contain this.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub method: &'static str,
    pub path: &'static str,
    pub body: &'static str,
}

#[derive(Default)]
struct State {
    order: Mutex<Option<(Rule, Order)>>,
    writes: Mutex<Vec<String>>,
    /// How many requests were stopped so far.
    stopped: watch::Sender<usize>,
}

/// What becomes of the requests that a rule means.
#[derive(Clone)]
enum Order {
    /// Until it says that they may go on; for ever if it is gone without.
    Hold(Arc<watch::Sender<bool>>),
    Refuse,
}

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

// === impl Rule ===

impl Rule {
    pub const fn new(method: &'static str, path: &'static str) -> Self {
        Self {
            method,
            path,
            body: "",
        }
    }

    pub const fn saying(self, body: &'static str) -> Self {
        Self { body, ..self }
    }

    fn means(&self, method: &Method, path: &str, body: &[u8]) -> bool {
        *method == self.method
            && path.contains(self.path)
            && String::from_utf8_lossy(body).contains(self.body)
    }
}

// === impl State ===

impl State {
    fn order_for(&self, method: &Method, path: &str, body: &[u8]) -> Option<Order> {
        let order = self.order.lock();
        let (_, order) = order
            .as_ref()
            .filter(|(rule, _)| rule.means(method, path, body))?;
        Some(order.clone())
    }
}

// === impl Gate ===

impl Gate {
    pub fn open(place: &Place) -> Result<Self> {
        let listener = net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let kubeconfig = place.folder().join(format!("gate-{port}.yaml"));
        fs::write(&kubeconfig, config(port).to_string())?;
        let state = Arc::new(State::default());
        let (stop, stopped) = oneshot::channel();
        let (cluster, shared) = (place.cluster, state.clone());
        let thread = thread::spawn(move || {
            if let Err(error) = keep(cluster, listener, shared, stopped) {
                eprintln!("The gate closed: {error:#}");
            }
        });
        Ok(Self {
            state,
            kubeconfig,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// Requests like this get no answer and do not reach the API server. The future ends with the
    /// first of them.
    pub fn hold(&self, rule: Rule) -> impl Future<Output = Result<()>> + use<> {
        self.stop(rule, Order::Hold(Arc::default()))
    }

    /// Requests like this are forbidden. The future ends with the first of them.
    pub fn refuse(&self, rule: Rule) -> impl Future<Output = Result<()>> + use<> {
        self.stop(rule, Order::Refuse)
    }

    fn stop(&self, rule: Rule, order: Order) -> impl Future<Output = Result<()>> + use<> {
        let mut stopped = self.state.stopped.subscribe();
        let before = *stopped.borrow_and_update();
        *self.state.order.lock() = Some((rule, order));
        async move {
            let more = stopped.wait_for(|count| *count > before);
            time::timeout(super::PATIENCE, more)
                .await
                .with_context(|| format!("waiting for a request like {rule:?}"))??;
            Ok(())
        }
    }

    /// What was held never arrives; what comes from now on passes.
    pub fn let_pass(&self) {
        *self.state.order.lock() = None;
    }

    /// What was held goes on, and what comes from now on passes.
    pub fn release(&self) {
        if let Some((_, Order::Hold(go))) = self.state.order.lock().take() {
            go.send_replace(true);
        }
    }

    /// Method and path of each request so far that could change something.
    pub fn writes(&self) -> Vec<String> {
        self.state.writes.lock().clone()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn config(port: u16) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "gate",
        "clusters": [{"name": "gate", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "users": [{"name": "gate", "user": {}}],
        "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "gate"}}],
    })
}

fn keep(
    cluster: &Cluster,
    listener: net::TcpListener,
    state: Arc<State>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = cluster.client().await?;
        let listener = TcpListener::from_std(listener)?;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (stream, _) = accepted?;
                    let (client, state) = (client.clone(), state.clone());
                    connections.spawn(async move {
                        let pass = service_fn(|request| pass(&client, &state, request));
                        http1::Builder::new().serve_connection(TokioIo::new(stream), pass).await
                    });
                }
                Some(_) = connections.join_next() => {}
                _ = &mut stopped => return Ok(()),
            }
        }
    })
}

async fn pass(client: &Client, state: &State, request: Request<Incoming>) -> Result<Answer> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (method, path) = (&head.method, head.uri.path());
    if let Some(order) = state.order_for(method, path, &body) {
        state.stopped.send_modify(|count| *count += 1);
        match order {
            Order::Refuse => return refusal(),
            Order::Hold(go) => held(go).await,
        }
    }
    if *method != Method::GET {
        state.writes.lock().push(format!("{method} {path}"));
    }
    head.headers.remove("host");
    let request = Request::from_parts(head, Body::from(body.to_vec()));
    match client.send(request).await {
        Ok(answer) => Ok(answer.map(BodyExt::boxed_unsync)),
        Err(error) => Ok(Response::builder()
            .status(StatusCode::BAD_GATEWAY)
            .body(whole(error.to_string()))?),
    }
}

async fn held(go: Arc<watch::Sender<bool>>) {
    let mut on = go.subscribe();
    drop(go);
    if on.wait_for(|on| *on).await.is_err() {
        future::pending().await
    }
}

fn refusal() -> Result<Answer> {
    let status = json!({
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": "Forbidden",
        "message": "the gate is closed",
        "code": 403,
    });
    Ok(Response::builder()
        .status(StatusCode::FORBIDDEN)
        .body(whole(status.to_string()))?)
}

fn whole(text: String) -> UnsyncBoxBody<Bytes, kube::Error> {
    Full::from(text)
        .map_err(|never| match never {})
        .boxed_unsync()
}
