use anyhow::{Context, Result, ensure};
use elasti_e2e::{
    fetch,
    stage::{Cast, PATIENCE, Whole},
};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn whoever_sends_a_byte_a_second_is_sent_away_and_hinders_nobody() -> Result<()> {
    elasti_e2e::test(async |place| {
        let hasty = Cast::default().resolver_flag("head-timeout", "2s");
        let whole = Whole::with(place, hasty).await?;
        whole.stage.sleeping().await?;
        let address = whole.stage.reach("web", 80).await?;
        let url = format!("http://{address}/");
        let slow = timeout(PATIENCE, drips(address));
        let (slow, answer) = tokio::join!(slow, fetch(&url));
        ensure!(answer? == "GET /\n");
        let slow = slow.context("nobody sends it away")??;
        ensure!(!slow.starts_with("HTTP/1.1 200"), "{slow}");
        Ok(())
    })
}

/// What somebody is told who sends a request byte by byte.
async fn drips(address: SocketAddr) -> Result<String> {
    let (mut from, mut to) = TcpStream::connect(address).await?.into_split();
    let mut told = Vec::new();
    let speak = async {
        let head = "GET / HTTP/1.1\r\nHost: web\r\nX-Slow: ".bytes();
        for byte in head.chain(std::iter::repeat(b'.')) {
            if to.write_all(&[byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        // It is over; what was said before that is read.
        std::future::pending().await
    };
    tokio::select! {
        _ = from.read_to_end(&mut told) => {}
        () = speak => {}
    }
    Ok(String::from_utf8(told)?)
}
