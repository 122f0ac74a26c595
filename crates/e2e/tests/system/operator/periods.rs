use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_e2e::stage::{Meter, Stage};
use serde_json::{Value, json};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn an_open_period_lets_it_sleep_and_a_closed_one_wakes_it() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        stage
            .declare(json!({"paused": true, "triggers": meter.triggers()}))
            .await?;
        let hour = hour_of_creation(&stage).await?;
        // From an hour ago, for three.
        let open = period((hour + 23) % 24, "3h");
        stage
            .amend("web", json!({"paused": false, "enabledPeriod": open}))
            .await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;

        // It was open half a day ago.
        let closed = period((hour + 12) % 24, "1h");
        stage.amend("web", json!({"enabledPeriod": closed})).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage
            .condition("web", "MaySleep", "False", "OutsideEnabledPeriod")
            .await?;
        stage
            .condition("web", "Idle", "True", "BelowThreshold")
            .await?;
        ensure!(stage.replicas("web").await? == 1, "idle, and kept awake");
        Ok(())
    })
}

fn period(hour: i8, duration: &str) -> Value {
    json!({"schedule": format!("0 {hour} * * *"), "duration": duration})
}

/// By the API server's clock, in UTC.
async fn hour_of_creation(stage: &Stage<'_>) -> Result<i8> {
    let object = stage.api::<ElastiService>().get("web").await?;
    let created = object
        .metadata
        .creation_timestamp
        .context("it was created")?;
    let text = created.0.to_string();
    let hour = text.split(['T', ':']).nth(1).context("a time has hours")?;
    Ok(hour.parse()?)
}
