//! The health protocol of gRPC.

use super::{Fault, MOST, USER_AGENT, carried};
use http::{Request, Version, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use tokio::net::TcpStream;

const SERVING: u8 = 1;

pub(super) async fn passes(
    stream: TcpStream,
    socket: SocketAddr,
    service: &str,
) -> Result<bool, Fault> {
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await?;
    let uri = format!("http://{socket}/grpc.health.v1.Health/Check");
    let request = Request::post(uri)
        .version(Version::HTTP_2)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, USER_AGENT)
        .body(Full::new(question(service)))?;
    let asked = async {
        let answer = sender.send_request(request).await?;
        Limited::new(answer.into_body(), MOST).collect().await
    };
    let answer = carried(asked, connection).await?;
    Ok(serves(&answer.to_bytes()))
}

/// One message: not compressed, its length, and field 1, the service's name.
fn question(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0];
    let length = u32::try_from(message.len()).unwrap_or_default();
    framed.extend_from_slice(&length.to_be_bytes());
    framed.append(&mut message);
    framed.into()
}

/// One message whose field 1 says so.
fn serves(answer: &[u8]) -> bool {
    matches!(answer, [0, 0, 0, 0, 2, 0x08, SERVING])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_that_serves_passes() {
        assert_eq!(&question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&question("a")[..], [0, 0, 0, 0, 3, 0x0a, 1, b'a']);
        assert!(serves(&[0, 0, 0, 0, 2, 8, 1]));
        assert!(!serves(&[0, 0, 0, 0, 2, 8, 2]), "NOT_SERVING");
        assert!(!serves(&[0, 0, 0, 0, 0]), "UNKNOWN");
        assert!(!serves(&[]), "an error");
    }
}
