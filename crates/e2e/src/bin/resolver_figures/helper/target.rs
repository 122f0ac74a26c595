//! Answers every request at once, and counts.

use super::{
    Prepared,
    exchange::{BODY, CHUNK, content_length, head, skip},
    say,
};
use crate::clock::Moment;
use anyhow::Result;
use futures::stream;
use http_body_util::{Either, Full, StreamBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    convert::Infallible,
    io::{self, Cursor, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, join},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::sleep,
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

/// The target before this one was killed, and may not be torn down yet.
const LOOK: Duration = Duration::from_millis(10);

pub(super) async fn play(address: SocketAddr) -> Result<()> {
    let listener = loop {
        match listen(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => sleep(LOOK).await,
            listener => break listener?,
        }
    };
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

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
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
        if buffer.starts_with(b"PRI ") {
            return serve_http2(stream, buffer, tally).await;
        }
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

/// What was read of it is there again.
async fn serve_http2(stream: TcpStream, read: Vec<u8>, tally: Arc<Mutex<Tally>>) -> Result<()> {
    let (from, to) = stream.into_split();
    let whole = join(Cursor::new(read).chain(from), to);
    let service = service_fn(move |request: Request<Incoming>| {
        tally.lock().count();
        let wanted = request.uri().path().trim_start_matches('/').parse();
        let body = wanted.map_or_else(
            |_| Either::Left(Full::new(Bytes::from_static(BODY))),
            |bytes: u64| Either::Right(StreamBody::new(stream::iter(frames(bytes)))),
        );
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(None)
        .serve_connection(TokioIo::new(whole), service)
        .await?;
    Ok(())
}

fn frames(bytes: u64) -> impl Iterator<Item = Result<Frame<Bytes>, Infallible>> {
    static ZEROS: [u8; CHUNK] = [0; CHUNK];
    let lengths = (0..bytes).step_by(CHUNK);
    lengths.map(move |at| {
        let length = usize::try_from(bytes - at).map_or(CHUNK, |left| left.min(CHUNK));
        Ok(Frame::data(Bytes::from_static(&ZEROS[..length])))
    })
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
