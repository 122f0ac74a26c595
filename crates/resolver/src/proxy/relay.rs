//! Joins two connections that we do not look into, each side closing by itself.

use super::scratch::with_buffer;
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// One way.
#[derive(Default)]
struct Flow {
    /// What was read and could not be written: all that a connection takes of memory.
    unsent: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Default)]
enum State {
    #[default]
    Open,
    Closing,
    Closed,
}

pub async fn relay(client: &mut TcpStream, target: &mut TcpStream) -> io::Result<()> {
    let (mut there, mut back) = (Flow::default(), Flow::default());
    poll_fn(|cx| {
        let there = there.poll(cx, client, target)?;
        let back = back.poll(cx, target, client)?;
        if there.is_ready() && back.is_ready() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    })
    .await
}

// === impl Flow ===

impl Flow {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut TcpStream,
        to: &mut TcpStream,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.state {
                State::Open => {
                    ready!(self.poll_unsent(cx, to))?;
                    ready!(with_buffer(|buffer| self.poll_pass(cx, from, to, buffer)))?;
                }
                State::Closing => {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.state = State::Closed;
                }
                State::Closed => return Poll::Ready(Ok(())),
            }
        }
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>, to: &mut TcpStream) -> Poll<io::Result<()>> {
        if self.unsent.is_empty() {
            // What nobody takes stays in the kernel.
            return to.poll_write_ready(cx);
        }
        let mut rest = &self.unsent[..];
        let written = poll_write_all(cx, to, &mut rest);
        self.unsent = rest.to_vec();
        written
    }

    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut TcpStream,
        to: &mut TcpStream,
        buffer: &mut [u8],
    ) -> Poll<io::Result<()>> {
        let mut read = ReadBuf::new(buffer);
        ready!(Pin::new(from).poll_read(cx, &mut read))?;
        let mut rest = read.filled();
        if rest.is_empty() {
            self.state = State::Closing;
            return Poll::Ready(Ok(()));
        }
        let written = poll_write_all(cx, to, &mut rest);
        self.unsent = rest.to_vec();
        written
    }
}

/// Leaves what could not be written yet.
fn poll_write_all(
    cx: &mut Context<'_>,
    to: &mut TcpStream,
    rest: &mut &[u8],
) -> Poll<io::Result<()>> {
    while !rest.is_empty() {
        match ready!(Pin::new(&mut *to).poll_write(cx, rest))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => *rest = &rest[written..],
        }
    }
    Poll::Ready(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::timeout,
    };

    /// More than all buffers of the kernel between two sides take.
    const LARGE: usize = 64 << 20;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        (one.unwrap(), other.unwrap().0)
    }

    /// A client and a target, and what joins them.
    async fn joined() -> (
        TcpStream,
        TcpStream,
        tokio::task::JoinHandle<io::Result<()>>,
    ) {
        let ((client, mut near), (mut far, target)) = (pair().await, pair().await);
        let relayed = tokio::spawn(async move { relay(&mut near, &mut far).await });
        (client, target, relayed)
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at / 7 % 251) as u8).collect()
    }

    #[tokio::test]
    async fn each_side_may_close_before_the_other_has_said_all() {
        let (mut client, mut target, relayed) = joined().await;
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut question = String::new();
        target.read_to_string(&mut question).await.unwrap();
        assert_eq!(question, "question");
        target.write_all(b"answer").await.unwrap();
        drop(target);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        relayed.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn both_ways_flow_at_once_and_arrive_whole_though_readers_are_late() {
        let (client, target, relayed) = joined().await;
        let all = pattern(LARGE);
        let side = async |stream: TcpStream, pause: Duration| {
            let (mut read, mut write) = stream.into_split();
            let said = async {
                write.write_all(&all).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let heard = async {
                tokio::time::sleep(pause).await;
                let mut heard = Vec::with_capacity(LARGE);
                read.read_to_end(&mut heard).await.unwrap();
                assert!(heard == all, "{} bytes came", heard.len());
            };
            tokio::join!(said, heard);
        };
        let late = Duration::from_millis(200);
        tokio::join!(side(client, Duration::ZERO), side(target, late));
        relayed.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_nobody_takes_is_not_read() {
        let (mut client, target, _relayed) = joined().await;
        let all = vec![0; LARGE];
        let stuck = timeout(Duration::from_millis(500), client.write_all(&all)).await;
        assert!(stuck.is_err(), "somebody has read all of it");
        drop(target);
    }

    #[tokio::test]
    async fn a_side_that_breaks_ends_both() {
        let (mut client, target, relayed) = joined().await;
        client.write_all(b"question").await.unwrap();
        target.readable().await.unwrap();
        target.set_zero_linger().unwrap();
        drop(target);
        assert!(relayed.await.unwrap().is_err());
        let mut answer = Vec::new();
        let _ = timeout(Duration::from_secs(5), client.read_to_end(&mut answer))
            .await
            .expect("the client learns of it");
    }
}
