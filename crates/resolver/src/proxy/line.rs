//! What a client's HTTP/1 connection and whoever answers its requests tell each other.

use super::peek::left;
use futures::FutureExt;
use parking_lot::Mutex;
use std::{
    io, net,
    os::fd::AsFd,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::{net::TcpStream, sync::oneshot};

#[derive(Clone, Debug, Default)]
pub struct Line(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// It speaks another protocol from now on.
    is_tunnel: AtomicBool,
    is_asked: AtomicBool,
    /// Who has to wait, and wants to know whether the client still does.
    asks: Mutex<Option<oneshot::Sender<TcpStream>>>,
}

// === impl Line ===

impl Line {
    pub fn open_tunnel(&self) {
        self.0.is_tunnel.store(true, Ordering::Release);
    }

    pub fn is_tunnel(&self) -> bool {
        self.0.is_tunnel.load(Ordering::Acquire)
    }

    /// What a wait comes to; nothing if the client has left meanwhile. The parser would not notice: it reads no
    /// further than it has to.
    pub async fn unless_left<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let mut wait = pin!(wait);
        // Whoever need not wait need not be watched.
        if let Some(done) = wait.as_mut().now_or_never() {
            return Some(done);
        }
        tokio::select! {
            done = wait => Some(done),
            () = Box::pin(self.left()) => None,
        }
    }

    async fn left(&self) {
        let (asks, told) = oneshot::channel();
        *self.0.asks.lock() = Some(asks);
        self.0.is_asked.store(true, Ordering::Release);
        match told.await {
            Ok(stream) => left(&stream, false).await,
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives whoever asks a second look at the socket: what it forgets there stays known here.
    pub fn tell(&self, stream: &TcpStream) {
        if !self.0.is_asked.load(Ordering::Acquire) {
            return;
        }
        self.0.is_asked.store(false, Ordering::Release);
        if let Some(asks) = self.0.asks.lock().take()
            && let Ok(same) = again(stream)
        {
            let _ = asks.send(same);
        }
    }
}

fn again(stream: &TcpStream) -> io::Result<TcpStream> {
    let same = stream.as_fd().try_clone_to_owned()?;
    TcpStream::from_std(net::TcpStream::from(same))
}
