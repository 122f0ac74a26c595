//! A client's side of an HTTP/1 connection, on its way to the parser.

use super::{framing::Framing, line::Line};
use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::{Sleep, sleep},
};

/// Refuses what can be read in two ways and heads that take too long, by making the parser answer 400;
/// and closes so that an answer arrives.
#[derive(Debug)]
pub struct Checked {
    stream: TcpStream,
    /// What somebody has read of it before.
    read: Vec<u8>,
    framing: Framing,
    refused: Option<Refused>,
    line: Line,
    /// For a head, from its first byte.
    patience: Duration,
    /// Exists while a head is not complete.
    slow: Option<Pin<Box<Sleep>>>,
    farewell: Option<Pin<Box<Sleep>>>,
    /// Whatever it speaks later, it is a connection.
    _permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum Refused {
    /// What is still to be said to the parser.
    Head(&'static [u8]),
    Body,
}

/// No head goes on like this, wherever it is.
const NONSENSE: &[u8] = b"\0\n\n";
/// For a client to take note of the last answer.
const FAREWELL: Duration = Duration::from_secs(1);

// === impl Checked ===

impl Checked {
    pub fn new(
        stream: TcpStream,
        read: Vec<u8>,
        patience: Duration,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            stream,
            read,
            framing: Framing::default(),
            refused: None,
            line: Line::default(),
            patience,
            slow: None,
            farewell: None,
            _permit: permit,
        }
    }

    pub fn line(&self) -> Line {
        self.line.clone()
    }

    fn poll_more(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let later = self.read.split_off(self.read.len().min(buf.remaining()));
        buf.put_slice(&self.read);
        self.read = later;
        Poll::Ready(Ok(()))
    }

    fn refuse(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        match &mut self.refused {
            Some(Refused::Head(nonsense)) => {
                let (now, later) = nonsense.split_at(nonsense.len().min(buf.remaining()));
                buf.put_slice(now);
                *nonsense = later;
                Ok(())
            }
            Some(Refused::Body) => Err(io::ErrorKind::InvalidData.into()),
            None => Ok(()),
        }
    }

    fn poll_slow(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(slow) = &mut self.slow {
            ready!(slow.as_mut().poll(cx));
            self.slow = None;
            self.refused = Some(Refused::Head(NONSENSE));
            return Poll::Ready(self.refuse(buf));
        }
        Poll::Pending
    }
}

impl AsyncRead for Checked {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.line.is_tunnel() {
            return this.poll_more(cx, buf);
        }
        if this.refused.is_some() {
            return Poll::Ready(this.refuse(buf));
        }
        let before = buf.filled().len();
        let Poll::Ready(read) = this.poll_more(cx, buf) else {
            return this.poll_slow(cx, buf);
        };
        let followed = this.framing.follow(&buf.filled()[before..]);
        if let Err(ambiguous) = followed {
            buf.set_filled(before + ambiguous.after);
            this.refused = Some(if ambiguous.in_head {
                Refused::Head(NONSENSE)
            } else {
                Refused::Body
            });
            // Nothing at all would be an end.
            if ambiguous.after == 0 {
                return Poll::Ready(this.refuse(buf));
            }
        }
        if !this.framing.in_head() {
            this.slow = None;
        } else if this.slow.is_none() {
            this.slow = Some(Box::pin(sleep(this.patience)));
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Checked {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// The parser does this whenever a request cannot be answered at once.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.line.tell(&this.stream);
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    /// Bytes that nobody has read would make the close a reset, and that would take the last answer along.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.line.is_tunnel() {
            return Pin::new(&mut this.stream).poll_shutdown(cx);
        }
        if this.farewell.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let farewell = this
            .farewell
            .get_or_insert_with(|| Box::pin(sleep(FAREWELL)));
        // First, while there is time for both: whoever sends without end takes all of it.
        if farewell.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut unread = [MaybeUninit::uninit(); 4096];
        loop {
            let mut buf = ReadBuf::uninit(&mut unread);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {}
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}
