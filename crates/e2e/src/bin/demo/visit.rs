//! What a visitor says to each of them, and hears.

use anyhow::{Context, Result, ensure};
use elasti_e2e::grpc::{call, message};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) async fn visit(name: &str, address: &str) -> Result<String> {
    match name {
        "greeter" => grpc(address).await,
        "store" => tcp(address).await,
        _ => Ok(elasti_e2e::fetch(&format!("http://{address}/hello")).await?),
    }
}

async fn grpc(address: &str) -> Result<String> {
    let stream = TcpStream::connect((address, 80)).await?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let answer = sender
        .send_request(call(Full::new(message("hello")))?)
        .await?
        .into_body()
        .collect()
        .await?;
    let status = answer.trailers().and_then(|all| all.get("grpc-status"));
    let status = status.context("a gRPC answer ends with a status")?;
    ensure!(status == "0", "grpc-status {status:?}");
    Ok("grpc-status 0".into())
}

async fn tcp(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect((address, 80)).await?;
    stream.write_all(b"hello over TCP").await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
