//! elasti-wake-figures: how long a request waits for a target at zero, against the time that Kubernetes takes to call
//! the very same pod ready.

use anyhow::{Context, Result};
use clap::Parser;
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    LONGEST, Place, fetch,
    report::{Goal, Report, median},
    stage::{PATIENCE, Stage, Whole, workload},
    test_alone,
};
use futures::{TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use std::{fs, path::PathBuf, process::ExitCode, time::Duration};
use tokio::time::{Instant, sleep, timeout};

const ROUNDS: usize = 3;
/// In which a data plane forgets a pod that is no more; until then it leads there, and a connection is lost.
const NEWS: Duration = Duration::from_secs(2);
/// Seconds until it listens, and seconds between two looks of Kubernetes.
const CASES: [(u32, u32); 6] = [(0, 1), (2, 1), (5, 1), (0, 10), (2, 10), (5, 10)];

/// Measures on a local cluster of its own.
#[derive(Parser)]
struct Cli {
    /// Also write the figures to this file
    #[arg(long)]
    csv: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elasti-wake-figures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    test_alone("wake-figures", 3 * LONGEST, async |place| {
        let whole = Whole::set(place).await?;
        let mut report = Report::default();
        for (late, period) in CASES {
            measure(&whole.stage, late, period, &mut report).await?;
        }
        print!("{report}");
        if let Some(path) = &cli.csv {
            fs::write(path, report.csv())?;
        }
        Ok(())
    })
}

async fn measure(stage: &Stage<'_>, late: u32, period: u32, report: &mut Report) -> Result<()> {
    let name = format!("late-{late}-{period}");
    let mut target = workload(&name, "Deployment", 0, &stage.image);
    let echo = &mut target["spec"]["template"]["spec"]["containers"][0];
    echo["args"] = json!([format!("late={late}")]);
    echo["readinessProbe"]["periodSeconds"] = json!(period);
    let address = stage.asleep_as(&name, target, json!({})).await?;
    let url = format!("http://{address}/");
    let (mut answers, mut readies, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        stage.reaches_as(&name, Phase::Asleep, Mode::Proxy).await?;
        let begun = Instant::now();
        let answered = async {
            fetch(&url).await?;
            Ok(begun.elapsed().as_secs_f64())
        };
        let is_ready = async {
            ready(stage.place, &name).await?;
            anyhow::Ok(begun.elapsed().as_secs_f64())
        };
        let (answer, ready) = tokio::try_join!(answered, is_ready)?;
        answers.push(answer);
        readies.push(ready);
        ratios.push(answer / ready);
        stage.reaches_as(&name, Phase::Awake, Mode::Serve).await?;
        stage.scale(&name, 0).await?;
        gone(stage, &name).await?;
    }
    let what = format!("listens after {late} s, probed every {period} s");
    let goal = if (late, period) == (2, 10) { 0.3 } else { 1.02 };
    report.add(
        format!("{what}: answer to Kubernetes' Ready"),
        median(ratios),
        "ratio",
        Goal::AtMost(goal),
    );
    report.add(
        format!("{what}: answered"),
        median(answers),
        "s",
        Goal::None,
    );
    report.add(format!("{what}: Ready"), median(readies), "s", Goal::None);
    Ok(())
}

/// Resolves when Kubernetes calls a pod ready that does not end.
async fn ready(place: &Place, name: &str) -> Result<()> {
    let of_it = watcher::Config::default().labels(&format!("of={name}"));
    let api = kube::Api::<Pod>::namespaced(place.client.clone(), place.namespace.name());
    let pods = watcher(api, of_it).applied_objects();
    pin_mut!(pods);
    let found = async {
        while let Some(pod) = pods.try_next().await? {
            let ends = pod.metadata.deletion_timestamp.is_some();
            let conditions = pod.status.and_then(|status| status.conditions);
            let mut conditions = conditions.into_iter().flatten();
            if !ends && conditions.any(|is| is.type_ == "Ready" && is.status == "True") {
                break;
            }
        }
        Ok(())
    };
    timeout(PATIENCE, found).await.context("no pod is ready")?
}

/// One that ends may still answer.
async fn gone(stage: &Stage<'_>, name: &str) -> Result<()> {
    let of_it = ListParams::default().labels(&format!("of={name}"));
    for pod in stage.api::<Pod>().list(&of_it).await? {
        let uid = pod.uid().context("it has a uid")?;
        stage.gone::<Pod>(&pod.name_any(), &uid).await?;
    }
    sleep(NEWS).await;
    Ok(())
}
