use anyhow::{Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    fetch,
    stage::{Cast, Meter, Whole, courteous, workload},
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// Between the questions of a load balancer that asks often.
const OFTEN: Duration = Duration::from_millis(100);

fn rule() -> Value {
    let healthy = json!({"status": 200, "body": "asleep and well"});
    json!({"path": {"type": "Exact", "value": "/healthz"}, "response": healthy})
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_probe_is_answered_in_the_name_of_a_sleeping_target_and_wakes_nobody() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({"probeResponse": [rule()]})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let address = stage.reach("web", 80).await?;
        let before = stage.generation("web").await?;
        for _ in 0..20 {
            let answer = fetch(&format!("http://{address}/healthz")).await?;
            ensure!(answer == "asleep and well", "{answer}");
        }
        ensure!(stage.generation("web").await? == before, "it was scaled");

        let answer = fetch(&format!("http://{address}/")).await?;
        ensure!(answer == "GET /\n", "{answer}");
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_target_falls_asleep_though_it_is_probed_all_the_time() -> Result<()> {
    elasti_e2e::test(async |place| {
        let cast = Cast::default().operator_flag("settle", "3s");
        let whole = Whole::with(place, cast).await?;
        let (stage, meter) = (&whole.stage, Meter::idle(place).await?);
        let web = workload("web", "Deployment", 1, &stage.image);
        stage.serve("web", courteous(web, 3)).await?;
        let url = format!("http://{}/healthz", stage.reach("web", 80).await?);
        let probed = async {
            loop {
                let answer = fetch(&url).await?;
                let known = ["asleep and well", "GET /healthz\n"].contains(&&*answer);
                ensure!(known, "{answer}");
                sleep(OFTEN).await;
            }
        };
        let asleep = async {
            let triggers = meter.triggers();
            let spec = json!({"probeResponse": [rule()], "triggers": triggers});
            stage.declare(spec).await?;
            stage.reaches(Phase::Asleep, Mode::Proxy).await
        };
        tokio::select! {
            failed = probed => failed,
            done = asleep => done,
        }
    })
}
