//! One large body, one way.

use super::{
    Way,
    exchange::{CHUNK, answer, content_length, head, skip},
    say,
};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::Instant};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Moved {
    pub(crate) seconds: f64,
}

pub(super) async fn play(address: SocketAddr, way: Way, bytes: u64) -> Result<()> {
    let began = Instant::now();
    let stream = TcpStream::connect(address).await?;
    match way {
        Way::Up => push(stream, bytes).await?,
        Way::Down => pull(stream, bytes).await?,
    }
    say(&Moved {
        seconds: began.elapsed().as_secs_f64(),
    })
}

async fn pull(mut stream: TcpStream, bytes: u64) -> Result<()> {
    let request = format!("GET /{bytes} HTTP/1.1\r\nHost: web\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = Vec::new();
    let end = head(&mut stream, &mut buffer).await?;
    let end = end.context("closed unanswered")?;
    ensure!(
        content_length(&buffer[..end]) == Some(bytes),
        "answered {}",
        String::from_utf8_lossy(&buffer[..end])
    );
    skip(&mut stream, bytes - (buffer.len() - end) as u64).await
}

async fn push(mut stream: TcpStream, bytes: u64) -> Result<()> {
    let request = format!("POST / HTTP/1.1\r\nHost: web\r\nContent-Length: {bytes}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let chunk = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let most = chunk.len().min(left.try_into().unwrap_or(usize::MAX));
        stream.write_all(&chunk[..most]).await?;
        left -= most as u64;
    }
    answer(&mut stream, &mut Vec::new()).await
}
