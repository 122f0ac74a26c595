use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    exchange,
    stage::{Meter, Whole, courteous, workload},
};
use http_body_util::Full;
use hyper::Request;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_second_sleep_seconds_after_a_wake_is_as_good_as_the_first() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let (stage, meter) = (&whole.stage, Meter::idle(place).await?);
        let web = workload("web", "Deployment", 0, &stage.image);
        stage.serve("web", courteous(web, 3)).await?;
        stage.declare(json!({"triggers": meter.triggers()})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let url = format!("http://{}/", stage.reach("web", 80).await?);
        for time in ["first", "second"] {
            let answer = exchange(Request::get(&url).body(Full::default())?).await?;
            ensure!(answer.status().is_success(), "{time}: {answer:?}");
            let held = answer.headers().contains_key("x-elasti-held");
            ensure!(held, "{time}: it sleeps");
            let pod = stage.target("web").await?.pod;
            let uid = stage.uid::<Pod>(&pod).await?;
            stage.gone::<Pod>(&pod, &uid).await.context(time)?;
        }
        Ok(())
    })
}
