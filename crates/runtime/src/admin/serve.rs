use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{collections::BTreeMap, io, pin::pin, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// What a connection may take. With all seats taken, the oldest connection is shown out, so that
/// idle ones by the thousand do not keep out a kubelet's probe.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connections: usize,
    /// To send the head of a request, from the first moment or the last answer.
    head: Duration,
    /// For the whole connection: whoever reads or writes too slowly ends here.
    age: Duration,
    /// For the answer under way when the connection has to end.
    grace: Duration,
    buffer: usize,
}

struct Guests {
    limits: Limits,
    router: Router,
    shutdown: CancellationToken,
    tasks: JoinSet<u64>,
    /// The way out for each connection, oldest first.
    doors: BTreeMap<u64, CancellationToken>,
    admitted: u64,
}

/// Serves HTTP/1 until `shutdown`, then lets answers under way finish, for seconds at most.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    serve_within(Limits::default(), listener, router, shutdown).await
}

async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let mut guests = Guests::new(limits, router, shutdown.clone());
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => guests.admit(stream),
                Err(error) => guests.endure(error).await?,
            },
            Some(gone) = guests.tasks.join_next() => guests.forget(gone.ok()),
        }
    }
    drop(listener);
    while guests.tasks.join_next().await.is_some() {}
    Ok(())
}

async fn attend(stream: TcpStream, router: Router, limits: Limits, door: CancellationToken) {
    // A connection that says nothing costs a socket and no buffer.
    let spoken = timeout(limits.head, stream.readable());
    if !matches!(door.run_until_cancelled(spoken).await, Some(Ok(Ok(())))) {
        return;
    }
    let service = TowerToHyperService::new(router);
    let http = limits
        .http()
        .serve_connection(TokioIo::new(stream), service);
    let mut http = pin!(http);
    tokio::select! {
        ended = &mut http => return log(ended),
        () = door.cancelled() => {}
        () = sleep(limits.age) => {}
    }
    http.as_mut().graceful_shutdown();
    if let Ok(ended) = timeout(limits.grace, http).await {
        log(ended);
    }
}

fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        debug!(%error, "Connection failed");
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            head: Duration::from_secs(15),
            age: Duration::from_secs(120),
            grace: Duration::from_secs(5),
            buffer: 64 * 1024,
        }
    }
}

impl Limits {
    fn http(&self) -> http1::Builder {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.head)
            .max_buf_size(self.buffer);
        http
    }
}

// === impl Guests ===

impl Guests {
    fn new(limits: Limits, router: Router, shutdown: CancellationToken) -> Self {
        Self {
            limits,
            router,
            shutdown,
            tasks: JoinSet::new(),
            doors: BTreeMap::new(),
            admitted: 0,
        }
    }

    fn admit(&mut self, stream: TcpStream) {
        if self.doors.len() >= self.limits.connections {
            self.show_out_oldest();
        }
        // Answers are small: none should wait for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let (number, door) = (self.admitted, self.shutdown.child_token());
        self.admitted += 1;
        self.doors.insert(number, door.clone());
        let attended = attend(stream, self.router.clone(), self.limits, door);
        self.tasks.spawn(async move {
            attended.await;
            number
        });
    }

    fn forget(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.doors.remove(&number);
        }
    }

    fn show_out_oldest(&mut self) {
        if let Some((_, door)) = self.doors.pop_first() {
            door.cancel();
        }
    }

    /// A connection that failed before it was accepted, or no files or memory left for one more.
    async fn endure(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::InvalidInput => return Err(error),
            io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset => {}
            _ => {
                warn!(%error, "Could not accept a connection");
                self.show_out_oldest();
                sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
