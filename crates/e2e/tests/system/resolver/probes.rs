use anyhow::{Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{fetch, stage::Whole};
use serde_json::json;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_probe_is_answered_in_the_name_of_a_sleeping_target_and_wakes_nobody() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        stage.deploy("Deployment", 0).await?;
        let healthy = json!({"status": 200, "body": "asleep and well"});
        let rule = json!({"path": {"type": "Exact", "value": "/healthz"}, "response": healthy});
        stage.declare(json!({"probeResponse": [rule]})).await?;
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
