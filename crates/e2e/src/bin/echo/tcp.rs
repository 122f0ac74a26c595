use crate::http;
use anyhow::Result;
use tokio::{
    io::{AsyncWriteExt, copy},
    net::TcpStream,
};

pub(crate) const GREETING: &str = "220 echo\r\n";

/// Says its greeting first, then all that it hears, until the other side has no more to say. Whoever says nothing only
/// wanted to know whether somebody listens.
pub(crate) async fn echo(mut stream: TcpStream, greeting: &str) -> Result<()> {
    stream.write_all(greeting.as_bytes()).await?;
    if stream.peek(&mut [0]).await? > 0 {
        http::count();
    }
    let (mut from, mut to) = stream.split();
    copy(&mut from, &mut to).await?;
    Ok(to.shutdown().await?)
}
