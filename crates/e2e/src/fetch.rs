use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, Uri, body::Bytes, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The body of a plain HTTP answer.
pub async fn fetch(url: &str) -> Result<String> {
    let answer = exchange(Request::get(url).body(Full::default())?).await?;
    ensure!(
        answer.status().is_success(),
        "{url} answered {}",
        answer.status()
    );
    Ok(answer.into_body())
}

/// One request on a connection of its own, and the whole answer to it.
pub async fn exchange(mut request: Request<Full<Bytes>>) -> Result<Response<String>> {
    let uri = request.uri().clone();
    let host = uri.host().with_context(|| format!("{uri} has no host"))?;
    let address = host.trim_matches(['[', ']']);
    let stream = TcpStream::connect((address, uri.port_u16().unwrap_or(80)))
        .await
        .with_context(|| format!("connecting to {host}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = Uri::try_from(path)?;
    request.headers_mut().entry(HOST).or_insert(host.parse()?);
    let exchange = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().into())?;
        Ok(Response::from_parts(parts, body))
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
