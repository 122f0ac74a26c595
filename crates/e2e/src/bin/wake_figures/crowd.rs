//! A thousand who come at once while it sleeps.

use crate::pods::put_back;
use anyhow::Result;
use elasti_e2e::{
    fetch,
    report::{Goal, Report},
    stage::{Stage, workload},
};
use futures::future::try_join_all;
use serde_json::json;
use tokio::time::Instant;

const COUNT: usize = 1_000;
const ROUNDS: usize = 5;
const NAME: &str = "crowd";

pub(crate) async fn measure(stage: &Stage<'_>, report: &mut Report) -> Result<()> {
    report.part(
        "A thousand clients at once, from zero",
        "elasti-wake-figures --only crowd",
    );
    let target = workload(NAME, "Deployment", 0, &stage.image);
    let address = stage.asleep_as(NAME, target, json!({})).await?;
    let url = format!("http://{address}/");
    let mut after = Vec::new();
    for _ in 0..ROUNDS {
        let answered = async {
            try_join_all((0..COUNT).map(|_| fetch(&url))).await?;
            Ok(Instant::now())
        };
        let (ready, answered) = tokio::try_join!(stage.first_ready(NAME), answered)?;
        after.push(answered.saturating_duration_since(ready).as_secs_f64());
        put_back(stage, NAME).await?;
    }
    report
        .add_median(
            "the last answer after the endpoint is ready",
            after,
            "s",
            Goal::Below(0.5),
        )
        .theirs("103 s, or all refused");
    Ok(())
}
