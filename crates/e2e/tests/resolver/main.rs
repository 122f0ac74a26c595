//! Operator and resolver together: what a client of a sleeping service sees.

mod lossless;
mod whole;

use anyhow::{Context, Result};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    built, fetch,
    stage::{Setting, Stage},
};
use futures::future::join_all;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use serde_json::json;
use whole::Whole;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_request_to_a_sleeping_service_gets_the_answer_of_its_target() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let address = whole.cluster_ip("web").await?;
        let answer = fetch(&format!("http://{address}/hello")).await?;
        assert_eq!(answer, "GET /hello\n");
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.has_no_resolver_slice("web").await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_hundred_at_once_are_all_answered() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let address = whole.cluster_ip("web").await?;
        let requests = (0..100).map(|n| {
            let url = format!("http://{address}/{n}");
            async move { Ok::<_, anyhow::Error>(fetch(&url).await? == format!("GET /{n}\n")) }
        });
        for answer in join_all(requests).await {
            assert!(answer?, "each gets its own answer");
        }
        Ok(())
    })
}
