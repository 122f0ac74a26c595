use super::sleeping_gated;
use anyhow::{Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    exchange, fetch,
    stage::{Cast, Whole, gated},
};
use futures::future::try_join_all;
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::time::Instant;

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

#[test]
#[ignore = "needs a cluster: make e2e"]
fn whoever_finds_no_room_or_waits_too_long_is_told_so_in_time() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        stage.serve("web", gated("web", 0, &stage.image)).await?;
        let hold = json!({"timeout": "4s", "maxPending": 1});
        stage.declare(json!({"hold": hold})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let url = format!("http://{}/", stage.reach("web", 80).await?);
        let ask = async || -> Result<(Response<String>, f64)> {
            let begun = Instant::now();
            let request = Request::get(&url).body(Full::<Bytes>::default())?;
            Ok((exchange(request).await?, begun.elapsed().as_secs_f64()))
        };
        let second = async {
            whole.until_held("web", 1).await?;
            ask().await
        };
        let ((late, waited), (full, at_once)) = tokio::try_join!(ask(), second)?;
        let of = format!("{}/web: ", place.namespace.name());
        ensure!(
            late.status() == 504 && late.body().starts_with(&of),
            "{late:?}"
        );
        ensure!((4.0..6.0).contains(&waited), "after {waited:?}");
        ensure!(
            full.status() == 503 && full.body().starts_with(&of),
            "{full:?}"
        );
        ensure!(full.headers().contains_key("retry-after"), "{full:?}");
        ensure!(at_once < 3.0, "after {at_once:?}");
        Ok(())
    })
}
