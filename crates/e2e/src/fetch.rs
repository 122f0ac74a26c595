use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, Uri, body::Bytes, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The body of a plain HTTP answer.
pub async fn fetch(url: &str) -> Result<String> {
    let uri: Uri = url.parse()?;
    let host = uri.host().with_context(|| format!("{url} has no host"))?;
    let address = host.trim_matches(['[', ']']);
    let stream = TcpStream::connect((address, uri.port_u16().unwrap_or(80)))
        .await
        .with_context(|| format!("connecting to {host}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(HOST, host)
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let answer = sender.send_request(request).await?;
        ensure!(
            answer.status().is_success(),
            "{url} answered {}",
            answer.status()
        );
        let body = answer.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8(body.into())?)
    };
    tokio::pin!(exchange);
    tokio::select! {
        outcome = &mut exchange => outcome,
        ended = connection => {
            ended?;
            exchange.await
        }
    }
}
