use bytes::Bytes;
use elasti_core::{host::ServiceName, probe::ProbeRules};
use elasti_resolver::{
    metrics::Metrics,
    proxy::{Proxy, Settings},
    room::{House, Limits, Room},
    route::{Naming, Speaks, Table, Way},
};
use elasti_runtime::listen;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::{http1, http2},
    server::conn,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    collections::HashMap,
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) const PORT: &str = "http";
const LOCAL: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// One service behind a routed port.
pub(crate) struct Stage {
    pub(crate) room: Arc<Room>,
    pub(crate) address: SocketAddr,
    /// Where requests say whose they are.
    pub(crate) named: SocketAddr,
    pub(crate) knocks: mpsc::Receiver<Arc<Room>>,
    pub(crate) leaving: CancellationToken,
    pub(crate) drain: CancellationToken,
    pub(crate) proxy: Proxy,
    pub(crate) way: Arc<Way>,
    pub(crate) tables: watch::Sender<Arc<Table>>,
    registry: prometheus::Registry,
    _tasks: JoinSet<()>,
}

/// How the service is set up.
pub(crate) struct Setting {
    pub(crate) patience: Duration,
    pub(crate) seats: usize,
    pub(crate) speaks: Speaks,
    pub(crate) rules: ProbeRules,
    pub(crate) head: Duration,
    pub(crate) idle: Duration,
    pub(crate) mark_held: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(30),
            seats: 10_000,
            speaks: Speaks::Anything,
            rules: ProbeRules::default(),
            head: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            mark_held: true,
        }
    }
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(Setting::default()).await
    }

    pub(crate) async fn with(setting: Setting) -> Self {
        let (knocks, heard) = mpsc::channel(16);
        let house = House::new(20_000, knocks);
        let limits = Limits {
            patience: setting.patience,
            seats: setting.seats,
        };
        let room = Room::new(&house, "shop", "web", limits);
        let way = Arc::new(Way {
            room: room.clone(),
            number: 80,
            port: PORT.into(),
            speaks: setting.speaks,
            rules: Arc::new(setting.rules),
        });
        let settings = Settings {
            naming: Naming {
                headers: Vec::new(),
                domain: "cluster.local".into(),
            },
            mark_held: setting.mark_held,
            first_word: Duration::from_millis(100),
            head: setting.head,
            idle: setting.idle,
        };
        let (leaving, drain) = (CancellationToken::new(), CancellationToken::new());
        let registry = prometheus::Registry::new();
        let metrics = Arc::new(Metrics::new(&registry).unwrap());
        let web = ServiceName {
            namespace: "shop".into(),
            name: "web".into(),
        };
        let table = Table {
            by_name: HashMap::from([(web, vec![(80, way.clone())])]),
            ..Table::default()
        };
        let (tables, table) = watch::channel(Arc::new(table));
        let proxy = Proxy::new(
            settings,
            table,
            metrics,
            TaskTracker::new(),
            leaving.clone(),
            drain.clone(),
        );
        let listener = listen::at(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        let (mut tasks, serving) = (JoinSet::new(), proxy.clone());
        let served = way.clone();
        tasks.spawn(async move {
            loop {
                let (stream, client) = listener.accept().await.unwrap();
                let (proxy, way) = (serving.clone(), served.clone());
                tokio::spawn(async move { proxy.routed(way, stream, client, None).await });
            }
        });
        let listener = listen::at(LOCAL).unwrap();
        let named = listener.local_addr().unwrap();
        let serving = proxy.clone();
        tasks.spawn(async move {
            loop {
                let (stream, client) = listener.accept().await.unwrap();
                let proxy = serving.clone();
                tokio::spawn(async move { proxy.named(stream, client, None).await });
            }
        });
        Self {
            room,
            address,
            named,
            knocks: heard,
            leaving,
            drain,
            proxy,
            way,
            tables,
            registry,
            _tasks: tasks,
        }
    }

    /// Behind the resolver, with a target that is up.
    pub(crate) async fn awake(setting: Setting) -> (Self, Target) {
        let (stage, target) = (Self::with(setting).await, Target::start().await);
        stage.ready(&[target.address]);
        stage.room.set_proxied(true);
        (stage, target)
    }

    /// On the proxy port there is another service, which sleeps.
    pub(crate) fn stands_beside_a_sleeper(&self) {
        let (knocks, _) = mpsc::channel(1);
        let limits = Limits {
            patience: SOON * 10,
            seats: 100,
        };
        let sleeper = Way {
            room: Room::new(&House::new(100, knocks), "shop", "sleeper", limits),
            number: 80,
            port: PORT.into(),
            speaks: Speaks::Anything,
            rules: Arc::default(),
        };
        let ways = [("web", self.way.clone()), ("sleeper", Arc::new(sleeper))];
        let named = ways.map(|(name, way)| {
            let name = ServiceName {
                namespace: "shop".into(),
                name: name.into(),
            };
            (name, vec![(80, way)])
        });
        self.tables.send_replace(Arc::new(Table {
            by_name: HashMap::from(named),
            ..Table::default()
        }));
    }

    /// The target is ready at these addresses.
    pub(crate) fn ready(&self, addresses: &[SocketAddr]) {
        self.room
            .publish(&HashMap::from([(PORT.into(), addresses.to_vec())]));
    }

    /// How often a metric with this label was counted.
    pub(crate) fn counted(&self, metric: &str, label: &str) -> u64 {
        let families = self.registry.gather();
        let family = families
            .iter()
            .find(|family| family.name() == format!("elasti_resolver_{metric}"));
        let metrics = family.into_iter().flat_map(|family| family.get_metric());
        metrics
            .filter(|metric| metric.get_label().iter().any(|pair| pair.value() == label))
            .map(|metric| {
                metric.get_counter().get_value() as u64 + metric.get_histogram().get_sample_count()
            })
            .sum()
    }

    pub(crate) async fn counts(&self, metric: &str, label: &str, wanted: u64) {
        let counted = async {
            while self.counted(metric, label) != wanted {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let in_time = tokio::time::timeout(SOON, counted).await;
        let found = self.counted(metric, label);
        assert!(in_time.is_ok(), "{metric} of {label} is {found}");
    }

    /// Somebody has sat down.
    pub(crate) async fn waits(&self, count: usize) {
        let sat = async {
            while self.room.waiting() != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let seats = || format!("{} wait instead of {count}", self.room.waiting());
        tokio::time::timeout(SOON, sat)
            .await
            .unwrap_or_else(|_| panic!("{}", seats()));
    }
}

/// A target that answers every request with what it was asked, and counts.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) requests: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Target {
    pub(crate) async fn start() -> Self {
        Self::serving(echo).await
    }

    pub(crate) async fn serving<F, R>(answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let listener = listen::at(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let requests = Arc::new(AtomicUsize::new(0));
        let asked = requests.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let (answer, asked) = (answer.clone(), asked.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        asked.fetch_add(1, Ordering::Relaxed);
                        let answered = answer(request);
                        async move { Ok::<_, Infallible>(answered.await) }
                    });
                    let mut preface = [0; 3];
                    let _ = stream.peek(&mut preface).await;
                    let io = TokioIo::new(stream);
                    if &preface == b"PRI" {
                        let http = conn::http2::Builder::new(TokioExecutor::new());
                        let _ = http.serve_connection(io, service).await;
                    } else {
                        let http = conn::http1::Builder::new();
                        let _ = http.serve_connection(io, service).with_upgrades().await;
                    }
                });
            }
        });
        Self {
            address,
            connections,
            requests,
            _tasks: tasks,
        }
    }
}

pub(crate) async fn echo(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let head = format!("{} {}", request.method(), request.uri().path());
    let headers = request.headers().clone();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut response = Response::new(Full::from(format!(
        "{head} {}",
        String::from_utf8_lossy(&body)
    )));
    for (name, value) in headers {
        let echoed = format!("echo-{}", name.unwrap());
        let name: http::HeaderName = echoed.parse().unwrap();
        response.headers_mut().insert(name, value);
    }
    response
}

pub(crate) async fn http1(address: SocketAddr) -> http1::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    sender
}

pub(crate) async fn http2(address: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = handshake.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(path).header("host", "web.shop");
    request.body(Full::default()).unwrap()
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Says it to the resolver and hears all that is said until the connection ends.
pub(crate) async fn said(address: SocketAddr, words: &[u8]) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(words).await.unwrap();
    heard(&mut client).await
}

/// All that is said until the connection ends.
pub(crate) async fn heard(client: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let ended = tokio::time::timeout(SOON, client.read_to_end(&mut all)).await;
    let text = String::from_utf8_lossy(&all).into_owned();
    ended
        .unwrap_or_else(|_| panic!("still open after {text:?}"))
        .unwrap_or_else(|error| panic!("{error} after {text:?}"));
    text
}

/// A target that says what it is told to, once it has heard the end of a head, on each connection.
pub(crate) async fn parrot(answer: &'static str) -> (SocketAddr, JoinSet<()>) {
    let listener = listen::at(LOCAL).unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut heard = Vec::new();
                loop {
                    match stream.read_buf(&mut heard).await {
                        Ok(0) | Err(_) => return,
                        Ok(_) if heard.windows(4).any(|end| end == b"\r\n\r\n") => {
                            heard.clear();
                            let _ = stream.write_all(answer.as_bytes()).await;
                        }
                        Ok(_) => {}
                    }
                }
            });
        }
    });
    (address, tasks)
}

pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let reached = tokio::time::timeout(SOON, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(reached.await.is_ok(), "{what}");
}
