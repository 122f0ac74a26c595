use anyhow::{Context, Result, ensure};
use elasti_e2e::client::{get, http1};
use elasti_e2e::{exchange, fetch, stage::Whole};
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_dies_in_the_middle_of_an_answer_is_not_taken_for_its_end() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let address = whole.stage.reach("web", 80).await?;
        let mut client = http1(address).await?;
        let mut events = client.send_request(get("/events")?).await?.into_body();
        events.frame().await.context("the answer begins")??;
        whole.stage.target("web").await?.dies().await?;
        let rest = events.collect().await;
        ensure!(rest.is_err(), "half an answer passed for a whole one");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_dies_before_the_first_byte_is_asked_again_if_that_does_no_harm() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let url = format!("http://{}/hold", whole.stage.reach("web", 80).await?);
        let order = Request::post(&url).body(Full::from("an order"))?;
        let death = async {
            let target = whole.stage.target("web").await?;
            target.holds(2).await?;
            target.dies().await?;
            target.holds(1).await.context("only one is asked again")?;
            target.release().await
        };
        let (answer, ordered, died) = tokio::join!(fetch(&url), exchange(order), death);
        died?;
        ensure!(answer? == "GET /hold\n");
        let ordered = ordered?;
        ensure!(ordered.status() == StatusCode::BAD_GATEWAY, "{ordered:?}");
        ensure!(
            ordered.body().contains("it broke the connection"),
            "it is told why: {ordered:?}"
        );
        Ok(())
    })
}
