//! From processes started to a cluster that runs pods.

use crate::{
    Cluster, components, config::PAUSE_IMAGE, image::Image, local::Local, network, pki::NODE_NAME,
};
use anyhow::{Context, Result, bail};
use http::Request;
use k8s_openapi::api::{
    core::v1::{Node, Service, ServiceAccount},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::wait::await_condition,
};
use serde_json::json;
use std::{fs, future::Future, time::Duration};
use tokio::{net::TcpStream, time};

const PATIENCE: Duration = Duration::from_secs(120);
const COREDNS_READY: u16 = 8181;
const KUBE_PROXY_HEALTH: u16 = 10256;
const TICK: Duration = Duration::from_millis(100);

pub(crate) fn wait(local: &Local) -> Result<()> {
    let cluster = Cluster::local(local.clone());
    cluster.run(async || {
        let ready = async {
            let client = cluster.client().await?;
            until(local, || load_pause(local)).await?;
            until(local, || api_is_ready(&client)).await?;
            publish_dns(&client).await?;
            node_is_ready(&client).await?;
            pods_can_start(&client).await?;
            until(local, || answers(COREDNS_READY)).await?;
            until(local, || answers(KUBE_PROXY_HEALTH)).await
        };
        match time::timeout(PATIENCE, ready).await {
            Ok(outcome) => outcome,
            Err(_) => bail!(
                "the cluster did not get ready within {PATIENCE:?}; its logs are in {}",
                local.layout().logs().display()
            ),
        }
    })
}

/// Until a process that is just starting answers: there is no event for that.
async fn until<F: Future<Output = Result<()>>>(
    local: &Local,
    mut attempt: impl FnMut() -> F,
) -> Result<()> {
    while attempt().await.is_err() {
        if !local.keeper().is_alive() {
            let log = fs::read_to_string(local.layout().log("node")).unwrap_or_default();
            bail!(
                "the node ended: {}; if this machine cannot hold a cluster, set KUBECONFIG to use an existing one",
                log.trim()
            );
        }
        time::sleep(TICK).await;
    }
    Ok(())
}

async fn answers(port: u16) -> Result<()> {
    Ok(TcpStream::connect((network::NODE, port)).await.map(drop)?)
}

/// Before this it answers, but cannot give out addresses of services yet.
async fn api_is_ready(client: &Client) -> Result<()> {
    client
        .request_text(Request::get("/readyz").body(Vec::new())?)
        .await?;
    Ok(())
}

async fn load_pause(local: &Local) -> Result<()> {
    let pause = components::place(local.layout()).join("pause");
    local.import(&Image::of_binary(PAUSE_IMAGE, &pause)?)
}

/// CoreDNS runs beside the kubelet, not in a pod: its service points at the node.
async fn publish_dns(client: &Client) -> Result<()> {
    let apply = PatchParams::apply("elasti-cluster").force();
    let ports = json!([
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]);
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": network::DNS_SERVICE, "ports": ports},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kube-dns", "labels": {"kubernetes.io/service-name": "kube-dns"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [network::NODE], "conditions": {"ready": true}}],
        "ports": ports,
    });
    Api::<Service>::namespaced(client.clone(), "kube-system")
        .patch("kube-dns", &apply, &Patch::Apply(&service))
        .await
        .context("creating the service of the cluster's DNS")?;
    Api::<EndpointSlice>::namespaced(client.clone(), "kube-system")
        .patch("kube-dns", &apply, &Patch::Apply(&slice))
        .await
        .context("pointing the cluster's DNS at the node")?;
    Ok(())
}

async fn node_is_ready(client: &Client) -> Result<()> {
    let is_ready = |node: Option<&Node>| {
        node.and_then(|node| node.status.as_ref()?.conditions.as_ref())
            .is_some_and(|conditions| {
                conditions
                    .iter()
                    .any(|c| c.type_ == "Ready" && c.status == "True")
            })
    };
    await_condition(Api::<Node>::all(client.clone()), NODE_NAME, is_ready)
        .await
        .context("waiting for the node to get ready")?;
    Ok(())
}

/// No pod is admitted before its namespace has a service account.
async fn pods_can_start(client: &Client) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    await_condition(accounts, "default", |account: Option<&ServiceAccount>| {
        account.is_some()
    })
    .await
    .context("waiting for the default service account")?;
    Ok(())
}
