use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase, names};
use elasti_e2e::stage::{Stage, service};
use futures::future::try_join_all;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::Instant;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn slices_name_every_tcp_port_and_no_other() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        let ports = json!([
            {"name": "http", "port": 80, "targetPort": 8080},
            {"name": "admin", "port": 81, "targetPort": 8080},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ]);
        place.put(service("web", "web", &ports)).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        for slice in stage.resolver_slices("web").await? {
            ensure!(named_ports(&slice) == ["admin", "http"], "{slice:?}");
        }

        let ports = json!({"spec": {"ports": [
            {"name": "http", "port": 80, "targetPort": 8080},
            {"name": "grpc", "port": 82, "targetPort": 8080},
        ]}});
        stage.amend_object::<Service>("web", ports).await?;
        for name in slices_of("web") {
            stage
                .until::<EndpointSlice>(&name, "the new ports", |slice| {
                    named_ports(slice) == ["grpc", "http"]
                })
                .await?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_slice_that_somebody_edits_or_deletes_is_put_right() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let name = names::resolver_slice("web");
        let right = stage.api::<EndpointSlice>().get(&name).await?;
        let is_right = |slice: &EndpointSlice| {
            (&slice.endpoints, &slice.ports) == (&right.endpoints, &right.ports)
        };

        let wrong = json!({"endpoints": [{"addresses": ["192.0.2.1"]}], "ports": []});
        stage.amend_object::<EndpointSlice>(&name, wrong).await?;
        stage.until(&name, "put right", is_right).await?;

        stage
            .api::<EndpointSlice>()
            .delete(&name, &DeleteParams::default())
            .await?;
        stage.until(&name, "published again", is_right).await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn new_resolvers_are_soon_in_every_slice() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        let all = ["one", "two", "three"];
        for name in all {
            stage.deploy_as(name, "Deployment", 0).await?;
            stage.declare_as(name, json!({})).await?;
            stage.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
        }
        for replicas in [3, 1] {
            stage.resolvers(replicas).await?;
            stage.has_ready("elasti-resolver-service", replicas).await?;
            let since = Instant::now();
            let ready = usize::try_from(replicas)?;
            let names = all.iter().flat_map(|service| slices_of(service));
            try_join_all(names.map(|name| lists(&stage, name, ready))).await?;
            println!(
                "{replicas} resolvers are in every slice after {:?}",
                since.elapsed()
            );
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn nobody_is_listed_while_the_target_serves() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.deploy("Deployment", 1).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.has_no_resolver_slice("web").await?;
        // One that an earlier operator left behind.
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": names::resolver_slice("web"),
                "labels": {
                    "kubernetes.io/service-name": "web",
                    "endpointslice.kubernetes.io/managed-by": "elasti-operator",
                },
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.1"]}],
            "ports": [{"port": 8012}],
        });
        let left = place.put(slice).await?;
        let uid = left.metadata.uid.context("it has a uid")?;
        stage
            .gone::<EndpointSlice>(&names::resolver_slice("web"), &uid)
            .await
    })
}

async fn lists(stage: &Stage<'_>, slice: String, count: usize) -> Result<EndpointSlice> {
    let what = format!("{count} addresses");
    stage
        .until::<EndpointSlice>(&slice, &what, |slice| slice.endpoints.len() == count)
        .await
}

fn slices_of(service: &str) -> [String; 2] {
    let name = names::resolver_slice(service);
    [format!("{name}-ipv6"), name]
}

/// In order.
fn named_ports(slice: &EndpointSlice) -> Vec<&str> {
    let ports = slice.ports.iter().flatten();
    let mut names: Vec<&str> = ports.filter_map(|port| port.name.as_deref()).collect();
    names.sort_unstable();
    names
}
