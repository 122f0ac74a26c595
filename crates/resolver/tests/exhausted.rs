//! What happens while this process may open no more files. In a process of its own: the limit is everybody's.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers, too"
)]
#![allow(dead_code, reason = "the stage has more than is needed here")]

#[path = "proxy/stage.rs"]
mod stage;

use elasti_resolver::listen::{Listeners, bind};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parking_lot::Mutex;
use stage::*;
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::Semaphore,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

static ALONE: Mutex<()> = Mutex::new(());

/// Before its runtime needs files, too.
fn alone(test: impl Future<Output = ()>) {
    let _alone = ALONE.lock();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(test);
}

/// No file can be opened until this is dropped.
struct NoFiles(u64, u64);

impl NoFiles {
    fn at_all() -> Self {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 3, hard).unwrap();
        Self(soft, hard)
    }
}

impl Drop for NoFiles {
    fn drop(&mut self) {
        setrlimit(Resource::RLIMIT_NOFILE, self.0, self.1).unwrap();
    }
}

#[test]
fn a_target_is_not_blamed_for_files_that_are_missing_here() {
    alone(async {
        let stage = Stage::new().await;
        let target = Target::start().await;
        stage.ready(&[target.address]);
        let mut client = TcpStream::connect(stage.address).await.unwrap();
        client.write_all(b"POST / HTTP/1.1\r\n").await.unwrap();
        until("taken", || {
            stage.counted("host_extraction_count", "port") == 1
        })
        .await;
        let none = NoFiles::at_all();
        client
            .write_all(b"Connection: close\r\n\r\n")
            .await
            .unwrap();
        until("tried again and again", || {
            stage.counted("dial_seconds", "exhausted") >= 8
        })
        .await;
        drop(none);
        let begun = Instant::now();
        let answer = heard(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        let took = begun.elapsed();
        assert!(
            took < Duration::from_millis(500),
            "{took:?}: it is not shunned"
        );
    });
}

#[test]
fn a_listener_outlives_a_time_without_files() {
    alone(async {
        let stage = Stage::new().await;
        let listeners = Listeners {
            proxy: stage.proxy.clone(),
            tasks: TaskTracker::new(),
            connections: Arc::new(Semaphore::new(10)),
            stop: CancellationToken::new(),
            arrivals: Arc::default(),
        };
        let listener = bind(0).unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { listeners.named(listener).await });
        let socket = TcpSocket::new_v4().unwrap();
        let none = NoFiles::at_all();
        let mut client = socket.connect(([127, 0, 0, 1], port).into()).await.unwrap();
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        let mut byte = [0];
        let early = timeout(Duration::from_millis(300), client.read(&mut byte)).await;
        assert!(early.is_err(), "nobody could take it");
        drop(none);
        let answer = heard(&mut client).await;
        assert!(answer.starts_with("HTTP/1.0 404 "), "{answer}");
    });
}
