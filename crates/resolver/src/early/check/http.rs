//! A request, and where it leads.

use super::{Fault, MOST, USER_AGENT, carried, tls::TRUSTING};
use elasti_api::HttpCheck;
use http::{
    HeaderName, HeaderValue, Request, StatusCode, Uri,
    header::{self, HeaderMap},
    response::Parts,
    uri::PathAndQuery,
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::rustls::pki_types::ServerName;

/// Where on a pod.
struct Place {
    tls: bool,
    socket: SocketAddr,
    path: PathAndQuery,
    headers: HeaderMap,
}

const REQUESTS: usize = 10;
const REDIRECTS: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];
/// Not sent with what has no body.
const OF_BODIES: [HeaderName; 3] = [
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TRAILER,
];

/// Redirects are followed on the pod itself; one to somebody else is a pass.
pub(super) async fn passes(
    stream: TcpStream,
    socket: SocketAddr,
    action: &HttpCheck,
) -> Result<bool, Fault> {
    let mut place = Place {
        tls: action.tls,
        socket,
        path: action.path.parse()?,
        headers: headers(socket, action),
    };
    let mut answer = place.get(stream).await?;
    for _ in 1..REQUESTS {
        let location = answer.headers.get(header::LOCATION);
        let location = location.filter(|location| !location.is_empty());
        match location {
            Some(location) if REDIRECTS.contains(&answer.status) => {
                if !place.moves(location.to_str()?)? {
                    return Ok(true);
                }
            }
            _ => return Ok(answer.status.is_success() || answer.status.is_redirection()),
        }
        answer = place.get(TcpStream::connect(place.socket).await?).await?;
    }
    Ok(false)
}

/// The given ones are sent, repeated ones, too. They take the place of the usual ones, and empty that place.
fn headers(socket: SocketAddr, action: &HttpCheck) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for given in &action.headers {
        if let (Ok(name), Ok(value)) = (
            given.name.parse::<HeaderName>(),
            given.value.parse::<HeaderValue>(),
        ) && !OF_BODIES.contains(&name)
            && (name != header::HOST || !value.is_empty())
        {
            headers.append(name, value);
        }
    }
    for (name, usual) in [
        (header::USER_AGENT, USER_AGENT),
        (header::ACCEPT, "*/*"),
        (header::HOST, &*socket.to_string()),
    ] {
        let first = headers.get(&name).cloned();
        match first {
            Some(first) if name != header::ACCEPT => drop(headers.insert(&name, first)),
            Some(_) => {}
            None => drop(usual.parse().map(|usual| headers.insert(&name, usual))),
        }
        if headers.get(&name).is_some_and(HeaderValue::is_empty) {
            headers.remove(&name);
        }
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers
}

// === impl Place ===

impl Place {
    async fn get(&self, stream: TcpStream) -> Result<Parts, Fault> {
        if !self.tls {
            return self.get_over(stream).await;
        }
        let name = ServerName::from(self.socket.ip());
        let trusting = TRUSTING.as_ref().ok_or("no TLS")?;
        self.get_over(trusting.connect(name, stream).await?).await
    }

    async fn get_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Parts, Fault> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get(Uri::from(self.path.clone()));
        let mut request = request.body(Full::<Bytes>::default())?;
        *request.headers_mut() = self.headers.clone();
        let asked = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            match Limited::new(body, MOST).collect().await {
                Err(error) if !error.is::<LengthLimitError>() => Err(error),
                _ => Ok(head),
            }
        };
        carried(asked, connection).await
    }

    /// Whether that is on the pod. What is not understood is an error, and Kubernetes may follow it.
    fn moves(&mut self, location: &str) -> Result<bool, Fault> {
        let location = location.split('#').next().unwrap_or_default();
        let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let absolute = match location.split_once("://") {
            Some((scheme, _)) if is_scheme(scheme) => Some(location.to_owned()),
            _ if location.starts_with("//") => {
                let scheme = if self.tls { "https" } else { "http" };
                Some(format!("{scheme}:{location}"))
            }
            _ => None,
        };
        match absolute {
            Some(absolute) => self.moves_to(&absolute.parse()?),
            None => self.stays(location).map(|()| true),
        }
    }

    fn moves_to(&mut self, uri: &Uri) -> Result<bool, Fault> {
        let authority = uri.authority().ok_or("nowhere")?;
        if authority.host().trim_matches(['[', ']']).parse() != Ok(self.socket.ip()) {
            return Ok(false);
        }
        self.tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("an unknown scheme".into()),
        };
        let usual = if self.tls { 443 } else { 80 };
        self.socket.set_port(uri.port_u16().unwrap_or(usual));
        self.path = uri.path_and_query().cloned().ok_or("no path")?;
        self.headers
            .insert(header::HOST, authority.as_str().parse()?);
        Ok(true)
    }

    fn stays(&mut self, location: &str) -> Result<(), Fault> {
        let here = self.path.path();
        let folder = here.rsplit_once('/').map_or("", |(folder, _)| folder);
        let path = match location.chars().next() {
            Some('/') => location.to_owned(),
            None | Some('?') => format!("{here}{location}"),
            Some(_) => format!("{folder}/{location}"),
        };
        let steps = path.split('?').next().unwrap_or_default();
        if steps.split('/').any(|step| matches!(step, "." | "..")) {
            return Err("steps back".into());
        }
        self.path = path.parse()?;
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use elasti_api::HttpCheckHeader;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    pub(crate) fn action(headers: &[(&str, &str)]) -> HttpCheck {
        let header = |(name, value): &(&str, &str)| HttpCheckHeader {
            name: (*name).into(),
            value: (*value).into(),
        };
        HttpCheck {
            tls: false,
            path: "/deep/health?full".into(),
            headers: headers.iter().map(header).collect(),
        }
    }

    /// Whether it passes, and the first lines of what was asked. `HERE` is where.
    async fn answered(answers: &[&str]) -> (bool, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = listener.local_addr().unwrap();
        let stream = TcpStream::connect(socket).await.unwrap();
        let mut asked = Vec::new();
        let serve = async {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1_024];
                let length = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]);
                asked.push(request.split(" HTTP").next().unwrap().to_owned());
                let answer = answer.replace("HERE", &socket.to_string());
                let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let action = action(&[]);
        let passed = tokio::select! {
            passed = passes(stream, socket, &action) => passed.unwrap_or(false),
            () = serve => false,
        };
        (passed, asked)
    }

    #[tokio::test]
    async fn a_status_from_200_to_399_passes() {
        for (answer, passes) in [
            ("200 OK", true),
            ("304 Not Modified", true),
            ("302 Found", true),
            ("503 Service Unavailable", false),
            ("404 Not Found", false),
        ] {
            assert_eq!(answered(&[answer]).await.0, passes, "{answer}");
        }
    }

    #[tokio::test]
    async fn a_redirect_is_followed_on_the_pod() {
        for (location, way) in [
            ("/ready", "/ready"),
            ("ready", "/deep/ready"),
            (
                "ready?next=http://example.com/",
                "/deep/ready?next=http://example.com/",
            ),
            ("?short", "/deep/health?short"),
            ("//HERE/ready#top", "/ready"),
            ("http://HERE", "/"),
        ] {
            let moved = format!("302 Found\r\nLocation: {location}");
            for (answer, passes) in [("200 OK", true), ("503 No", false)] {
                let (passed, asked) = answered(&[&moved, answer]).await;
                assert_eq!(asked, ["GET /deep/health?full", &format!("GET {way}")]);
                assert_eq!(passed, passes, "{location}");
            }
        }
        let around = ["302 Found\r\nLocation: /"; REQUESTS];
        assert!(!answered(&around).await.0, "round and round");
    }

    #[tokio::test]
    async fn a_redirect_elsewhere_is_a_pass_and_one_that_nobody_understands_is_not() {
        let moved = async |location: &str| {
            let moved = format!("302 Found\r\nLocation: {location}");
            answered(&[&moved]).await.0
        };
        assert!(moved("http://example.com/").await);
        assert!(moved("//example.com/").await);
        assert!(!moved("../ready").await);
        assert!(!moved("http://[/").await);
        assert!(!moved("gopher://HERE/").await);
    }

    #[test]
    fn a_redirect_may_lead_to_another_door_of_the_pod() {
        let mut place = Place {
            tls: false,
            socket: "[fd00::1]:8080".parse().unwrap(),
            path: PathAndQuery::from_static("/"),
            headers: HeaderMap::new(),
        };
        assert!(place.moves("https://[fd00::1]/ready").unwrap());
        assert_eq!(place.socket.to_string(), "[fd00::1]:443");
        assert_eq!((place.tls, place.path.path()), (true, "/ready"));
        assert_eq!(place.headers[header::HOST], "[fd00::1]");
    }

    #[test]
    fn headers_are_those_of_the_kubelet() {
        let sent = |given: &[(&str, &str)]| {
            let headers = headers("10.0.0.1:80".parse().unwrap(), &action(given));
            let mut lines: Vec<String> = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            lines.sort();
            lines
        };
        let agent = format!("user-agent: {USER_AGENT}");
        let usual = [
            "accept: */*",
            "connection: close",
            "host: 10.0.0.1:80",
            &agent,
        ];
        assert_eq!(sent(&[]), usual);
        let given = [
            ("Host", "web"),
            ("Host", "other"),
            ("User-Agent", ""),
            ("Accept", "text/plain"),
            ("Accept", "text/html"),
            ("X-Part", "1"),
            ("x-part", "2"),
            ("Content-Length", "5"),
        ];
        let wanted = [
            "accept: text/html",
            "accept: text/plain",
            "connection: close",
            "host: web",
            "x-part: 1",
            "x-part: 2",
        ];
        assert_eq!(sent(&given), wanted);
    }
}
