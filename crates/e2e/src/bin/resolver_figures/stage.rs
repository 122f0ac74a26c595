//! A namespace with one service that sleeps, as an operator would have left it, and what wakes it.

use crate::{Cli, operator};
use anyhow::{Context, Result};
use elasti_api::{ElastiService, names};
use elasti_cluster::Cluster;
use elasti_e2e::{Namespace, built, establish, own_address};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client, CustomResourceExt, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{fmt::Debug, net::SocketAddr, path::PathBuf};
use tokio::task::JoinSet;

const SERVICE: &str = "web";
/// Ports of the resolver, for the service's port that may be looked into and the one that may not.
pub(crate) const HTTP: u16 = 20_000;
pub(crate) const OPAQUE: u16 = 20_001;
const TARGET_PORT: u16 = 18_080;

pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) client: Client,
    home: Namespace,
    pub(crate) resolver: PathBuf,
    /// Where the target is to listen.
    pub(crate) target: SocketAddr,
    _operator: JoinSet<()>,
}

// === impl Stage ===

impl<'a> Stage<'a> {
    pub(crate) async fn set(cluster: &'a Cluster, cli: &Cli) -> Result<Self> {
        let client = cluster.client().await?;
        establish(cluster, &client, &ElastiService::crd()).await?;
        let home = Namespace::create(&client, "resolver-figures").await?;
        let resolver = match &cli.resolver {
            Some(path) => path.canonicalize().context("--resolver")?,
            None => built("elasti-resolver")?,
        };
        eprintln!(
            "Measuring {} in namespace {}, {}",
            resolver.display(),
            home.name(),
            cluster.describe()
        );
        let address = own_address()?;
        let stage = Self {
            _operator: operator::listen(address).await?,
            target: SocketAddr::new(address, TARGET_PORT),
            cluster,
            client,
            home,
            resolver,
        };
        stage.announce_operator().await?;
        stage.declare().await?;
        Ok(stage)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.home.name()
    }

    pub(crate) async fn clear(&self) -> Result<()> {
        self.home.delete(&self.client).await
    }

    /// The target is ready from now on.
    pub(crate) async fn wake(&self) -> Result<()> {
        let ports = json!([
            {"name": "http", "port": self.target.port()},
            {"name": "opaque", "port": self.target.port()},
        ]);
        let private = names::private_service(SERVICE);
        let labels = json!({"kubernetes.io/service-name": private, names::PRIVATE_LABEL: SERVICE});
        self.create(self.slice(&private, labels, ports)?).await
    }

    pub(crate) async fn put_to_sleep(&self) -> Result<()> {
        let private = names::private_service(SERVICE);
        let slices: Api<EndpointSlice> = self.api();
        slices.delete(&private, &DeleteParams::default()).await?;
        Ok(())
    }

    /// In proxy mode, so that the resolver neither sends clients away nor thinks it is alone.
    async fn declare(&self) -> Result<()> {
        let private: Service = serde_json::from_value(json!({
            "metadata": {
                "name": names::private_service(SERVICE),
                "labels": {names::PRIVATE_LABEL: SERVICE},
            },
            "spec": {"ports": [
                {"name": "http", "port": 80},
                {"name": "opaque", "port": 81, "appProtocol": "tcp"},
            ]},
        }))?;
        self.create(private).await?;
        let declared: ElastiService = serde_json::from_value(json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1",
            "kind": "ElastiService",
            "metadata": {"name": SERVICE},
            "spec": {
                "service": SERVICE,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": SERVICE},
            },
        }))?;
        self.create(declared).await?;
        let status = json!({"status": {"mode": "proxy", "ports": [
            {"port": 80, "resolverPort": HTTP},
            {"port": 81, "resolverPort": OPAQUE},
        ]}});
        let declared: Api<ElastiService> = self.api();
        declared
            .patch_status(SERVICE, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(())
    }

    async fn announce_operator(&self) -> Result<()> {
        let labels = json!({"kubernetes.io/service-name": operator::SERVICE});
        let ports = json!([{"port": operator::PORT}]);
        self.create(self.slice(operator::SERVICE, labels, ports)?)
            .await
    }

    fn slice(&self, name: &str, labels: Value, ports: Value) -> Result<EndpointSlice> {
        let address = self.target.ip();
        Ok(serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": ports,
        }))?)
    }

    async fn create<K>(&self, object: K) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
    {
        let create = PostParams::default();
        self.api().create(&create, &object).await.map(drop)?;
        Ok(())
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), self.namespace())
    }
}
