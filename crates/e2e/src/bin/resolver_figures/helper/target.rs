//! Answers every request at once, and counts.

use super::{
    Prepared,
    exchange::{BODY, CHUNK, content_length, head, skip},
    say,
};
use crate::clock::Moment;
use anyhow::Result;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};

/// What came.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) connections: usize,
    pub(crate) requests: usize,
    /// When the first request was there, and the last.
    pub(crate) first: Option<Moment>,
    pub(crate) last: Option<Moment>,
}

/// As many as the kernel grants.
const BACKLOG: u32 = 65_535;

pub(super) async fn play(address: SocketAddr) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    say(&Prepared)?;
    let tally: Arc<Mutex<Tally>> = Arc::default();
    let mut connections = JoinSet::new();
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                tally.lock().connections += 1;
                connections.spawn(serve(stream, tally.clone()));
            }
            Some(_) = connections.join_next() => {}
            order = orders.next_line() => {
                if order?.is_none() {
                    return Ok(());
                }
                say(&std::mem::take(&mut *tally.lock()))?;
            }
        }
    }
}

async fn serve(mut stream: TcpStream, tally: Arc<Mutex<Tally>>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(1_024);
    let small = [
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", BODY.len()).as_bytes(),
        BODY,
    ]
    .concat();
    while let Some(end) = head(&mut stream, &mut buffer).await? {
        tally.lock().count();
        let rest = buffer.split_off(end);
        if let Some(wanted) = large(&buffer) {
            pour(&mut stream, wanted).await?;
        } else {
            if let Some(length) = content_length(&buffer) {
                skip(&mut stream, length.saturating_sub(rest.len() as u64)).await?;
            }
            stream.write_all(&small).await?;
        }
        buffer.clear();
    }
    Ok(())
}

/// `GET /` and a number asks for so many bytes.
fn large(head: &[u8]) -> Option<u64> {
    let path = head.strip_prefix(b"GET /")?;
    let digits = path.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&path[..digits]).ok()?.parse().ok()
}

async fn pour(stream: &mut TcpStream, mut bytes: u64) -> Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let chunk = vec![0; CHUNK];
    while bytes > 0 {
        let most = chunk.len().min(bytes.try_into().unwrap_or(usize::MAX));
        stream.write_all(&chunk[..most]).await?;
        bytes -= most as u64;
    }
    Ok(())
}

// === impl Tally ===

impl Tally {
    fn count(&mut self) {
        let now = Moment::now();
        self.requests += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_asks_for_so_many_bytes() {
        assert_eq!(large(b"GET /1024 HTTP/1.1\r\n\r\n"), Some(1_024));
        assert_eq!(large(b"GET / HTTP/1.1\r\n\r\n"), None);
        assert_eq!(large(b"POST /1024 HTTP/1.1\r\n\r\n"), None);
    }
}
