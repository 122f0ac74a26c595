//! Telling the operator that requests wait: one call at a time for each room, for as long as somebody
//! does.

#[cfg(test)]
mod replicas;

use crate::{directory::Directory, early, metrics::Metrics, room::Room};
use elasti_api::wire::{INCOMING_REQUEST_PATH, IncomingRequest};
use http::{Request, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

/// The replicas of the operator.
pub struct Operators {
    pub addresses: watch::Receiver<Vec<SocketAddr>>,
    /// Where the token lies that shows that we are a resolver.
    pub token: Option<PathBuf>,
    pub metrics: Arc<Metrics>,
    next: AtomicUsize,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("no replica of the operator is known")]
    Nobody,
    #[error("it does not answer in time")]
    Silent,
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("it answers {0}")]
    Refused(StatusCode),
}

const PATIENCE: Duration = Duration::from_secs(2);
/// After a knock that was heard, and after one that was not.
const HEARD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
const UNHEARD: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Knocks for the rooms that come in, and asks their pods meanwhile. Works until it is dropped.
pub async fn work(
    mut rooms: mpsc::Receiver<Arc<Room>>,
    operators: Arc<Operators>,
    directory: Arc<Directory>,
) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            room = rooms.recv() => match room {
                Some(room) => {
                    let (operators, directory) = (operators.clone(), directory.clone());
                    tasks.spawn(async move {
                        let knocks = insist(&room, || operators.knock(&room));
                        early::ask_beside(knocks, &room, &directory).await;
                    });
                }
                None => return,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn insist<F: Future<Output = bool>>(room: &Room, knock: impl Fn() -> F) {
    let mut times = 0;
    loop {
        let heard = knock().await;
        let (first, longest) = if heard { HEARD } else { UNHEARD };
        let pause = first
            .saturating_mul(2_u32.saturating_pow(times))
            .min(longest);
        times = if heard { times + 1 } else { times.min(4) + 1 };
        let pause = pause.mul_f64(1.0 + 0.2 * chance());
        tokio::select! {
            () = sleep(pause) => {}
            () = room.awake() => times = 0,
            () = room.left() => {}
        }
        if !room.still_wants_knocks() {
            return;
        }
    }
}

/// From 0 to 1. A map's seed is random enough to spread resolvers.
fn chance() -> f64 {
    f64::from(RandomState::new().hash_one(()) as u32) / f64::from(u32::MAX)
}

// === impl Operators ===

impl Operators {
    pub fn new(
        addresses: watch::Receiver<Vec<SocketAddr>>,
        token: Option<PathBuf>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            addresses,
            token,
            metrics,
            next: AtomicUsize::new(0),
        }
    }

    /// At one replica after the other, until one has heard.
    async fn knock(&self, room: &Room) -> bool {
        let addresses = self.addresses.borrow().clone();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut error = Error::Nobody;
        for step in 0..addresses.len() {
            let address = addresses[(first + step) % addresses.len()];
            let told = timeout(PATIENCE, self.tell(address, room)).await;
            match told.unwrap_or(Err(Error::Silent)) {
                Ok(()) => {
                    self.metrics.knocked("success");
                    return true;
                }
                Err(failed) => error = failed,
            }
        }
        self.metrics.knocked(error.label());
        tracing::warn!(service = %room.service, namespace = %room.namespace, %error, "Could not knock");
        false
    }

    async fn tell(&self, address: SocketAddr, room: &Room) -> Result<(), Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let count = u32::try_from(room.waiting().max(1)).unwrap_or(u32::MAX);
        let knock = serde_json::json!(IncomingRequest {
            count,
            svc: room.service.to_string(),
            namespace: room.namespace.to_string(),
        });
        let mut request = Request::post(INCOMING_REQUEST_PATH)
            .header(header::HOST, address.to_string())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = self.token().await {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let Ok(request) = request.body(Full::<Bytes>::from(knock.to_string())) else {
            return Err(Error::Refused(StatusCode::BAD_REQUEST));
        };
        let answered = async {
            let answer = sender.send_request(request).await;
            drop(sender);
            answer
        };
        let (answer, _) = tokio::join!(answered, connection);
        match answer?.status() {
            StatusCode::OK => Ok(()),
            status => Err(Error::Refused(status)),
        }
    }

    /// Read each time: it is replaced before it expires, and knocks are few.
    async fn token(&self) -> Option<String> {
        let path = self.token.as_ref()?;
        let token = tokio::fs::read_to_string(path).await.ok()?;
        Some(token.trim().to_owned())
    }
}

// === impl Error ===

impl Error {
    fn label(&self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Silent => "silent",
            Self::Io(_) | Self::Http(_) => "unreachable",
            Self::Refused(_) => "refused",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{House, Limits};
    use futures::future::join_all;
    use std::{cell::Cell, collections::HashMap, future::ready};
    use tokio::{task::yield_now, time::Instant};

    const PORT: &str = "http";

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_when_it_sleeps_again_is_told_of_at_once() {
        let (knocks, mut heard) = mpsc::channel(1);
        let limits = Limits {
            patience: Duration::from_secs(60),
            seats: 100,
        };
        let room = Room::new(&House::new(100, knocks), "shop", "web", limits);
        let endpoint = HashMap::from([(PORT.into(), vec!["10.0.0.1:80".parse().unwrap()])]);
        let count = Cell::new(0);
        let knocking = async {
            while let Some(room) = heard.recv().await {
                let knock = || ready(count.replace(count.get() + 1) < usize::MAX);
                insist(&room, knock).await;
            }
        };
        let visit = || {
            let mut visit = room.visit();
            async move { visit.endpoint(PORT).await.map(drop) }
        };
        let days = async {
            for day in 1..=5 {
                let visits = join_all((0..50).map(|_| visit()));
                let wake = async {
                    for _ in 0..20 {
                        yield_now().await;
                    }
                    assert_eq!(count.replace(0), 1, "day {day}: at once, and once");
                    room.publish(&endpoint);
                };
                let (visits, ()) = tokio::join!(visits, wake);
                assert!(visits.iter().all(Result::is_ok));
                room.publish(&HashMap::new());
            }
        };
        tokio::select! {
            () = knocking => {}
            () = days => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_knocks_once_more_when_the_last_has_left() {
        let limits = Limits {
            patience: Duration::from_secs(60),
            seats: 1,
        };
        let (knocks, _heard) = mpsc::channel(1);
        let room = Room::new(&House::new(1, knocks), "shop", "web", limits);
        let begun = Instant::now();
        let sits = async {
            let mut visit = room.visit();
            let stays = timeout(Duration::from_millis(1_500), visit.endpoint(PORT));
            assert!(stays.await.is_err());
        };
        tokio::join!(sits, insist(&room, || ready(true)));
        assert_eq!(begun.elapsed(), Duration::from_millis(1_500));
    }
}
