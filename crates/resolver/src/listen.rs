//! One listener for each port that stands for a service, opened and closed as services come and go.

use crate::{alive::watch_over, proxy::Proxy, route::Table};
use elasti_runtime::{listen::everywhere, readiness::Pending};
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    io,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What all listeners share.
#[derive(Clone)]
pub struct Listeners {
    pub proxy: Proxy,
    pub tasks: TaskTracker,
    /// Connections at once; those beyond wait, all but one of each port in the kernel.
    pub connections: Arc<Semaphore>,
    /// No more connections are taken.
    pub stop: CancellationToken,
    /// When somebody came last.
    pub arrivals: Arc<Mutex<Option<Instant>>>,
}

/// Before a port that could not be opened, or a connection that could not be taken, is tried again.
const RETRY: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
/// After so long a silence a client is asked whether it is still there.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Resolves when every data plane seems to know that nobody is to be sent here any more: after some time at least, and
/// when nobody has come for half as long; after six times as long in any case.
pub async fn farewell(arrivals: &Mutex<Option<Instant>>, least: Duration) {
    let begun = Instant::now();
    let (mut until, end) = (begun + least, begun + 6 * least);
    loop {
        sleep_until(until.min(end)).await;
        let last = *arrivals.lock();
        let silence = last.map_or(begun, |last| last + least / 2);
        if silence <= until || until >= end {
            return;
        }
        until = silence;
    }
}

pub fn bind(port: u16) -> io::Result<TcpListener> {
    let listener = everywhere(port)?;
    watch_over(&listener, FORGOTTEN);
    Ok(listener)
}

// === impl Listeners ===

impl Listeners {
    /// The port on which requests say whose they are.
    pub async fn named(&self, listener: TcpListener) {
        let serve = |proxy: Proxy, stream: TcpStream, client, permit| async move {
            proxy.named(stream, client, Some(permit)).await;
        };
        self.accept(listener, &self.stop, serve).await;
    }

    /// Follows the table until it ends; `pending` is done when all that it names are open.
    pub async fn follow(&self, mut table: watch::Receiver<Arc<Table>>, pending: Pending) {
        let mut pending = Some(pending);
        let mut open: HashMap<u16, CancellationToken> = HashMap::new();
        loop {
            let wanted: BTreeSet<u16> = table.borrow_and_update().by_port.keys().copied().collect();
            open.retain(|port, closed| {
                let keep = wanted.contains(port);
                if !keep {
                    closed.cancel();
                }
                keep
            });
            let mut all = true;
            for port in wanted {
                let Entry::Vacant(vacant) = open.entry(port) else {
                    continue;
                };
                match self.open(port) {
                    Ok(closed) => drop(vacant.insert(closed)),
                    Err(error) => {
                        tracing::error!(port, %error, "Cannot listen on a port");
                        all = false;
                    }
                }
            }
            if all {
                pending.take();
            }
            let again = if all { Duration::MAX } else { RETRY };
            match timeout(again, table.changed()).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(_)) => return,
            }
        }
    }

    fn open(&self, port: u16) -> io::Result<CancellationToken> {
        let listener = bind(port)?;
        let closed = self.stop.child_token();
        let (this, token) = (self.clone(), closed.clone());
        let first = self.proxy.table().by_port.get(&port).cloned();
        self.tasks.spawn(async move {
            let serve = move |proxy: Proxy, stream, client, permit| {
                let way = proxy.table().by_port.get(&port).cloned();
                // Whoever comes last is told that the service is gone.
                let way = way.or_else(|| first.clone());
                async move {
                    if let Some(way) = way {
                        proxy.routed(way, stream, client, Some(permit)).await;
                    }
                }
            };
            this.accept(listener, &token, serve).await;
        });
        Ok(closed)
    }

    async fn accept<F, R>(&self, listener: TcpListener, closed: &CancellationToken, serve: F)
    where
        F: Fn(Proxy, TcpStream, SocketAddr, OwnedSemaphorePermit) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        let _under_way = self.tasks.token();
        while let Some(accepted) = closed.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, client)) => self.take(stream, client, &serve).await,
                Err(error) => {
                    tracing::warn!(%error, "Could not take a connection");
                    closed.run_until_cancelled(sleep(PAUSE)).await;
                }
            }
        }
        // Those in the queue have been told that somebody listens.
        let Ok(listener) = listener.into_std() else {
            return;
        };
        while let Ok((stream, client)) = listener.accept() {
            let stream = stream.set_nonblocking(true).map(|()| stream);
            if let Ok(stream) = stream.and_then(TcpStream::from_std) {
                self.take(stream, client, &serve).await;
            }
        }
    }

    async fn take<F, R>(&self, stream: TcpStream, client: SocketAddr, serve: &F)
    where
        F: Fn(Proxy, TcpStream, SocketAddr, OwnedSemaphorePermit) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        *self.arrivals.lock() = Some(Instant::now());
        // Only now, or every port that nobody uses would hold one.
        if let Ok(permit) = self.connections.clone().acquire_owned().await {
            self.tasks
                .spawn(serve(self.proxy.clone(), stream, client, permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{getsockopt, sockopt};

    const LEAST: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn clients_are_watched_over_as_their_listener_is() {
        let listener = bind(0).unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(getsockopt(&stream, sockopt::KeepAlive).unwrap());
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepIdle).unwrap(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn the_door_is_closed_when_nobody_comes_any_more() {
        let arrivals = Mutex::new(None);
        assert_eq!(seconds(&arrivals, 0).await, 10, "nobody came at all");
        assert_eq!(seconds(&arrivals, 4).await, 10, "the last came in time");
        assert_eq!(seconds(&arrivals, 23).await, 27, "they still came");
        assert_eq!(seconds(&arrivals, 500).await, 60, "for ever, it seems");
    }

    /// How long it takes when somebody comes every other second for so long.
    async fn seconds(arrivals: &Mutex<Option<Instant>>, last: u64) -> u64 {
        let begun = Instant::now();
        let visitors = async {
            for _ in 0..last / 2 {
                sleep(Duration::from_secs(2)).await;
                *arrivals.lock() = Some(Instant::now());
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = visitors => {}
            () = farewell(arrivals, LEAST) => {}
        }
        begun.elapsed().as_secs()
    }
}
