use anyhow::{Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::stage::{Meter, Stage};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn without_resolvers_what_sleeps_is_woken_and_nothing_falls_asleep() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({"triggers": meter.triggers()})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage
            .condition("web", "ResolverAvailable", "True", "ResolverReady")
            .await?;

        stage.resolvers(0).await?;
        stage
            .condition("web", "ResolverAvailable", "False", "NoReadyResolver")
            .await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage
            .condition("web", "MaySleep", "False", "NoReadyResolver")
            .await?;
        ensure!(stage.replicas("web").await? == 1, "idle, and kept awake");

        stage.resolvers(1).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_is_awake_and_idle_stays_so_when_prometheus_goes() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        let spec = json!({"triggers": meter.triggers(), "cooldownPeriod": 900});
        stage.declare(spec).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage
            .condition("web", "MaySleep", "False", "CoolingDown")
            .await?;
        drop(meter);
        stage
            .condition("web", "TriggersHealthy", "False", "QueryFailed")
            .await?;
        stage.amend("web", json!({"cooldownPeriod": 1})).await?;
        let decided =
            |status: &elasti_api::ElastiServiceStatus| status.observed_generation == Some(2);
        let status = stage
            .until_status("web", "what it decided", decided)
            .await?;
        ensure!(status.phase == Some(Phase::Awake), "{status:?}");
        ensure!(status.mode == Some(Mode::Serve), "{status:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_family_that_no_resolver_has_is_no_reason_to_drop_the_other() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let one = json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}});
        stage
            .amend_object::<Service>("elasti-resolver-service", one)
            .await?;
        let _operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        let published = async {
            stage.reaches(Phase::Asleep, Mode::Proxy).await?;
            let slices = stage.resolver_slices("web").await?;
            let families: Vec<&str> = slices.iter().map(|slice| &*slice.address_type).collect();
            ensure!(families == ["IPv4"], "slices of {families:?}");
            stage
                .condition("web", "ResolverAvailable", "False", "OtherAddressFamily")
                .await
        };
        tokio::try_join!(published, stage.declare(json!({})))?;
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn without_prometheus_nothing_falls_asleep_and_knocks_still_wake() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        let triggers = meter.triggers();
        drop(meter);
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({"triggers": triggers})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let unhealthy = |status: &elasti_api::ElastiServiceStatus| {
            status.conditions.iter().any(|condition| {
                condition.type_ == "TriggersHealthy" && condition.status == "False"
            })
        };
        stage
            .until_status("web", "TriggersHealthy=False", unhealthy)
            .await?;
        ensure!(stage.replicas("web").await? == 0, "it is left as it is");

        operator.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        let unknown = stage.status("web").await?;
        ensure!(unhealthy(&unknown), "{unknown:?}");
        Ok(())
    })
}
