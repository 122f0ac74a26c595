//! Clients that keep their connection.

use anyhow::Result;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Body, Bytes, Incoming},
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{error::Error, net::SocketAddr};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

pub async fn http1(address: SocketAddr) -> Result<http1::SendRequest<Full<Bytes>>> {
    http1_on(TcpStream::connect(address).await?).await
}

pub async fn http1_on<S>(stream: S) -> Result<http1::SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// By prior knowledge.
pub async fn http2<B>(address: SocketAddr) -> Result<http2::SendRequest<B>>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(address).await?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await?;
    tokio::spawn(connection);
    Ok(sender)
}

pub fn get(uri: &str) -> Result<Request<Full<Bytes>>> {
    let request = Request::get(uri).header("host", "web");
    Ok(request.body(Full::default())?)
}

pub async fn text(response: Response<Incoming>) -> Result<String> {
    let body = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(body.into())?)
}
