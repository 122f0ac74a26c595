//! How soon one answer is there, where it has to wait until Kubernetes calls the endpoint ready.

use crate::after_ready::Wakes;
use anyhow::Result;
use elasti_e2e::{
    report::{Goal, Report},
    stage::Stage,
};
use serde_json::json;

pub(crate) async fn measure(stage: &Stage<'_>, report: &mut Report) -> Result<()> {
    report.part(
        "From the endpoint event to the answer, released when Kubernetes says ready",
        "elasti-wake-figures --only event",
    );
    let wakes = Wakes {
        name: "event",
        clients: 1,
        rounds_of_each: 2,
        spec: json!({"hold": {"release": "KubernetesReady"}}),
    };
    let seconds = wakes.measure(stage).await?;
    report
        .add_median(
            "answer after a watch shows the endpoint ready, with the target's own time",
            seconds.iter().map(|seconds| seconds * 1e3).collect(),
            "ms",
            Goal::AtMost(5.0),
        )
        .theirs("1 600 to 2 100");
    Ok(())
}
