//! Where the time of a wake goes: what of it is Kubernetes' own.

use crate::pods::{address, first, put_back};
use anyhow::Result;
use elasti_e2e::{
    fetch,
    report::{Goal, Report},
    stage::{Stage, workload},
};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use tokio::time::Instant;

const NAME: &str = "steps";
const ROUNDS: usize = 6;
const STEPS: [&str; 4] = [
    "the target is scaled",
    "its pod has an address",
    "a slice of the private service lists it",
    "the answer is there",
];

pub(crate) async fn measure(stage: &Stage<'_>, report: &mut Report) -> Result<()> {
    report.part(
        "What a request from zero waits for, as watches show it",
        "elasti-wake-figures --only steps",
    );
    let target = workload(NAME, "Deployment", 0, &stage.image);
    let service = stage.asleep_as(NAME, target, json!({})).await?;
    let url = format!("http://{service}/");
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(woken(stage, &url).await?);
        put_back(stage, NAME).await?;
    }
    for (step, what) in STEPS.into_iter().enumerate() {
        let after = rounds.iter().map(|round: &[f64; 4]| round[step]).collect();
        report.add_median(what, after, "ms", Goal::None);
    }
    Ok(())
}

/// After so many milliseconds each.
async fn woken(stage: &Stage<'_>, url: &str) -> Result<[f64; 4]> {
    let begun = Instant::now();
    let scaled = async {
        stage.until(NAME, "scaled up", is_wanted).await?;
        Ok(Instant::now())
    };
    let addressed = async {
        first(stage, NAME, address).await?;
        Ok(Instant::now())
    };
    let answered = async {
        fetch(url).await?;
        Ok(Instant::now())
    };
    let listed = stage.first_listed(NAME, |_| true);
    let steps = tokio::try_join!(scaled, addressed, listed, answered)?;
    let after = |step: Instant| (step - begun).as_secs_f64() * 1e3;
    Ok([steps.0, steps.1, steps.2, steps.3].map(after))
}

fn is_wanted(target: &Deployment) -> bool {
    target.spec.as_ref().and_then(|spec| spec.replicas) > Some(0)
}
