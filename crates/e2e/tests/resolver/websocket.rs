use anyhow::{Context, Result, ensure};
use elasti_e2e::stage::Whole;
use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::{client_async, tungstenite::Message};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_websocket_opens_when_its_target_is_awake_and_stays_open() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let address = whole.stage.reach("web", 80).await?;
        let stream = TcpStream::connect(address).await?;
        let (mut socket, _) = client_async(format!("ws://{address}/chat"), stream).await?;
        for word in ["one", "two", "three"] {
            socket.send(Message::text(word)).await?;
            let answer = socket.next().await.context("it stays open")??;
            ensure!(answer == Message::text(word), "{answer:?}");
        }
        socket.close(None).await?;
        while let Some(message) = socket.next().await {
            ensure!(message?.is_close(), "an orderly end");
        }
        Ok(())
    })
}
