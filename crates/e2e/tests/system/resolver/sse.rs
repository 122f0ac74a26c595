use anyhow::{Context, Result, ensure};
use elasti_e2e::client::{get, http1};
use elasti_e2e::stage::Whole;
use http_body_util::BodyExt;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn events_arrive_as_they_are_sent() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let mut client = http1(whole.stage.reach("web", 80).await?).await?;
        let answer = client.send_request(get("/events")?).await?;
        ensure!(answer.headers()["content-type"] == "text/event-stream");
        let mut events = answer.into_body();
        let first = events.frame().await.context("the first event")??;
        ensure!(
            first
                .data_ref()
                .is_some_and(|data| data == "data: first\n\n"),
            "{first:?}"
        );
        whole.stage.target("web").await?.release().await?;
        ensure!(events.collect().await?.to_bytes() == "data: last\n\n");
        Ok(())
    })
}
