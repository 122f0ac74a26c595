//! How soon the answer is there once Kubernetes calls the endpoint ready.

use crate::pods::put_back;
use anyhow::Result;
use elasti_e2e::{
    fetch,
    report::{Goal, Report},
    stage::{Stage, workload},
};
use futures::future::try_join_all;
use serde_json::json;
use tokio::{sync::Semaphore, time::Instant};

/// While one is measured, the others get back to zero.
const SERVICES: usize = 5;
const ROUNDS_OF_EACH: usize = 3;

pub(crate) async fn measure(stage: &Stage<'_>, report: &mut Report) -> Result<()> {
    report.part(
        "From the endpoint event to the answer, released when Kubernetes says ready",
        "elasti-wake-figures --only event",
    );
    let alone = Semaphore::new(1);
    let services = (0..SERVICES).map(|i| measure_one(stage, i, &alone));
    let after = try_join_all(services).await?.concat();
    report
        .add_median(
            "answer after a watch shows the endpoint ready, with the target's own time",
            after,
            "ms",
            Goal::AtMost(5.0),
        )
        .theirs("1 600 to 2 100");
    Ok(())
}

async fn measure_one(stage: &Stage<'_>, which: usize, alone: &Semaphore) -> Result<Vec<f64>> {
    let name = format!("event-{which}");
    let target = workload(&name, "Deployment", 0, &stage.image);
    let spec = json!({"hold": {"release": "KubernetesReady"}});
    let address = stage.asleep_as(&name, target, spec).await?;
    let url = format!("http://{address}/");
    let mut after = Vec::new();
    for _ in 0..ROUNDS_OF_EACH {
        let turn = alone.acquire().await?;
        let begun = Instant::now();
        let answered = async {
            fetch(&url).await?;
            Ok(Instant::now())
        };
        let (ready, answered) = tokio::try_join!(stage.first_ready(&name), answered)?;
        drop(turn);
        let took = |until: Instant| (until - begun).as_secs_f64() * 1e3;
        after.push(took(answered) - took(ready));
        put_back(stage, &name).await?;
    }
    Ok(after)
}
