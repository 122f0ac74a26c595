//! A server that answers what a test tells it to.

use parking_lot::Mutex;
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

pub const HEALTHY: &str = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#;

/// Instead of an answer.
pub const HANG_UP: &str = "hang up";

/// Ends on drop, with all its connections.
pub struct Listener {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    task: AbortHandle,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    heads: Vec<String>,
}

pub fn http(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
}

pub fn vector(values: &[&str]) -> String {
    let series: Vec<_> = values
        .iter()
        .map(|value| format!(r#"{{"metric":{{}},"value":[1,"{value}"]}}"#))
        .collect();
    let result = series.join(",");
    http(
        "200 OK",
        &format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}"#),
    )
}

pub fn is_health(head: &str) -> bool {
    head.contains("query=min_over_time")
}

async fn talk(
    mut stream: TcpStream,
    seen: Arc<Mutex<Seen>>,
    answer: impl Fn(&str) -> String,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while stream.read_buf(&mut head).await? > 0 {
        // A plain server answers a TLS client, too.
        if head.ends_with(b"\r\n\r\n") || head.starts_with(&[0x16]) {
            let text = String::from_utf8_lossy(&head).into_owned();
            head.clear();
            let answer = answer(&text);
            seen.lock().heads.push(text);
            if answer == HANG_UP {
                break;
            }
            stream.write_all(answer.as_bytes()).await?;
        }
    }
    Ok(())
}

// === impl Listener ===

impl Listener {
    /// An empty answer keeps the client waiting.
    pub async fn new(answer: impl Fn(&str) -> String + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Seen>>::default();
        let seen_too = seen.clone();
        let task = tokio::spawn(async move {
            let mut talks = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                seen_too.lock().connections += 1;
                talks.spawn(talk(stream, seen_too.clone(), answer.clone()));
            }
        });
        let task = task.abort_handle();
        Self {
            address,
            seen,
            task,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn heads(&self) -> Vec<String> {
        self.seen.lock().heads.clone()
    }

    pub fn connections(&self) -> usize {
        self.seen.lock().connections
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}
