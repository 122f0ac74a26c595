use super::sleeping_gated;
use anyhow::{Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{fetch, stage::Whole};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use tokio::net::TcpStream;

const CLIENTS: usize = 5_000;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn thousands_that_connect_and_say_nothing_hinder_nobody() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        sleeping_gated(stage).await?;
        stage.deploy_as("shop", "Deployment", 0).await?;
        stage.declare_as("shop", json!({})).await?;
        stage.reaches_as("shop", Phase::Asleep, Mode::Proxy).await?;
        let (web, shop) = (
            stage.reach("web", 80).await?,
            stage.reach("shop", 80).await?,
        );
        let silent: Vec<TcpStream> = stream::iter(0..CLIENTS)
            .map(|_| TcpStream::connect(web))
            .buffer_unordered(100)
            .try_collect()
            .await?;
        whole.until_held("web", CLIENTS).await?;
        ensure!(fetch(&format!("http://{shop}/")).await? == "GET /\n");
        let url = format!("http://{web}/");
        let (answer, opened) = tokio::join!(fetch(&url), async {
            whole.until_held("web", CLIENTS + 1).await?;
            drop(silent);
            whole.until_held("web", 1).await?;
            stage.open("web").await
        });
        opened?;
        ensure!(answer? == "GET /\n");
        Ok(())
    })
}
