//! A resolver that holds nothing: it accepts connections on every port that the operator may give to
//! a service, and the resolvers' service points at it.

use anyhow::Result;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    ops::RangeInclusive,
};
use tokio::{net::TcpListener, task::JoinSet};

pub(crate) const SERVICE: &str = "elasti-resolver-service";
pub(crate) const PROXY_PORT: u16 = 8012;
/// Below the ports that the kernel gives to connections. Ports that were freed rest.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 32_000;

pub(crate) struct Resolver {
    ports: RangeInclusive<u16>,
    _listeners: JoinSet<()>,
}

// === impl Resolver ===

impl Resolver {
    pub(crate) async fn start(client: &Client, namespace: &str, services: usize) -> Result<Self> {
        let last = usize::from(FIRST_PORT) + services;
        let ports = FIRST_PORT..=u16::try_from(last)?.min(LAST_PORT);
        let address = own_address()?;
        let mut listeners = JoinSet::new();
        for port in ports.clone().chain([PROXY_PORT]) {
            let listener = TcpListener::bind((address, port)).await?;
            listeners.spawn(async move { while listener.accept().await.is_ok() {} });
        }
        announce(client, namespace, address).await?;
        Ok(Self {
            ports,
            _listeners: listeners,
        })
    }

    /// As the operator's flag takes them.
    pub(crate) fn ports(&self) -> String {
        format!("{}-{}", self.ports.start(), self.ports.end())
    }
}

/// The one that the default route leaves from; nothing is sent.
fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
    Ok(socket.local_addr()?.ip())
}

async fn announce(client: &Client, namespace: &str, address: IpAddr) -> Result<()> {
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": SERVICE},
        "spec": {"ports": [{"port": PROXY_PORT}]},
    }))?;
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
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
