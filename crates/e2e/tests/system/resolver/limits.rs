use super::sleeping_gated;
use anyhow::{Result, ensure};
use elasti_e2e::{
    fetch,
    stage::{Cast, Whole},
};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;

const REQUESTS: usize = 5_000;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn five_thousand_held_requests_live_within_the_limits_of_existing_values() -> Result<()> {
    elasti_e2e::test(async |place| {
        let cast = Cast::default().limits("200m", "80Mi");
        let whole = Whole::with(place, cast).await?;
        sleeping_gated(&whole.stage).await?;
        let url = format!("http://{}/", whole.stage.reach("web", 80).await?);
        let requests = try_join_all((0..REQUESTS).map(|_| fetch(&url)));
        let release = async {
            whole.until_held("web", REQUESTS).await?;
            whole.stage.open("web").await
        };
        let (answers, _) = tokio::try_join!(requests, release)?;
        ensure!(answers.iter().all(|answer| answer == "GET /\n"));
        let resolver: Pod = whole.stage.api().get(&whole.resolvers[0].pod).await?;
        let status = resolver.status.and_then(|status| status.container_statuses);
        let restarts: i32 = status.iter().flatten().map(|one| one.restart_count).sum();
        ensure!(restarts == 0, "the resolver was killed");
        Ok(())
    })
}
