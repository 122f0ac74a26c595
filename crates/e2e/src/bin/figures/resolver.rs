//! Two resolvers that hold nothing: they accept connections on every port that the operator may give
//! to a service, and the resolvers' service points at them.

use anyhow::{Context, Result, ensure};
use elasti_cluster::Cluster;
use elasti_e2e::own_address;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::{
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
};
use tokio::{net::TcpListener, task::JoinSet};

pub(crate) const SERVICE: &str = "elasti-resolver-service";
pub(crate) const PROXY_PORT: u16 = 8012;
/// Below the ports that the kernel gives to connections. Ports that were freed rest.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 32_000;
/// Of the second one, on the node of a local cluster.
pub(crate) const SECOND: Ipv4Addr = Ipv4Addr::new(10, 89, 77, 2);

pub(crate) struct Resolver {
    first: IpAddr,
    pub(crate) ports: RangeInclusive<u16>,
    _listeners: JoinSet<()>,
}

// === impl Resolver ===

impl Resolver {
    pub(crate) async fn start(
        cluster: &Cluster,
        client: &Client,
        namespace: &str,
        services: usize,
    ) -> Result<Self> {
        let last = usize::from(FIRST_PORT) + services;
        let ports = FIRST_PORT..=u16::try_from(last)?.min(LAST_PORT);
        let first = own_address()?;
        let mut addresses = vec![first];
        if cluster.is_local() {
            add_second(cluster)?;
            addresses.push(SECOND.into());
        }
        let mut listeners = JoinSet::new();
        // Both of them on one socket: a process may have 20 000.
        for port in ports.clone().chain([PROXY_PORT]) {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
            listeners.spawn(async move { while listener.accept().await.is_ok() {} });
        }
        announce(client, namespace, &addresses).await?;
        Ok(Self {
            first,
            ports,
            _listeners: listeners,
        })
    }

    /// As if the second one had ended, or come.
    pub(crate) async fn announce_second(
        &self,
        client: &Client,
        namespace: &str,
        is_there: bool,
    ) -> Result<()> {
        let second = is_there.then_some(IpAddr::from(SECOND));
        let addresses: Vec<IpAddr> = [self.first].into_iter().chain(second).collect();
        let left = Patch::Merge(json!({"endpoints": endpoints(&addresses)}));
        Api::<EndpointSlice>::namespaced(client.clone(), namespace)
            .patch(SERVICE, &PatchParams::default(), &left)
            .await?;
        Ok(())
    }
}

/// It goes with the node.
fn add_second(cluster: &Cluster) -> Result<()> {
    let address = format!("{SECOND}/32");
    let status = cluster
        .command("ip")?
        .args(["address", "replace", &address, "dev", "lo"])
        .status()
        .context("running ip")?;
    ensure!(status.success(), "ip could not add {address}: {status}");
    Ok(())
}

fn endpoints(addresses: &[IpAddr]) -> Value {
    let ready = |address| json!({"addresses": [address], "conditions": {"ready": true}});
    addresses.iter().map(ready).collect()
}

async fn announce(client: &Client, namespace: &str, addresses: &[IpAddr]) -> Result<()> {
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": SERVICE},
        "spec": {"ports": [{"port": PROXY_PORT}]},
    }))?;
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": if addresses[0].is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": endpoints(addresses),
        "ports": [{"port": PROXY_PORT}],
    }))?;
    let create = PostParams::default();
    Api::namespaced(client.clone(), namespace)
        .create(&create, &service)
        .await?;
    Api::namespaced(client.clone(), namespace)
        .create(&create, &slice)
        .await?;
    Ok(())
}
