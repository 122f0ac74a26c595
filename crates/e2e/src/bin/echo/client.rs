//! The other side, for use inside pods.

use anyhow::{Context, Result, ensure};
use elasti_e2e::{client::http2, fetch, grpc};
use http_body_util::{BodyExt, Full};
use std::io;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, lookup_host},
};

/// The answer; none where it is to serve.
pub(crate) async fn ask(words: &[&str]) -> Result<Option<String>> {
    let words = match words {
        ["wait", words @ ..] => {
            wait()?;
            words
        }
        words => words,
    };
    Ok(Some(match words {
        ["get", url] => fetch(url).await?,
        ["call", address] => call(address).await?,
        ["say", address, words] => say(address, words).await?,
        _ => return Ok(None),
    }))
}

/// Nothing else goes on here.
fn wait() -> Result<()> {
    let read = io::stdin().read_line(&mut String::new())?;
    ensure!(read > 0, "nobody said a line");
    Ok(())
}

/// By gRPC.
async fn call(address: &str) -> Result<String> {
    let found = lookup_host(address).await?.next();
    let mut client = http2(found.context("it has no address")?).await?;
    let call = grpc::call(Full::new(grpc::message("hello")))?;
    let answer = client.send_request(call).await?.into_body();
    let answer = answer.collect().await?;
    let status = answer.trailers().and_then(|all| all.get("grpc-status"));
    let status = status.context("a gRPC answer ends with a status")?;
    ensure!(status == "0", "grpc-status {status:?}");
    Ok("grpc-status 0\n".into())
}

/// By TCP.
async fn say(address: &str, words: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(words.as_bytes()).await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer + "\n")
}
