//! Somebody who uses a service, in every way of speaking that there is.

use crate::{
    client::{get, http1, http1_on, http2, text},
    exchange, fetch, grpc,
    stage::{courteous, service, workload},
};
use anyhow::{Context, Result, ensure};
use futures::{SinkExt, StreamExt, channel::mpsc};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    client::conn::http1::SendRequest,
};
use parking_lot::Mutex;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName},
    },
};
use tokio_tungstenite::{client_async, tungstenite::Message};

pub const HTTP: u16 = 80;
const ECHO: u16 = 7;
const GREETING: u16 = 25;
const HTTPS: u16 = 443;
const NAME: &str = "web.shop";
/// What the application says where it speaks first.
const GREETS: &[u8] = b"220 echo\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Http1,
    Upload,
    KeptAlive,
    Http2,
    Grpc,
    GrpcStream,
    WebSocket,
    Events,
    Tcp,
    ServerFirst,
    Tls,
}

/// A certificate with its key, for the application and for those who trust it.
pub struct Identity(CertifiedKey<KeyPair>);

pub struct Visitor {
    address: IpAddr,
    tls: TlsConnector,
    kept: Mutex<Option<Kept>>,
}

type Kept = SendRequest<Full<Bytes>>;

// === impl Manner ===

impl Manner {
    pub const ALL: [Self; 11] = [
        Self::Http1,
        Self::Upload,
        Self::KeptAlive,
        Self::Http2,
        Self::Grpc,
        Self::GrpcStream,
        Self::WebSocket,
        Self::Events,
        Self::Tcp,
        Self::ServerFirst,
        Self::Tls,
    ];
}

// === impl Identity ===

impl Identity {
    pub fn make() -> Result<Self> {
        Ok(Self(generate_simple_self_signed([NAME.to_owned()])?))
    }

    /// The application behind a service that can be spoken to in every manner.
    pub fn application(&self, name: &str, image: &str, farewell: u32) -> [Value; 2] {
        let mut pods = courteous(workload(name, "Deployment", 1, image), farewell);
        let container = &mut pods["spec"]["template"]["spec"]["containers"][0];
        container["args"] = json!(["tcp=9000", "greeting=9001", "tls=8443"]);
        // A machine that stands still for a moment makes no pod unready.
        container["readinessProbe"]["timeoutSeconds"] = json!(5);
        container["readinessProbe"]["failureThreshold"] = json!(10);
        container["env"] = json!([
            {"name": "ECHO_CERTIFICATE", "value": self.0.cert.pem()},
            {"name": "ECHO_KEY", "value": self.0.signing_key.serialize_pem()},
        ]);
        let ports = json!([
            {"name": "http", "port": HTTP, "targetPort": 8080},
            {"name": "echo", "port": ECHO, "targetPort": 9000},
            {"name": "greeting", "port": GREETING, "targetPort": 9001, "appProtocol": "smtp"},
            {"name": "https", "port": HTTPS, "targetPort": 8443, "appProtocol": "https"},
        ]);
        [pods, service(name, name, &ports)]
    }

    pub fn visitor(&self, address: IpAddr) -> Result<Visitor> {
        Ok(Visitor {
            address,
            tls: tls(self.0.cert.der().clone())?,
            kept: Mutex::default(),
        })
    }
}

fn tls(trusted: CertificateDer<'static>) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

// === impl Visitor ===

impl Visitor {
    /// Asks something and makes sure that the answer is whole.
    pub async fn ask(&self, manner: Manner) -> Result<()> {
        let asking = async {
            match manner {
                Manner::Http1 => self.http1().await,
                Manner::Upload => self.upload().await,
                Manner::KeptAlive => self.kept_alive().await,
                Manner::Http2 => self.http2().await,
                Manner::Grpc => self.grpc().await,
                Manner::GrpcStream => self.grpc_stream().await,
                Manner::WebSocket => self.websocket().await,
                Manner::Events => self.events().await,
                Manner::Tcp => self.tcp().await,
                Manner::ServerFirst => self.server_first().await,
                Manner::Tls => self.tls().await,
            }
        };
        asking.await.with_context(|| format!("{manner:?}"))
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }

    async fn connect(&self, port: u16) -> Result<TcpStream> {
        let stream = TcpStream::connect(self.at(port)).await;
        stream.context("connecting")
    }

    async fn http1(&self) -> Result<()> {
        let answer = fetch(&format!("http://{}/hello", self.at(HTTP))).await?;
        is(&answer, "GET /hello\n")
    }

    async fn upload(&self) -> Result<()> {
        let body = "a line of a body\n".repeat(1_000);
        let request = Request::post(format!("http://{}/", self.at(HTTP)));
        let answer = exchange(request.body(Full::from(body.clone()))?).await?;
        is(answer.body(), &format!("POST /\n{body}"))
    }

    /// Goes on with the connection of last time. If that dies before it brings an answer, it asks again on a new one,
    /// as clients that keep connections do (RFC 9110, 9.2.2).
    async fn kept_alive(&self) -> Result<()> {
        let kept = self.kept.lock().take();
        let begun = match kept {
            Some(kept) => once_more(kept).await.ok(),
            None => None,
        };
        let (answer, connection) = match begun {
            Some(begun) => begun,
            None => once_more(http1(self.at(HTTP)).await?).await?,
        };
        is(&text(answer).await?, "GET /again\n")?;
        *self.kept.lock() = Some(connection);
        Ok(())
    }

    async fn http2(&self) -> Result<()> {
        let mut client = http2(self.at(HTTP)).await?;
        let request = Request::get("http://web/two").body(Full::<Bytes>::default())?;
        is(
            &text(client.send_request(request).await?).await?,
            "GET /two\n",
        )
    }

    async fn grpc(&self) -> Result<()> {
        let mut client = http2(self.at(HTTP)).await?;
        let call = grpc::call(Full::new(grpc::message("hello")))?;
        let answer = client.send_request(call).await?.into_body();
        let answer = answer.collect().await?;
        let status = answer.trailers().and_then(|all| all.get("grpc-status"));
        ensure!(status.is_some_and(|status| status == "0"), "{status:?}");
        ensure!(answer.to_bytes() == grpc::message("hello"));
        Ok(())
    }

    async fn grpc_stream(&self) -> Result<()> {
        let mut client = http2(self.at(HTTP)).await?;
        let (messages, sent) = mpsc::unbounded::<Result<Frame<Bytes>, Infallible>>();
        let call = grpc::call(StreamBody::new(sent))?;
        let mut answers = client.send_request(call).await?.into_body();
        for word in ["one", "two"] {
            messages.unbounded_send(Ok(Frame::data(grpc::message(word))))?;
            let answer = frame(&mut answers).await?;
            ensure!(
                answer.data_ref() == Some(&grpc::message(word)),
                "{answer:?}"
            );
        }
        drop(messages);
        let end = frame(&mut answers).await?;
        let status = end.trailers_ref().and_then(|all| all.get("grpc-status"));
        ensure!(status.is_some_and(|status| status == "0"), "{end:?}");
        Ok(())
    }

    async fn websocket(&self) -> Result<()> {
        let stream = self.connect(HTTP).await?;
        let (mut socket, _) = client_async("ws://web/chat", stream).await?;
        for word in ["one", "two"] {
            socket.send(Message::text(word)).await?;
            let answer = socket.next().await.context("it stays open")??;
            ensure!(answer == Message::text(word), "{answer:?}");
        }
        socket.close(None).await?;
        while let Some(message) = socket.next().await {
            ensure!(message?.is_close(), "an orderly end");
        }
        Ok(())
    }

    /// Hears the first of them and leaves.
    async fn events(&self) -> Result<()> {
        let mut client = http1(self.at(HTTP)).await?;
        let mut events = client.send_request(get("/events")?).await?.into_body();
        let first = frame(&mut events).await?;
        let data = first.data_ref().context("data come first")?;
        is(&String::from_utf8_lossy(data), "data: first\n\n")
    }

    async fn tcp(&self) -> Result<()> {
        say(self.connect(ECHO).await?, b"\x00\x01ping").await
    }

    async fn server_first(&self) -> Result<()> {
        let mut stream = self.connect(GREETING).await?;
        let mut greeting = [0; GREETS.len()];
        stream.read_exact(&mut greeting).await?;
        ensure!(greeting == GREETS, "{greeting:?}");
        say(stream, b"quit").await
    }

    async fn tls(&self) -> Result<()> {
        let name = ServerName::try_from(NAME)?;
        let stream = self.tls.connect(name, self.connect(HTTPS).await?).await?;
        let mut client = http1_on(stream).await?;
        let answer = text(client.send_request(get("/secret")?).await?).await?;
        is(&answer, "GET /secret\n")
    }
}

/// Closes its side, and waits until the other has said the same and is done, too.
async fn say(mut stream: TcpStream, words: &[u8]) -> Result<()> {
    stream.write_all(words).await?;
    stream.shutdown().await?;
    let mut answer = vec![0; words.len()];
    stream.read_exact(&mut answer).await?;
    stream.read_to_end(&mut answer).await?;
    ensure!(answer == words, "{answer:?}");
    Ok(())
}

async fn once_more(mut connection: Kept) -> Result<(Response<Incoming>, Kept)> {
    let answer = connection.send_request(get("/again")?).await?;
    Ok((answer, connection))
}

async fn frame(body: &mut Incoming) -> Result<Frame<Bytes>> {
    Ok(body.frame().await.context("there is more to come")??)
}

fn is(answer: &str, wanted: &str) -> Result<()> {
    ensure!(answer == wanted, "the answer is {answer:?}");
    Ok(())
}
