//! One probe, asked as the kubelet asks it.

use elasti_api::{HttpCheck, ReadinessCheck};
use http::{
    HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version,
    header::{self, HeaderMap},
    uri::PathAndQuery,
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{Arc, LazyLock},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, ServerName, UnixTime},
    },
};

const USER_AGENT: &str = concat!("kube-probe/elasti-", env!("CARGO_PKG_VERSION"));
/// As the kubelet.
const REDIRECTS: usize = 10;
/// Of an answer to a question for health.
const MOST: usize = 4_096;
/// In the health protocol of gRPC.
const SERVING: u8 = 1;

type Fault = Box<dyn std::error::Error + Send + Sync>;

pub(super) async fn connects(socket: SocketAddr, patience: Duration) -> bool {
    matches!(
        timeout(patience, TcpStream::connect(socket)).await,
        Ok(Ok(_))
    )
}

pub(super) async fn passes(address: IpAddr, check: &ReadinessCheck, patience: Duration) -> bool {
    let Ok(port) = check.port.try_into() else {
        return false;
    };
    let socket = SocketAddr::new(address, port);
    let asked = async {
        match (&check.http_get, &check.grpc) {
            (Some(action), _) => http(socket, action).await,
            (None, Some(action)) => grpc(socket, &action.service).await,
            (None, None) => Ok(TcpStream::connect(socket).await.map(|_| true)?),
        }
    };
    matches!(timeout(patience, asked).await, Ok(Ok(true)))
}

/// Redirects are followed to the pod itself; one to somebody else is a pass.
async fn http(socket: SocketAddr, action: &HttpCheck) -> Result<bool, Fault> {
    let mut path: PathAndQuery = action.path.parse()?;
    let headers = headers(socket, action);
    for _ in 0..REDIRECTS {
        let stream = TcpStream::connect(socket).await?;
        let answer = if action.tls {
            let name = ServerName::from(socket.ip());
            let trusting = TRUSTING.as_ref().ok_or("no TLS")?;
            let stream = trusting.connect(name, stream).await?;
            get(stream, &path, &headers).await?
        } else {
            get(stream, &path, &headers).await?
        };
        let status = answer.status();
        if !status.is_success() && !status.is_redirection() {
            return Ok(false);
        }
        match moved(&answer, socket) {
            Some(elsewhere) => path = elsewhere,
            None => return Ok(true),
        }
    }
    Ok(false)
}

/// Where to on the pod itself.
fn moved(answer: &Response<Incoming>, socket: SocketAddr) -> Option<PathAndQuery> {
    const FOLLOWED: [StatusCode; 5] = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    if !FOLLOWED.contains(&answer.status()) {
        return None;
    }
    let location: Uri = answer
        .headers()
        .get(header::LOCATION)?
        .to_str()
        .ok()?
        .parse()
        .ok()?;
    let here = location
        .host()
        .is_none_or(|host| host.trim_matches(['[', ']']).parse() == Ok(socket.ip()));
    here.then(|| location.path_and_query().cloned())?
}

fn headers(socket: SocketAddr, action: &HttpCheck) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(host) = HeaderValue::try_from(socket.to_string()) {
        headers.insert(header::HOST, host);
    }
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    for given in &action.headers {
        if let (Ok(name), Ok(value)) = (
            given.name.parse::<HeaderName>(),
            given.value.parse::<HeaderValue>(),
        ) {
            headers.insert(name, value);
        }
    }
    headers
}

async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &PathAndQuery,
    headers: &HeaderMap,
) -> Result<Response<Incoming>, Fault> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::get(Uri::from(path.clone())).body(Full::<Bytes>::default())?;
    *request.headers_mut() = headers.clone();
    Ok(carried(sender.send_request(request), connection).await?)
}

/// What is asked over a connection, which may end with the answer.
async fn carried<T>(asked: impl Future<Output = T>, connection: impl Future) -> T {
    let mut asked = pin!(asked);
    tokio::select! {
        answer = &mut asked => answer,
        _ = connection => asked.await,
    }
}

async fn grpc(socket: SocketAddr, service: &str) -> Result<bool, Fault> {
    let stream = TcpStream::connect(socket).await?;
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

/// The kubelet trusts any certificate, too: it asks whether the pod is ready, not who it is.
static TRUSTING: LazyLock<Option<TlsConnector>> = LazyLock::new(|| {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let config = builder
        .with_safe_default_protocol_versions()
        .map(|builder| {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
                .with_no_client_auth()
        });
    Some(TlsConnector::from(Arc::new(config.ok()?)))
});

#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    async fn answered(answers: &'static [&'static str]) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = listener.local_addr().unwrap();
        let serve = async {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1_024];
                let _ = stream.read(&mut request).await.unwrap();
                let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let action = HttpCheck {
            tls: false,
            path: "/".into(),
            headers: Vec::new(),
        };
        tokio::select! {
            passed = http(socket, &action) => passed.unwrap_or(false),
            () = serve => false,
        }
    }

    #[tokio::test]
    async fn a_status_from_200_to_399_passes() {
        assert!(answered(&["200 OK"]).await);
        assert!(answered(&["304 Not Modified"]).await);
        assert!(!answered(&["503 Service Unavailable"]).await);
        assert!(!answered(&["404 Not Found"]).await);
    }

    #[tokio::test]
    async fn a_redirect_is_followed_on_the_pod_only() {
        assert!(answered(&["302 Found\r\nLocation: /ready", "200 OK"]).await);
        assert!(!answered(&["302 Found\r\nLocation: /ready", "503 No"]).await);
        assert!(answered(&["302 Found\r\nLocation: http://example.com/"]).await);
    }

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
