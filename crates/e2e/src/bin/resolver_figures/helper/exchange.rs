//! As little HTTP/1.1 as two ends need that know each other, so that they cost less than what is between.

use anyhow::{Context, Result, ensure};
use tokio::{io::AsyncReadExt, net::TcpStream};

pub(super) const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: web\r\nUser-Agent: elasti-figures\r\nAccept: */*\r\n\r\n";
pub(super) const LAST_REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: web\r\nUser-Agent: elasti-figures\r\nAccept: */*\r\nConnection: close\r\n\r\n";
pub(super) const BODY: &[u8] = b"Hello, world\n";
/// In which large bodies are moved.
pub(super) const CHUNK: usize = 128 * 1_024;
const HEAD_END: &[u8] = b"\r\n\r\n";
const MOST: usize = 4_096;

/// Reads until a whole head is there; returns its length. What follows it stays in `buffer`.
pub(super) async fn head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<Option<usize>> {
    loop {
        if let Some(at) = buffer.windows(4).position(|bytes| bytes == HEAD_END) {
            return Ok(Some(at + HEAD_END.len()));
        }
        ensure!(buffer.len() < MOST, "a head without an end");
        if stream.read_buf(buffer).await? == 0 {
            ensure!(buffer.is_empty(), "closed within a head");
            return Ok(None);
        }
    }
}

/// One answer of the target, whole and right.
pub(super) async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    let head = head(stream, buffer).await?.context("closed unanswered")?;
    while buffer.len() < head + BODY.len() {
        ensure!(
            stream.read_buf(buffer).await? > 0,
            "closed within an answer"
        );
    }
    ensure!(
        buffer.starts_with(b"HTTP/1.1 200") && &buffer[head..] == BODY,
        "answered {}",
        String::from_utf8_lossy(buffer)
    );
    Ok(())
}

/// By the head of a message, how long its body is.
pub(super) fn content_length(head: &[u8]) -> Option<u64> {
    let lines = std::str::from_utf8(head).ok()?.lines();
    lines.into_iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_it = name.eq_ignore_ascii_case("content-length");
        is_it.then(|| value.trim().parse().ok()).flatten()
    })
}

/// Reads and forgets.
pub(super) async fn skip(stream: &mut TcpStream, mut bytes: u64) -> Result<()> {
    let mut chunk = vec![0; CHUNK];
    while bytes > 0 {
        let most = chunk.len().min(bytes.try_into().unwrap_or(usize::MAX));
        let count = stream.read(&mut chunk[..most]).await?;
        ensure!(
            count > 0,
            "closed within a body, {bytes} bytes before its end"
        );
        bytes -= count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_body_is_found_in_any_spelling() {
        let head = b"POST / HTTP/1.1\r\nHost: web\r\ncontent-length: 12\r\n\r\n";
        assert_eq!(content_length(head), Some(12));
        assert_eq!(content_length(REQUEST), None);
    }
}
