//! Requests without a body, from HTTP/1 to HTTP/1, passed on as bytes. What a parser builds and takes apart again would
//! cost more than the rest of the way. It gets whatever is not plain, as if nobody had looked at it before.

mod body;
mod date;
pub mod head;
mod socket;

use self::{
    date::with_date,
    head::{Asked, Begun, Seen, write_field},
    socket::{attended, look, not_now, send},
};
use super::{
    Arrival, MAX_HEAD, Proxy, answer::Refusal, headers, idle::Streams, tcp::see_off,
    upstream::is_silent,
};
use crate::{
    room::{Busy, Visit},
    route::Way,
};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use http::HeaderValue;
use std::{
    future::poll_fn,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// A client's connection that speaks HTTP/1.
pub(super) struct Came {
    pub stream: TcpStream,
    pub client: HeaderValue,
    /// Cancelled when it has to end.
    pub drain: CancellationToken,
    pub requests: Streams,
    /// What has been read, and not been answered.
    pub read: Vec<u8>,
    /// The request that has begun with it.
    pub first: Option<Arrival>,
}

struct Passage<'a> {
    road: Road<'a>,
    came: Came,
    /// What is sent next, either way.
    out: Vec<u8>,
}

/// What is the same for all requests of a connection.
struct Road<'a> {
    proxy: &'a Proxy,
    way: &'a Arc<Way>,
    drain: CancellationToken,
    /// No further request is waited for.
    ending: &'a AtomicBool,
}

/// How a connection ends here.
enum End {
    /// The client is told.
    Orderly,
    /// The client wants nothing more, as it has said, or has left, or could not be told all of an answer.
    Over,
    /// The parser goes on with it.
    Parser,
}

/// Why a target gave no answer that can be passed on.
enum Failed {
    Unreachable,
    /// It said nothing, on a connection that may have been used before and closed since.
    Unheard,
    Broken,
}

/// What a connection without a request may keep of either buffer.
const KEPT: usize = 1024;

// === impl Came ===

impl Came {
    pub fn new(stream: TcpStream, client: HeaderValue, drain: CancellationToken) -> Self {
        Self {
            stream,
            client,
            drain,
            requests: Streams::default(),
            read: Vec::new(),
            first: None,
        }
    }
}

// === impl Proxy ===

impl Proxy {
    /// Gives back what is not plain; nothing if the connection is done with.
    pub(super) async fn pass(&self, way: &Arc<Way>, came: Came) -> Option<Came> {
        let (requests, drain) = (came.requests.clone(), came.drain.clone());
        let ending = AtomicBool::new(false);
        let road = Road {
            proxy: self,
            way,
            drain: drain.clone(),
            ending: &ending,
        };
        let mut passage = Passage {
            road,
            came,
            out: Vec::new(),
        };
        let drained = async {
            requests.answered().await;
            drain.cancelled().await;
        };
        let idle = requests.idle(self.settings.idle);
        // Each looks when it is woken itself, and not with every request.
        let mut ends = FuturesUnordered::from_iter([drained.left_future(), idle.right_future()]);
        let end = {
            let mut passing = pin!(passage.run());
            loop {
                tokio::select! {
                    // A request that has come is read before its connection is found to have been idle for too long.
                    biased;
                    end = &mut passing => break end,
                    Some(()) = ends.next() => ending.store(true, Ordering::Relaxed),
                }
            }
        };
        match end {
            End::Parser => return Some(passage.came),
            End::Orderly => Box::pin(see_off(passage.came.stream)).await,
            End::Over => {}
        }
        None
    }
}

// === impl Passage ===

impl Passage<'_> {
    async fn run(&mut self) -> End {
        loop {
            if let Err(end) = self.request().await {
                return end;
            }
            for buffer in [&mut self.came.read, &mut self.out] {
                buffer.clear();
                buffer.shrink_to(KEPT);
            }
        }
    }

    async fn request(&mut self) -> Result<(), End> {
        self.wait().await?;
        let Came { read, client, .. } = &self.came;
        let asked = head::request(read, client.as_bytes(), &mut self.out).ok_or(End::Parser)?;
        let _request = self.came.requests.begin();
        self.answer(&asked).await
    }

    /// For the next request, past empty lines, which mean nothing before one.
    async fn wait(&mut self) -> Result<(), End> {
        while self.came.read.is_empty() {
            self.read().await?;
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(), End> {
        let Came { stream, read, .. } = &mut self.came;
        let came = |bytes: &[u8]| {
            let mut head = bytes;
            while let [b'\r', b'\n', rest @ ..] = head {
                head = rest;
            }
            read.extend_from_slice(head);
            Ok(!bytes.is_empty())
        };
        let mut next = pin!(look(stream, came));
        let is_there = poll_fn(|cx| match next.as_mut().poll(cx) {
            Poll::Pending if self.road.ending.load(Ordering::Relaxed) => Poll::Ready(Ok(false)),
            polled => polled,
        });
        match is_there.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(End::Orderly),
            Err(_) => Err(End::Over),
        }
    }

    async fn answer(&mut self, asked: &Asked) -> Result<(), End> {
        let first = self.came.first.take();
        let Arrival { mut visit, refusal } = first.unwrap_or_else(|| self.road.way.visit().into());
        // What a rule matches is answered in the target's name, or does not count as use.
        let may_be_probe = !self.road.way.rules.is_empty() && !self.road.way.room.is_serving();
        if refusal.is_some() || may_be_probe {
            return self.leave_to_parser(visit, refusal);
        }
        loop {
            let Some(busy) = visit.endpoint_now(&self.road.way.port) else {
                return self.leave_to_parser(visit, None);
            };
            let road = &self.road;
            let mut closes = false;
            let more = |out: &mut Vec<u8>, is_dated: bool| {
                closes = asked.close || road.is_ending();
                mark(out, road.proxy, &visit, closes, is_dated);
            };
            let out = &mut self.out;
            let heard = async {
                let target = road.target(&busy, &visit).await?;
                exchange(target, asked, out, more).await
            };
            let failed = match attended(&self.came.stream, heard).await.ok_or(End::Over)? {
                Ok((target, begun)) => {
                    let (room, metrics) = (&road.way.room, &road.proxy.metrics);
                    metrics.held(room, visit.waited());
                    metrics.answered(room, &asked.method, begun.status, visit.age());
                    let passed = self.pass_back(busy, target, begun).await;
                    return match passed {
                        Ok(()) if closes && !(asked.close && is_silent(&self.came.stream)) => {
                            Err(End::Orderly)
                        }
                        Ok(()) if !closes => Ok(()),
                        Ok(()) | Err(_) => Err(End::Over),
                    };
                }
                Err(failed) => failed,
            };
            match failed {
                Failed::Unreachable => {}
                Failed::Unheard if visit.may_fall_again() => visit.fell(),
                Failed::Unheard | Failed::Broken => {
                    return self.leave_to_parser(visit, Some(Refusal::Broken));
                }
            }
            if let Err(turned) = visit.failed(&busy) {
                return self.leave_to_parser(visit, Some(turned.into()));
            }
        }
    }

    fn leave_to_parser(&mut self, visit: Visit, refusal: Option<Refusal>) -> Result<(), End> {
        self.came.first = Some(Arrival { visit, refusal });
        Err(End::Parser)
    }

    /// The rest of an answer, as it comes.
    async fn pass_back(
        &mut self,
        busy: Busy,
        mut target: TcpStream,
        begun: Begun,
    ) -> io::Result<()> {
        let (client, out) = (&self.came.stream, &mut self.out);
        let Begun {
            mut body, mut keep, ..
        } = begun;
        send(client, out).await?;
        while !body.is_over() {
            out.clear();
            let piece = look(&mut target, |bytes| {
                let taken = body.take(bytes)?;
                keep &= taken == bytes.len();
                if body.is_cut_anew() {
                    body::write_chunk(out, bytes);
                    return Ok(());
                }
                let sent = client.try_write(&bytes[..taken]).or_else(not_now)?;
                out.extend_from_slice(&bytes[sent..taken]);
                Ok(())
            });
            let piece = attended(client, piece).await;
            piece.ok_or(io::ErrorKind::ConnectionAborted)??;
            send(client, out).await?;
        }
        if keep {
            let upstreams = &self.road.proxy.upstreams;
            upstreams.give_back_plain(busy.address(), target);
        }
        Ok(())
    }
}

// === impl Road ===

impl Road<'_> {
    /// Whether the client is to ask elsewhere next.
    fn is_ending(&self) -> bool {
        self.proxy.leaving.is_cancelled()
            || self.drain.is_cancelled()
            || self.ending.load(Ordering::Relaxed)
            || self.way.room.is_serving()
    }

    async fn target(&self, busy: &Busy, visit: &Visit) -> Result<TcpStream, Failed> {
        let upstreams = &self.proxy.upstreams;
        if !visit.has_fallen()
            && let Some(kept) = upstreams.take_plain(busy.address())
        {
            return Ok(kept);
        }
        // Boxed: most need not dial.
        let dialled = Box::pin(upstreams.dial_plain(busy, visit.deadline())).await;
        dialled.map_err(|_| Failed::Unreachable)
    }
}

/// Sends a request and reads the head of its answer, with what comes along of the body.
async fn exchange(
    mut target: TcpStream,
    asked: &Asked,
    out: &mut Vec<u8>,
    mut more: impl FnMut(&mut Vec<u8>, bool),
) -> Result<(TcpStream, Begun), Failed> {
    send(&target, out).await.map_err(|_| Failed::Unheard)?;
    let mut before = Vec::new();
    loop {
        let heard = look(&mut target, |bytes| {
            before.extend_from_slice(bytes);
            Ok((begin(&before, asked, out, &mut more), bytes.is_empty()))
        });
        match heard.await {
            Ok((Seen::Whole(begun), _)) => return Ok((target, begun)),
            Ok((Seen::Part, false)) if before.len() < MAX_HEAD => {}
            Ok((Seen::Part, true)) | Err(_) if before.is_empty() => return Err(Failed::Unheard),
            _ => return Err(Failed::Broken),
        }
    }
}

/// The head of an answer, and what is there of its body.
fn begin(
    bytes: &[u8],
    asked: &Asked,
    out: &mut Vec<u8>,
    more: impl FnOnce(&mut Vec<u8>, bool),
) -> Seen {
    let mut seen = head::answer(bytes, &asked.method, out, more);
    if let Seen::Whole(begun) = &mut seen
        && let rest @ [_, ..] = &bytes[begun.length..]
    {
        let Ok(taken) = begun.body.take(rest) else {
            return Seen::Nonsense;
        };
        begun.keep &= taken == rest.len();
        if begun.body.is_cut_anew() {
            body::write_chunk(out, rest);
        } else {
            out.extend_from_slice(&rest[..taken]);
        }
    }
    seen
}

/// What we have to say to the client ourselves.
fn mark(out: &mut Vec<u8>, proxy: &Proxy, visit: &Visit, closes: bool, is_dated: bool) {
    if let Some(waited) = visit.waited().filter(|_| proxy.settings.mark_held) {
        for (name, value) in headers::held(waited, visit.was_early()) {
            write_field(out, name.as_str(), &[value.as_bytes()]);
        }
    }
    if !is_dated {
        with_date(|date| write_field(out, "date", &[date.as_bytes()]));
    }
    if closes {
        write_field(out, "connection", &[b"close"]);
    }
}

// === impl Arrival ===

impl From<Visit> for Arrival {
    fn from(visit: Visit) -> Self {
        Self {
            visit,
            refusal: None,
        }
    }
}
