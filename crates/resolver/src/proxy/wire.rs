//! A TCP connection under hyper.

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite};

/// Sends small messages in one piece: hyper gives head and body apart, and the kernel takes longer to
/// gather them than we do.
pub struct Wire<S>(TokioIo<S>);

const SMALL: usize = 1_024;

// === impl Wire ===

impl<S> Wire<S> {
    pub fn new(stream: S) -> Self {
        Self(TokioIo::new(stream))
    }
}

impl<S: AsyncRead + Unpin> Read for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> Write for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wire = Pin::new(&mut self.0);
        let length = bufs.iter().map(|buf| buf.len()).sum();
        if length > SMALL {
            return wire.poll_write_vectored(cx, bufs);
        }
        let mut joined = [0; SMALL];
        let mut rest = &mut joined[..];
        for buf in bufs {
            let (start, end) = rest.split_at_mut(buf.len());
            start.copy_from_slice(buf);
            rest = end;
        }
        wire.poll_write(cx, &joined[..length])
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::{
        io::AsyncReadExt,
        net::{TcpListener, TcpStream},
    };

    async fn sent(pieces: &[&[u8]]) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut wire, mut other) = (Wire::new(stream.unwrap()), accepted.unwrap().0);
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let written = poll_fn(|cx| Pin::new(&mut wire).poll_write_vectored(cx, &slices)).await;
        let mut received = vec![0; written.unwrap()];
        other.read_exact(&mut received).await.unwrap();
        received
    }

    #[tokio::test]
    async fn pieces_arrive_whole_and_in_order() {
        assert_eq!(sent(&[b"head", b"", b"body"]).await, b"headbody");
        let (exact, large) = ([7; SMALL - 4], [7; SMALL]);
        assert_eq!(sent(&[b"head", &exact]).await.len(), SMALL);
        let received = sent(&[b"head", &large]).await;
        assert_eq!(received, [b"head", &large[..]].concat());
    }
}
