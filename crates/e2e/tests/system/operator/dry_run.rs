use anyhow::{Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::stage::{Meter, Stage};
use serde_json::json;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_dry_run_says_what_it_would_do_and_does_nothing() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        let generation = stage.generation("web").await?;
        stage
            .declare(json!({"dryRun": true, "triggers": meter.triggers()}))
            .await?;
        stage
            .condition("web", "MaySleep", "False", "DryRunWouldSleep")
            .await?;
        stage.said("DryRun", "ElastiService").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.has_no_resolver_slice("web").await?;
        ensure!(
            stage.generation("web").await? == generation,
            "the target was not touched"
        );
        stage.amend("web", json!({"dryRun": false})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_slept_before_a_dry_run_does_not_stay_at_zero_without_anybody_to_hold_for_it() -> Result<()>
{
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.sleeping().await?;
        stage.amend("web", json!({"dryRun": true})).await?;
        stage.resolvers(0).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        ensure!(stage.replicas("web").await? == 1);
        stage.has_no_resolver_slice("web").await
    })
}
