//! Leaves out of HTTP/2 what says nothing: DATA without a byte that is not the last of its stream. After a hundred
//! of these h2 ends a connection, and with it the streams of all who share it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug)]
pub struct Sieve<S> {
    stream: S,
    /// A head that came in parts, as far as it came.
    head: [u8; HEAD],
    held: usize,
    /// How much of the whole head was passed on, while it is.
    owed: Option<usize>,
    /// What comes before the next head.
    left: usize,
}

const HEAD: usize = 9;
/// What a client says first.
const PREFACE: usize = 24;
const DATA: u8 = 0;
const END_STREAM: u8 = 1;

// === impl Sieve ===

impl<S> Sieve<S> {
    pub fn of_client(stream: S) -> Self {
        Self::new(stream, PREFACE)
    }

    pub fn of_target(stream: S) -> Self {
        Self::new(stream, 0)
    }

    fn new(stream: S, left: usize) -> Self {
        Self {
            stream,
            head: [0; HEAD],
            held: 0,
            owed: None,
            left,
        }
    }

    /// Moves what is kept to the front; gives how much that is.
    fn sift(&mut self, bytes: &mut [u8]) -> usize {
        let (mut read, mut kept) = (0, 0);
        while let rest @ 1.. = bytes.len() - read {
            let passed = if self.left > 0 {
                let part = self.left.min(rest);
                self.left -= part;
                part
            } else if rest < HEAD {
                self.head[..rest].copy_from_slice(&bytes[read..]);
                self.held = rest;
                break;
            } else if let Some(payload) = payload(&bytes[read..]) {
                self.left = payload;
                HEAD
            } else {
                read += HEAD;
                continue;
            };
            if kept < read {
                bytes.copy_within(read..read + passed, kept);
            }
            kept += passed;
            read += passed;
        }
        kept
    }
}

/// How long it is; `None` for what says nothing.
fn payload(head: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let says_nothing = length == 0 && head[3] == DATA && head[4] & END_STREAM == 0;
    (!says_nothing).then_some(length as usize)
}

impl<S: AsyncRead + Unpin> AsyncRead for Sieve<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        loop {
            if let Some(passed) = me.owed {
                let part = buf.remaining().min(me.held - passed);
                buf.put_slice(&me.head[passed..passed + part]);
                me.owed = Some(passed + part).filter(|passed| *passed < me.held);
                if me.owed.is_none() {
                    me.held = 0;
                }
                return Poll::Ready(Ok(()));
            }
            if me.held > 0 {
                let mut missing = ReadBuf::new(&mut me.head[me.held..]);
                ready!(Pin::new(&mut me.stream).poll_read(cx, &mut missing))?;
                let came = missing.filled().len();
                me.held += came;
                if came == 0 {
                    me.owed = Some(0);
                } else if me.held == HEAD {
                    match payload(&me.head) {
                        Some(payload) => (me.left, me.owed) = (payload, Some(0)),
                        None => me.held = 0,
                    }
                }
                continue;
            }
            let before = buf.filled().len();
            ready!(Pin::new(&mut me.stream).poll_read(cx, buf))?;
            let came = &mut buf.filled_mut()[before..];
            if came.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let kept = me.sift(came);
            buf.set_filled(before + kept);
            if kept > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Sieve<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const EMPTY: [u8; 9] = [0, 0, 0, DATA, 0, 0, 0, 0, 1];
    const LAST: [u8; 9] = [0, 0, 0, DATA, END_STREAM, 0, 0, 0, 1];
    const FULL: [u8; 12] = [0, 0, 3, DATA, 0, 0, 0, 0, 1, 0, 0, 0];
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

    /// What is kept when it comes, and is taken, so many bytes at a time.
    async fn sifted(bytes: &[u8], coming: usize, taken: usize, preface: usize) -> Vec<u8> {
        let (mut peer, source) = duplex(coming);
        let mut sieve = Sieve::new(source, preface);
        let say = async {
            peer.write_all(bytes).await.unwrap();
            drop(peer);
        };
        let hear = async {
            let (mut kept, mut buffer) = (Vec::new(), vec![0; taken]);
            while let read @ 1.. = sieve.read(&mut buffer).await.unwrap() {
                kept.extend(&buffer[..read]);
            }
            kept
        };
        tokio::join!(say, hear).1
    }

    #[tokio::test]
    async fn only_what_says_nothing_is_left_out_however_it_comes() {
        let all = [
            &EMPTY[..],
            &SETTINGS,
            &FULL,
            &EMPTY,
            &EMPTY,
            &FULL,
            &LAST,
            &EMPTY,
        ]
        .concat();
        let wanted = [&SETTINGS[..], &FULL, &FULL, &LAST].concat();
        for coming in 1..=all.len() {
            for taken in [1, 2, 8, 9, 10, 13, 100] {
                let kept = sifted(&all, coming, taken, 0).await;
                assert_eq!(kept, wanted, "{coming} came, {taken} were taken");
            }
        }
    }

    #[tokio::test]
    async fn a_preface_and_a_part_of_a_head_are_passed_on_as_they_are() {
        let words = [&EMPTY[..], &EMPTY, &EMPTY[..6], &FULL, &EMPTY[..4]].concat();
        let wanted = words.clone();
        for coming in 1..=words.len() {
            assert_eq!(sifted(&words, coming, 7, PREFACE).await, wanted);
        }
    }
}
