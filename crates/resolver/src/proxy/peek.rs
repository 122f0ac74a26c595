//! What a client speaks, by its first bytes, which stay in the kernel.

use futures::FutureExt;
use std::{io, net, os::fd::AsFd, pin::pin, time::Duration};
use tokio::{io::Interest, net::TcpStream, time::timeout};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    Http1,
    /// By prior knowledge.
    Http2,
    /// TLS, or anything else.
    Opaque,
    /// Not a word: the server may be expected to speak first.
    Silence,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// As much of the preface as no other protocol begins with.
const OPENING: &[u8] = PREFACE.split_at(16).0;
/// Long enough for any method and the first bytes of a target.
const ENOUGH: usize = 40;
const MAX_METHOD: usize = 24;
const STEPS: u32 = 5;

/// `None` if the client left without a word.
pub async fn peek(stream: &TcpStream, patience: Duration) -> io::Result<Option<Spoken>> {
    let mut bytes = [0; ENOUGH];
    let mut seen = 0;
    let spoken = async {
        loop {
            match more(stream, &mut bytes, seen).await? {
                More::Left => return Ok(None),
                More::NoneEver => return Ok(Some(silent(&bytes[..seen]))),
                More::Seen(count) => seen = count,
            }
            match judge(&bytes[..seen]) {
                Judged::MayBe(_) if seen < ENOUGH => {}
                Judged::Is(spoken) | Judged::MayBe(spoken) => return Ok(Some(spoken)),
            }
        }
    };
    match within(patience, spoken).await {
        Some(spoken) => spoken,
        None => Ok(Some(silent(&bytes[..seen]))),
    }
}

/// What comes within that time. In steps: if the whole machine stood still, one of them is over, and a client that was about
/// to speak or leave still can.
pub async fn within<T>(patience: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..STEPS {
        if let Ok(done) = timeout(patience / STEPS, future.as_mut()).await {
            return Some(done);
        }
    }
    None
}

/// Whether all of HTTP/2's preface has come.
pub async fn has_preface(stream: &TcpStream, patience: Duration) -> bool {
    let mut bytes = [0; PREFACE.len()];
    let mut seen = 0;
    let whole = async {
        while seen < PREFACE.len() {
            match more(stream, &mut bytes, seen).await {
                Ok(More::Seen(count)) => seen = count,
                Ok(More::Left | More::NoneEver) | Err(_) => return false,
            }
        }
        bytes == *PREFACE
    };
    timeout(patience, whole).await.unwrap_or_default()
}

/// What these first bytes show, whatever may follow.
pub fn spoken(bytes: &[u8]) -> Option<Spoken> {
    match judge(bytes) {
        Judged::Is(spoken) => Some(spoken),
        Judged::MayBe(_) => None,
    }
}

/// Somebody who stops in the middle of a word is slow, and spoke.
fn silent(bytes: &[u8]) -> Spoken {
    match judge(bytes) {
        _ if bytes.is_empty() => Spoken::Silence,
        // POST and others begin like this, too, and are many more.
        _ if bytes.len() < 3 && OPENING.starts_with(bytes) => Spoken::Http1,
        Judged::Is(spoken) | Judged::MayBe(spoken) => spoken,
    }
}

enum More {
    Seen(usize),
    /// The client has closed its side after what was seen.
    NoneEver,
    Left,
}

/// Looks until there is more than was seen, which stays in the kernel.
async fn more(stream: &TcpStream, bytes: &mut [u8], seen: usize) -> io::Result<More> {
    if seen == 0 {
        let count = stream.peek(bytes).await?;
        return Ok(if count == 0 {
            More::Left
        } else {
            More::Seen(count)
        });
    }
    let same = net::TcpStream::from(stream.as_fd().try_clone_to_owned()?);
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        // What comes while we look is not forgotten, as it would be if we looked first.
        let looked = stream.try_io(Interest::READABLE, || match same.peek(bytes)? {
            0 => Ok(More::Left),
            count if count > seen => Ok(More::Seen(count)),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        });
        match looked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if ready.is_read_closed() {
                    return Ok(More::NoneEver);
                }
            }
            looked => return looked,
        }
    }
}

/// What a wait comes to, and the client's stream; nothing if the client has left meanwhile.
pub async fn unless_left<T>(
    stream: TcpStream,
    half: bool,
    wait: impl Future<Output = T>,
) -> Option<(T, TcpStream)> {
    let mut wait = pin!(wait);
    // Whoever need not wait need not be watched.
    if let Some(done) = wait.as_mut().now_or_never() {
        return Some((done, stream));
    }
    let done = tokio::select! {
        done = wait => done,
        () = left(&stream, half) => return None,
    };
    Some((done, reminded(stream).ok()?))
}

/// Resolves when the client has left: closed for good, or closed its side without a word, or with one
/// unless `half` is a way of its protocol to end a request. Its bytes stay where they are.
pub async fn left(stream: &TcpStream, half: bool) {
    loop {
        let Ok(ready) = stream.ready(Interest::READABLE | Interest::ERROR).await else {
            return;
        };
        if ready.is_write_closed() || ready.is_error() || (ready.is_read_closed() && !half) {
            return;
        }
        if ready.is_read_closed() {
            if !matches!(stream.peek(&mut [0]).await, Ok(1..)) {
                return;
            }
            // Half closed for ever: only an error is news now, a reset or that it is dead.
            let _ = stream.ready(Interest::ERROR).await;
            return;
        }
        forget_readiness(stream);
    }
}

/// A stream that knows of its bytes again, after its readiness was forgotten.
pub fn reminded(stream: TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(stream.into_std()?)
}

/// The next edge counts, not what is there already.
fn forget_readiness(stream: &TcpStream) {
    let would_block = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
    let _ = stream.try_io(Interest::READABLE, would_block);
}

#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Is(Spoken),
    /// As far as it goes.
    MayBe(Spoken),
}

fn judge(bytes: &[u8]) -> Judged {
    if bytes.starts_with(OPENING) {
        return Judged::Is(Spoken::Http2);
    }
    if OPENING.starts_with(bytes) {
        return Judged::MayBe(Spoken::Http2);
    }
    let is_method = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'-';
    let method = bytes.iter().take_while(|byte| is_method(byte)).count();
    match &bytes[method..] {
        _ if !(1..MAX_METHOD).contains(&method) => Judged::Is(Spoken::Opaque),
        [] | [b' '] => Judged::MayBe(Spoken::Http1),
        [b' ', b'/' | b'*', ..] => Judged::Is(Spoken::Http1),
        [b' ', rest @ ..] => absolute(rest),
        _ => Judged::Is(Spoken::Opaque),
    }
}

/// A target in absolute form.
fn absolute(target: &[u8]) -> Judged {
    let schemes: [&[u8]; 2] = [b"http://", b"https://"];
    let lower = target[..target.len().min(8)].to_ascii_lowercase();
    if schemes.iter().any(|scheme| lower.starts_with(scheme)) {
        Judged::Is(Spoken::Http1)
    } else if schemes.iter().any(|scheme| scheme.starts_with(&lower)) {
        Judged::MayBe(Spoken::Http1)
    } else {
        Judged::Is(Spoken::Opaque)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{io::AsyncWriteExt, net::TcpListener, time::timeout};

    const SHORT: Duration = Duration::from_millis(200);

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.unwrap(), accepted.unwrap().0)
    }

    #[test]
    fn protocols_are_told_by_their_first_bytes() {
        for (bytes, spoken) in [
            (&b"GET / HTTP/1.1\r\n"[..], Spoken::Http1),
            (b"OPTIONS * HTTP/1.1\r\n", Spoken::Http1),
            (b"VERSION-CONTROL /x HTTP/1.1", Spoken::Http1),
            (b"GET http://web.shop/ HTTP/1.1", Spoken::Http1),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Spoken::Http2),
            (b"\x16\x03\x01\x02\x00\x01", Spoken::Opaque),
            (b"AUTH LOGIN\r\n", Spoken::Opaque),
            (b"*1\r\n$4\r\nPING\r\n", Spoken::Opaque),
            (b"SSH-2.0-OpenSSH_9.2\r\n", Spoken::Opaque),
            (b"ehlo me\r\n", Spoken::Opaque),
        ] {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(judge(bytes), Judged::Is(spoken), "{text:?}");
        }
        assert_eq!(judge(b"PRI * HT"), Judged::MayBe(Spoken::Http2));
        assert_eq!(judge(b"PR"), Judged::MayBe(Spoken::Http2));
        assert_eq!(judge(b"GE"), Judged::MayBe(Spoken::Http1));
    }

    #[tokio::test]
    async fn a_preface_in_pieces_is_waited_for_and_nothing_is_consumed() {
        let (mut client, server) = pair().await;
        client.write_all(b"PRI * HT").await.unwrap();
        let (spoken, ()) = tokio::join!(peek(&server, Duration::from_secs(5)), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            client.write_all(b"TP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        });
        assert_eq!(spoken.unwrap(), Some(Spoken::Http2));
        let mut all = [0; 24];
        assert_eq!(server.peek(&mut all).await.unwrap(), 24);
        assert!(has_preface(&server, SHORT).await);
    }

    #[tokio::test]
    async fn half_a_preface_is_waited_for_and_no_longer() {
        let (mut client, server) = pair().await;
        client.write_all(OPENING).await.unwrap();
        assert_eq!(peek(&server, SHORT).await.unwrap(), Some(Spoken::Http2));
        assert!(!has_preface(&server, SHORT).await);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_closes_in_the_middle_of_a_word_is_not_waited_for() {
        let (mut client, server) = pair().await;
        client.write_all(b"GE").await.unwrap();
        client.shutdown().await.unwrap();
        let begun = tokio::time::Instant::now();
        let spoken = peek(&server, Duration::from_secs(3600)).await.unwrap();
        assert_eq!(spoken, Some(Spoken::Http1));
        assert!(begun.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test]
    async fn whoever_says_nothing_may_wait_for_the_server_to_speak() {
        let (_client, server) = pair().await;
        let spoken = peek(&server, SHORT).await.unwrap();
        assert_eq!(spoken, Some(Spoken::Silence));
    }

    #[tokio::test]
    async fn a_slow_first_word_is_http_all_the_same() {
        let (mut client, server) = pair().await;
        client.write_all(b"G").await.unwrap();
        let spoken = peek(&server, SHORT).await.unwrap();
        assert_eq!(spoken, Some(Spoken::Http1));
    }

    #[tokio::test]
    async fn whoever_leaves_without_a_word_is_nobody() {
        let (client, server) = pair().await;
        drop(client);
        assert_eq!(peek(&server, SHORT).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_leaves_after_the_machine_stood_still_is_nobody() {
        let (client, server) = pair().await;
        let looked = tokio::spawn(async move { peek(&server, SHORT).await });
        tokio::task::yield_now().await;
        tokio::time::advance(100 * SHORT).await;
        drop(client);
        assert_eq!(looked.await.unwrap().unwrap(), None);
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_noticed_though_its_bytes_are_not_read() {
        let (mut client, server) = pair().await;
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        peek(&server, SHORT).await.unwrap();
        let stays = timeout(SHORT, left(&server, false)).await;
        assert!(stays.is_err(), "it is still there");
        client.write_all(b"Host: web\r\n").await.unwrap();
        let stays = timeout(SHORT, left(&server, false)).await;
        assert!(stays.is_err(), "more bytes are no farewell");
        drop(client);
        timeout(SHORT, left(&server, false)).await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_closed_its_side_stays_where_that_is_usual() {
        let (mut client, server) = pair().await;
        client.write_all(b"request").await.unwrap();
        client.shutdown().await.unwrap();
        let stays = timeout(SHORT, left(&server, true)).await;
        assert!(stays.is_err(), "it waits for the answer");
        timeout(SHORT, left(&server, false)).await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_closed_its_side_and_is_no_more_has_left() {
        let (mut client, server) = pair().await;
        client.write_all(b"request").await.unwrap();
        client.shutdown().await.unwrap();
        let stays = timeout(SHORT, left(&server, true)).await;
        assert!(stays.is_err(), "it waits for the answer");
        client.set_zero_linger().unwrap();
        drop(client);
        timeout(SHORT, left(&server, true)).await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_closed_its_side_without_a_word_has_left() {
        let (client, server) = pair().await;
        let stays = timeout(SHORT, left(&server, true)).await;
        assert!(stays.is_err(), "it waits for the server to speak");
        drop(client);
        timeout(SHORT, left(&server, true)).await.unwrap();
    }
}
