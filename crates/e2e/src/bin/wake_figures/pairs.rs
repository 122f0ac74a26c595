//! The same Deployment from zero, by a request through Elasti and by hand, in turns.

use crate::pods::{address, first, put_back};
use anyhow::Result;
use elasti_e2e::{
    fetch,
    report::{Goal, Report, median},
    stage::{Stage, workload},
};
use futures::future::try_join_all;
use serde_json::json;
use std::{cell::RefCell, time::Duration};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

/// While one is measured, the others get back to zero.
const SERVICES: usize = 5;
const PAIRS_OF_EACH: usize = 4;
/// Whoever starts a pod by hand has to ask it.
const LOOK: Duration = Duration::from_millis(2);

pub(crate) async fn measure(stage: &Stage<'_>, report: &mut Report) -> Result<()> {
    report.part(
        "A request from zero, against the same Deployment scaled by hand",
        "elasti-wake-figures --only pairs",
    );
    let pairs = RefCell::new(Vec::new());
    let alone = Semaphore::new(1);
    let services = (0..SERVICES).map(|i| measure_one(stage, i, &alone, &pairs));
    try_join_all(services).await?;
    let pairs = pairs.into_inner();
    let all = |value: fn(&(f64, f64)) -> f64| pairs.iter().map(value).collect::<Vec<_>>();
    let ratios = all(|(ours, by_hand)| ours / by_hand);
    for (percent, goal) in [(50, Goal::AtMost(1.02)), (99, Goal::None)] {
        let figure = format!("answer through Elasti to answer by hand, p{percent} of the pairs");
        report.add_percentile(figure, percent, ratios.clone(), "ratio", goal);
    }
    let (ours, by_hand) = (all(|pair| pair.0), all(|pair| pair.1));
    for percent in [50, 99] {
        for (who, answers, theirs) in [
            ("through Elasti", &ours, "3.02 s (p50)"),
            ("by hand", &by_hand, ""),
        ] {
            let figure = format!("first answer from zero, {who}, p{percent}");
            let row = report.add_percentile(figure, percent, answers.clone(), "s", Goal::None);
            if percent == 50 {
                row.theirs(theirs);
            }
        }
    }
    let figure = "medians: through Elasti to by hand";
    let of_medians = median(ours) / median(by_hand);
    report
        .add(figure, of_medians, "ratio", Goal::AtMost(1.02))
        .of(ratios);
    Ok(())
}

/// Each way is the first every other time.
async fn measure_one(
    stage: &Stage<'_>,
    which: usize,
    alone: &Semaphore,
    pairs: &RefCell<Vec<(f64, f64)>>,
) -> Result<()> {
    let name = format!("pair-{which}");
    let target = workload(&name, "Deployment", 0, &stage.image);
    let service = stage.asleep_as(&name, target, json!({})).await?;
    let url = format!("http://{service}/");
    for round in 0..PAIRS_OF_EACH {
        let mut pair = [0.0; 2];
        let order = if (which + round).is_multiple_of(2) {
            [0, 1]
        } else {
            [1, 0]
        };
        for way in order {
            let turn = alone.acquire().await?;
            pair[way] = match way {
                0 => through_elasti(&url).await?,
                _ => by_hand(stage, &name).await?,
            };
            drop(turn);
            put_back(stage, &name).await?;
        }
        pairs.borrow_mut().push((pair[0], pair[1]));
    }
    Ok(())
}

async fn through_elasti(url: &str) -> Result<f64> {
    let begun = Instant::now();
    fetch(url).await?;
    Ok(begun.elapsed().as_secs_f64())
}

async fn by_hand(stage: &Stage<'_>, name: &str) -> Result<f64> {
    let begun = Instant::now();
    let (address, ()) = tokio::try_join!(first(stage, name, address), stage.scale(name, 1))?;
    let url = format!("http://{address}:8080/");
    while fetch(&url).await.is_err() {
        sleep(LOOK).await;
    }
    Ok(begun.elapsed().as_secs_f64())
}
