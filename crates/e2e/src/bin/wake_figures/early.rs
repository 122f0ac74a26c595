//! How long a request waits for a target at zero, against the time that Kubernetes takes to call the very same pod
//! ready.

use crate::pods::{first, is_ready, put_back};
use anyhow::Result;
use elasti_e2e::{
    fetch,
    report::{Goal, Report},
    stage::{Stage, workload},
};
use futures::future::try_join_all;
use serde_json::json;
use tokio::time::Instant;

const ROUNDS: usize = 3;
/// Seconds until it listens, and seconds between two looks of Kubernetes.
const CASES: [(u32, u32); 6] = [(0, 1), (2, 1), (5, 1), (0, 10), (2, 10), (5, 10)];

/// Seconds until the answer, and until Kubernetes' Ready.
type Round = (f64, f64);

pub(crate) async fn measure(stage: &Stage<'_>, report: &mut Report) -> Result<()> {
    report.part("An answer before Ready", "elasti-wake-figures --only early");
    let rounds = CASES.map(|(late, period)| measure_one(stage, late, period));
    let all = try_join_all(rounds).await?;
    for ((late, period), rounds) in CASES.into_iter().zip(all) {
        add(report, late, period, &rounds);
    }
    Ok(())
}

async fn measure_one(stage: &Stage<'_>, late: u32, period: u32) -> Result<Vec<Round>> {
    let name = format!("late-{late}-{period}");
    let mut target = workload(&name, "Deployment", 0, &stage.image);
    let echo = &mut target["spec"]["template"]["spec"]["containers"][0];
    echo["args"] = json!([format!("late={late}")]);
    echo["readinessProbe"]["periodSeconds"] = json!(period);
    let address = stage.asleep_as(&name, target, json!({})).await?;
    let url = format!("http://{address}/");
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let answered = async {
            fetch(&url).await?;
            Ok(begun.elapsed().as_secs_f64())
        };
        let ready = async {
            first(stage, &name, is_ready).await?;
            anyhow::Ok(begun.elapsed().as_secs_f64())
        };
        rounds.push(tokio::try_join!(answered, ready)?);
        put_back(stage, &name).await?;
    }
    Ok(rounds)
}

fn add(report: &mut Report, late: u32, period: u32, rounds: &[Round]) {
    let what = format!("listens after {late} s, probed every {period} s");
    let goal = if (late, period) == (2, 10) { 0.3 } else { 1.02 };
    let ratios = rounds
        .iter()
        .map(|(answer, ready)| answer / ready)
        .collect();
    let figure = format!("{what}: answer to Kubernetes' Ready");
    report.add_median(figure, ratios, "ratio", Goal::AtMost(goal));
    let case = format!("{late} s, every {period} s");
    let (answers, readies) = rounds.iter().copied().unzip();
    for (series, samples) in [("answered", answers), ("Ready", readies)] {
        report
            .add_median(format!("{what}: {series}"), samples, "s", Goal::None)
            .mark("early", series, &*case);
    }
}
