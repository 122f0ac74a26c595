use super::slices::Change;
use crate::Manner;
use jiff::Timestamp;
use std::{error::Error, fmt, io, time::Duration};
use tokio_tungstenite::tungstenite::{self, error::ProtocolError};

/// A visit that came to nothing.
pub(super) struct Loss {
    pub(super) service: &'static str,
    pub(super) manner: Manner,
    pub(super) failure: Failure,
    pub(super) why: String,
    pub(super) waited: Duration,
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
    /// What became of the service's endpoints before.
    pub(super) slices: Vec<Change>,
}

/// What a client sees of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failure {
    /// Nobody took the connection.
    Refused,
    /// Somebody took it, and it was closed or reset before the end.
    Cut,
    Silence,
    /// An answer, but not the one that was asked for.
    Wrong,
}

// === impl Loss ===

impl Loss {
    pub(super) fn kind(&self) -> String {
        let Self {
            service,
            manner,
            failure,
            ..
        } = self;
        format!("{service} {manner:?} {failure:?}")
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {:.1?} from {:.3} to {:.3}: {}",
            self.kind(),
            self.waited,
            self.began,
            self.ended,
            self.why
        )?;
        self.slices
            .iter()
            .try_for_each(|change| write!(f, "\n  {change}"))
    }
}

// === impl Failure ===

impl Failure {
    /// The innermost cause knows best.
    pub(super) fn of(error: &anyhow::Error) -> Self {
        let told = error.chain().filter_map(told);
        told.last().unwrap_or(Self::Wrong)
    }
}

fn told(cause: &(dyn Error + 'static)) -> Option<Failure> {
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return told_by_socket(error);
    }
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        let cut = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
        return cut.then_some(Failure::Cut);
    }
    if let Some(error) = cause.downcast_ref::<h2::Error>() {
        let told = error.get_io().and_then(told_by_socket);
        return Some(told.unwrap_or(Failure::Wrong));
    }
    match cause.downcast_ref::<tungstenite::Error>()? {
        tungstenite::Error::ConnectionClosed
        | tungstenite::Error::AlreadyClosed
        | tungstenite::Error::Protocol(
            ProtocolError::HandshakeIncomplete | ProtocolError::ResetWithoutClosingHandshake,
        ) => Some(Failure::Cut),
        _ => None,
    }
}

fn told_by_socket(error: &io::Error) -> Option<Failure> {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(Failure::Refused),
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::NotConnected
        | io::ErrorKind::UnexpectedEof => Some(Failure::Cut),
        io::ErrorKind::TimedOut => Some(Failure::Silence),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        client::{get, http1, http2},
        fetch, grpc,
    };
    use anyhow::Result;
    use http_body_util::Full;
    use hyper::body::Bytes;
    use std::net::SocketAddr;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };
    use tokio_tungstenite::client_async;

    /// What a client makes of somebody who listens for a few bytes and says a few, or is gone.
    async fn met(ask: impl AsyncFn(SocketAddr) -> Result<()>, words: &[u8]) -> Failure {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 8]).await;
            stream.write_all(words).await.unwrap();
            (!words.is_empty()).then_some(stream)
        };
        let (asked, _stream) = tokio::join!(ask(address), answer);
        Failure::of(&asked.unwrap_err())
    }

    async fn plain(address: SocketAddr) -> Result<()> {
        fetch(&format!("http://{address}/")).await.map(drop)
    }

    async fn kept(address: SocketAddr) -> Result<()> {
        let mut client = http1(address).await?;
        Ok(client.send_request(get("/")?).await.map(drop)?)
    }

    async fn call(address: SocketAddr) -> Result<()> {
        let mut client = http2(address).await?;
        let call = grpc::call(Full::<Bytes>::default())?;
        Ok(client.send_request(call).await.map(drop)?)
    }

    async fn chat(address: SocketAddr) -> Result<()> {
        let stream = TcpStream::connect(address).await?;
        Ok(client_async("ws://web/chat", stream).await.map(drop)?)
    }

    #[tokio::test]
    async fn a_connection_that_is_cut_is_known_as_such() {
        assert_eq!(met(plain, b"").await, Failure::Cut);
        assert_eq!(met(kept, b"").await, Failure::Cut);
        assert_eq!(met(call, b"").await, Failure::Cut);
        assert_eq!(met(chat, b"").await, Failure::Cut);
    }

    #[tokio::test]
    async fn an_error_in_words_is_no_cut() {
        let refusal = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(met(plain, refusal).await, Failure::Wrong);
        assert_eq!(met(chat, refusal).await, Failure::Wrong);
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 2];
        let words = [&settings[..], &reset].concat();
        assert_eq!(met(call, &words).await, Failure::Wrong);
    }

    #[tokio::test]
    async fn nobody_there_is_no_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = plain(address).await.unwrap_err();
        assert_eq!(Failure::of(&error), Failure::Refused);
    }
}
