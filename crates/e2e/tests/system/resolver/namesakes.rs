use anyhow::{Result, ensure};
use elasti_e2e::{
    Place, exchange,
    stage::{Cast, Stage, Whole},
};
use http_body_util::Full;
use hyper::Request;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn services_of_one_name_in_two_namespaces_are_two_services() -> Result<()> {
    elasti_e2e::test(async |place| {
        let other = place.beside("namesake").await?;
        let outcome = each_wakes_its_own(place, &other).await;
        outcome.and(other.leave().await)
    })
}

async fn each_wakes_its_own(place: &Place, other: &Place) -> Result<()> {
    let whole = Whole::with(place, Cast::default().also_in(other)).await?;
    let (here, there) = (&whole.stage, whole.stage.at(other));
    here.sleeping().await?;
    there.sleeping().await?;
    is_answered_by_its_own(here).await?;
    ensure!(there.replicas("web").await? == 0, "its namesake sleeps on");
    is_answered_by_its_own(&there).await
}

async fn is_answered_by_its_own(stage: &Stage<'_>) -> Result<()> {
    let url = format!("http://{}/", stage.reach("web", 80).await?);
    let answer = exchange(Request::get(url).body(Full::default())?).await?;
    ensure!(answer.status().is_success(), "{answer:?}");
    let pod = stage.target("web").await?.pod;
    ensure!(answer.headers()["x-served-by"] == *pod, "{answer:?}");
    Ok(())
}
