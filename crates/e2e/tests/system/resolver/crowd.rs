use anyhow::{Result, ensure};
use elasti_e2e::{
    fetch,
    stage::{Cast, Whole},
};
use futures::future::try_join_all;
use tokio::time::Instant;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_thousand_at_once_are_all_answered_where_there_are_two_resolvers() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::with(place, Cast::default().resolvers(2)).await?;
        whole.stage.sleeping().await?;
        let address = whole.reach_all("web", 80).await?;
        let requests = (0..1_000).map(async |n| {
            let answer = fetch(&format!("http://{address}/{n}")).await?;
            ensure!(answer == format!("GET /{n}\n"), "{n} got {answer}");
            Ok(())
        });
        let answered = async {
            try_join_all(requests).await?;
            Ok(Instant::now())
        };
        let (ready, answered) = tokio::try_join!(whole.stage.first_ready("web"), answered)?;
        let took = answered.saturating_duration_since(ready);
        println!("All were answered {took:.2?} after the endpoint was ready");
        let held = "elasti_resolver_cold_start_seconds_count";
        let held = whole.samples(held, &[("source", "web")]).await?;
        ensure!(
            held.len() == 2 && held.iter().all(|count| *count > 0.0),
            "{held:?}"
        );
        Ok(())
    })
}
