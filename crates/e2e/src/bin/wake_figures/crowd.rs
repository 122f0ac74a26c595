//! A thousand who come at once while it sleeps.

use crate::after_ready::Wakes;
use anyhow::Result;
use elasti_e2e::{
    report::{Goal, Report},
    stage::Stage,
};
use serde_json::json;

pub(crate) async fn measure(stage: &Stage<'_>, report: &mut Report) -> Result<()> {
    report.part(
        "A thousand clients at once, from zero",
        "elasti-wake-figures --only crowd",
    );
    let wakes = Wakes {
        name: "crowd",
        clients: 1_000,
        rounds_of_each: 1,
        spec: json!({}),
    };
    report
        .add_median(
            "the last answer after the endpoint is ready",
            wakes.measure(stage).await?,
            "s",
            Goal::Below(0.5),
        )
        .theirs("103 s, or all refused");
    Ok(())
}
