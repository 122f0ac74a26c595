//! Bytes that are looked at where they come, and sent on.

use crate::proxy::scratch::with_buffer;
use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpStream,
};

/// Reads, and lets somebody look at it before another has its turn. Nothing is the end.
pub async fn look<T>(
    stream: &mut TcpStream,
    mut take: impl FnMut(&[u8]) -> io::Result<T>,
) -> io::Result<T> {
    poll_fn(|cx| {
        with_buffer(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
            Poll::Ready(take(read.filled()))
        })
    })
    .await
}

pub async fn send(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes).or_else(not_now)? {
            0 => stream.writable().await?,
            sent => bytes = &bytes[sent..],
        }
    }
    Ok(())
}

pub fn not_now(error: io::Error) -> io::Result<usize> {
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(0),
        _ => Err(error),
    }
}

/// What work comes to; nothing if the client has left meanwhile.
pub async fn attended<T>(client: &TcpStream, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => poll_left(client, cx).map(|()| None),
    })
    .await
}

fn poll_left(client: &TcpStream, cx: &mut Context<'_>) -> Poll<()> {
    match ready!(client.poll_peek(cx, &mut ReadBuf::new(&mut [0]))) {
        // The next request is there already.
        Ok(1..) => Poll::Pending,
        Ok(0) | Err(_) => Poll::Ready(()),
    }
}
