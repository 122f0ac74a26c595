use super::sleeping_gated;
use anyhow::{Result, ensure};
use elasti_e2e::{
    fetch,
    stage::{Meter, Whole},
};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn whoever_is_held_keeps_a_target_up_that_is_long_not_ready() -> Result<()> {
    elasti_e2e::test(async |place| {
        let mut whole = Whole::set(place).await?;
        let meter = Meter::idle(place).await?;
        sleeping_gated(&whole.stage).await?;
        let idle = json!({"triggers": meter.triggers(), "hold": {"timeout": "180s"}});
        whole.stage.amend("web", idle).await?;
        let url = format!("http://{}/", whole.stage.reach("web", 80).await?);
        let play = async {
            whole.until_held("web", 1).await?;
            whole.stage.scaled_to("web", 1).await?;
            let generation = whole.stage.generation("web").await?;
            // Who leads then has heard of nobody.
            sleep(Duration::from_secs(30)).await;
            whole.end_operator()?;
            whole.start_operator().await?;
            sleep(Duration::from_secs(70)).await;
            let now = whole.stage.generation("web").await?;
            ensure!(now == generation, "scaled while somebody waited");
            whole.stage.open("web").await?;
            Ok(())
        };
        let (answer, ()) = tokio::try_join!(fetch(&url), play)?;
        ensure!(answer == "GET /\n", "{answer:?}");
        Ok(())
    })
}
