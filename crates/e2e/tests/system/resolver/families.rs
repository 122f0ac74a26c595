use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{fetch, stage::Whole};
use k8s_openapi::api::core::v1::Service;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_service_is_woken_by_its_ipv6_address_too() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        stage.sleeping().await?;
        let address = SocketAddr::new(second(stage.api().get("web").await?)?.into(), 80);
        let answer = fetch(&format!("http://{address}/six")).await?;
        ensure!(answer == "GET /six\n", "{answer}");
        stage.reaches_as("web", Phase::Awake, Mode::Serve).await
    })
}

fn second(service: Service) -> Result<Ipv6Addr> {
    let addresses = service.spec.and_then(|spec| spec.cluster_ips);
    let addresses = addresses.context("it has addresses")?;
    let second: IpAddr = addresses.get(1).context("of two families")?.parse()?;
    match second {
        IpAddr::V6(second) => Ok(second),
        IpAddr::V4(_) => anyhow::bail!("the second is {second}"),
    }
}
