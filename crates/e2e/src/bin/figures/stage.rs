//! A namespace with all that the operator needs around it.

use crate::{Cli, prometheus, resolver::Resolver};
use anyhow::{Context, Result};
use elasti_api::ElastiService;
use elasti_cluster::Cluster;
use elasti_e2e::{Namespace, Paused, Running, built, establish, scalable};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    authentication::v1::TokenRequest, core::v1::ServiceAccount, rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, CustomResourceExt, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{AuthInfo, Kubeconfig},
};
use serde_json::json;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

const ACCOUNT: &str = "operator";

/// More ports than services: those of another part may still rest.
const SPARE_PORTS: usize = 1_000;

pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) client: Client,
    home: Namespace,
    pub(crate) operator: PathBuf,
    /// With a token, as in a pod: certificates take an API server longer.
    pub(crate) kubeconfig: Option<NamedTempFile>,
    pub(crate) routing: &'a str,
    pub(crate) resolver: Resolver,
    pub(crate) triggers: bool,
    _prometheus: Option<Running>,
    /// It belongs on nodes with traffic: for ten thousand services it takes a core that is the API server's here.
    _data_plane: Paused,
}

// === impl Stage ===

impl<'a> Stage<'a> {
    pub(crate) async fn set(cluster: &'a Cluster, cli: &'a Cli) -> Result<Self> {
        let client = cluster.client().await?;
        for kind in [
            ElastiService::crd(),
            scalable("figures.elasti.local", "Gadget", "gadgets")?,
        ] {
            establish(cluster, &client, &kind).await?;
        }
        let home = Namespace::create(&client, "figures").await?;
        let operator = match &cli.operator {
            Some(path) => path.canonicalize().context("--operator")?,
            None => built("elasti-operator")?,
        };
        eprintln!(
            "Measuring {} in namespace {}, {}",
            operator.display(),
            home.name(),
            cluster.describe()
        );
        let kubeconfig = match cluster.kubeconfig() {
            Some(path) => Some(with_token(&client, home.name(), &path).await?),
            None => None,
        };
        Ok(Self {
            kubeconfig,
            resolver: Resolver::start(cluster, &client, home.name(), cli.services + SPARE_PORTS)
                .await?,
            _prometheus: cli
                .triggers
                .then(|| prometheus::start(cluster))
                .transpose()?,
            _data_plane: Paused::parts(cluster, &["kube-proxy"])?,
            routing: &cli.routing,
            triggers: cli.triggers,
            cluster,
            client,
            home,
            operator,
        })
    }

    pub(crate) fn namespace(&self) -> &str {
        self.home.name()
    }

    /// Without waiting for an operator to let go of every ElastiService.
    pub(crate) async fn clear(&self) -> Result<()> {
        let objects: Api<ElastiService> = Api::namespaced(self.client.clone(), self.namespace());
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let all = objects.list_metadata(&ListParams::default()).await?;
        stream::iter(all.items)
            .map(Ok)
            .try_for_each_concurrent(16, async |object| {
                let name = object.name_any();
                objects
                    .patch_metadata(&name, &PatchParams::default(), &free)
                    .await
                    .map(drop)
            })
            .await?;
        self.home.delete(&self.client).await
    }
}

/// That of the cluster, for an account that may do everything in one namespace.
async fn with_token(client: &Client, namespace: &str, cluster: &Path) -> Result<NamedTempFile> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
    let post = PostParams::default();
    let account = json!({"metadata": {"name": ACCOUNT}});
    accounts
        .create(&post, &serde_json::from_value(account)?)
        .await?;
    let binding = json!({
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    });
    bindings
        .create(&post, &serde_json::from_value(binding)?)
        .await?;
    let wanted = TokenRequest::default();
    let request = accounts.create_token_request(ACCOUNT, &post, &wanted);
    let status = request.await?.status.context("a token was asked for")?;
    let mut kubeconfig = Kubeconfig::read_from(cluster)?;
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(AuthInfo {
            token: Some(status.token.clone().into()),
            ..AuthInfo::default()
        });
    }
    let mut file = NamedTempFile::new()?;
    serde_json::to_writer(&mut file, &kubeconfig)?;
    Ok(file)
}
