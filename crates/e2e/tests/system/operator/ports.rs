use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase, names};
use elasti_e2e::stage::{Gate, Rule, Setting, Stage, service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use std::collections::BTreeSet;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn every_port_of_every_service_has_its_own_on_the_resolvers() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        for name in ["one", "two"] {
            stage.deploy_as(name, "Deployment", 0).await?;
            let ports = json!([
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "admin", "port": 81, "targetPort": 8080},
            ]);
            place.put(service(name, name, &ports)).await?;
            stage.declare_as(name, json!({})).await?;
            stage.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
        }
        let (one, two) = (
            published(&stage, "one").await?,
            published(&stage, "two").await?,
        );
        let all: BTreeSet<i32> = one.iter().chain(&two).copied().collect();
        ensure!(all.len() == 4, "{one:?} and {two:?} overlap");
        ensure!(
            all.iter().all(|port| (10_000..=10_063).contains(port)),
            "{all:?}"
        );
        for (name, ports) in [("one", &one), ("two", &two)] {
            let status = stage.status(name).await?;
            let told: Vec<i32> = status.ports.iter().map(|port| port.port).collect();
            ensure!(told == [80, 81], "{name} tells of {told:?}");
            let told: Vec<i32> = status.ports.iter().map(|port| port.resolver_port).collect();
            ensure!(told == *ports, "{name} tells of {told:?}, not of {ports:?}");
        }

        let slice = names::resolver_slice("one");
        let uid = stage.uid::<EndpointSlice>(&slice).await?;
        drop(operator);
        let _operator = stage.operator().await?;
        stage.deploy_as("three", "Deployment", 0).await?;
        stage.declare_as("three", json!({})).await?;
        stage
            .reaches_as("three", Phase::Asleep, Mode::Proxy)
            .await?;
        ensure!(
            published(&stage, "one").await? == one,
            "a restart changes no port"
        );
        ensure!(
            stage.uid::<EndpointSlice>(&slice).await? == uid,
            "nor the slice"
        );
        let three = published(&stage, "three").await?;
        ensure!(
            three.iter().all(|port| !all.contains(port)),
            "{three:?} is taken"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_freed_port_rests_before_it_names_another_service() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let only = Setting::default().flag("resolver-ports", "10000-10000");
        let operator = stage.operator_with(only.clone()).await?;
        stage.deploy_as("one", "Deployment", 0).await?;
        stage.declare_as("one", json!({})).await?;
        stage.reaches_as("one", Phase::Asleep, Mode::Proxy).await?;
        ensure!(published(&stage, "one").await? == [10_000]);
        stage.delete::<ElastiService>("one").await?;
        gets_no_port(&stage, "two").await?;
        drop(operator);
        let _operator = stage.operator_with(only).await?;
        gets_no_port(&stage, "three")
            .await
            .context("the next operator does not know")
    })
}

async fn gets_no_port(stage: &Stage<'_>, name: &str) -> Result<()> {
    stage.deploy_as(name, "Deployment", 0).await?;
    stage.declare_as(name, json!({})).await?;
    stage.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
    ensure!(published(stage, name).await? == [8012], "a stranger's port");
    let full = stage.condition(name, "PortsRouted", "False", "RangeFull");
    full.await.map(drop)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn with_host_routing_every_port_is_the_proxys() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let by_host = Setting::default().flag("routing", "host");
        let _operator = stage.operator_with(by_host).await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        ensure!(published(&stage, "web").await? == [8012]);
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn when_all_ports_are_given_away_the_proxys_is_left() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let narrow = Setting::default().flag("resolver-ports", "10000-10000");
        let _operator = stage.operator_with(narrow).await?;
        for name in ["one", "two"] {
            stage.deploy_as(name, "Deployment", 0).await?;
            stage.declare_as(name, json!({})).await?;
            stage.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
        }
        ensure!(published(&stage, "one").await? == [10_000]);
        ensure!(published(&stage, "two").await? == [8012]);
        stage
            .condition("two", "PortsRouted", "False", "RangeFull")
            .await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_resolver_that_does_not_listen_is_not_listed() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let deaf = Setting::default().flag("resolver-ports", "20000-20009");
        let _operator = stage.operator_with(deaf).await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage
            .condition("web", "ResolverAvailable", "False", "NotAccepting")
            .await?;
        stage
            .reaches(Phase::Awake, Mode::Serve)
            .await
            .context("nobody could hold its traffic")?;
        stage.has_no_resolver_slice("web").await
    })
}

/// The resolver ports of a sleeping service, in the order of its ports' numbers, the same in each of
/// its slices.
async fn published(stage: &Stage<'_>, service: &str) -> Result<Vec<i32>> {
    let slices = stage.resolver_slices(service).await?;
    let mut each = slices.iter().map(|slice| -> Vec<i32> {
        let mut ports: Vec<_> = slice.ports.iter().flatten().collect();
        // `http` before `admin`: as 80 before 81.
        ports.sort_by(|a, b| b.name.cmp(&a.name));
        ports.into_iter().filter_map(|port| port.port).collect()
    });
    let first = each
        .next()
        .with_context(|| format!("{service} has no slice"))?;
    ensure!(each.all(|ports| ports == first), "{slices:?} differ");
    Ok(first)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_port_is_written_down_alone_before_anybody_is_sent_there() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let gate = Gate::open(place)?;
        let setting = Setting::default().through(&gate);
        let _operator = stage.operator_with(setting).await?;
        // The address of a new pod is not in use at once. After this one it is.
        stage.deploy_as("first", "Deployment", 0).await?;
        stage.declare_as("first", json!({})).await?;
        stage
            .reaches_as("first", Phase::Asleep, Mode::Proxy)
            .await?;
        stage.deploy("Deployment", 0).await?;
        let about_to_publish = gate.hold(Rule::new("PATCH", "/endpointslices/"));
        stage.declare(json!({})).await?;
        about_to_publish.await?;
        let status = stage.status("web").await?;
        ensure!(status.ports.len() == 1, "{:?}", status.ports);
        // How it is can be told when traffic can be held.
        ensure!(status.conditions.is_empty(), "{:?}", status.conditions);
        gate.release();
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let ready = stage.condition("web", "Ready", "True", "AllInPlace");
        ready.await?;
        Ok(())
    })
}
