//! A namespace with all that the operator needs around it.

use crate::{Cli, prometheus, resolver::Resolver};
use anyhow::{Context, Result};
use elasti_api::ElastiService;
use elasti_cluster::Cluster;
use elasti_e2e::{Namespace, Running, built, establish, scalable};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client, CustomResourceExt, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use std::path::PathBuf;

/// More ports than services: those of another part may still rest.
const SPARE_PORTS: usize = 1_000;

pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) client: Client,
    home: Namespace,
    pub(crate) operator: PathBuf,
    pub(crate) routing: &'a str,
    pub(crate) resolver: Resolver,
    pub(crate) triggers: bool,
    _prometheus: Option<Running>,
}

// === impl Stage ===

impl<'a> Stage<'a> {
    pub(crate) async fn set(cluster: &'a Cluster, cli: &'a Cli) -> Result<Self> {
        let client = cluster.client().await?;
        for kind in [
            ElastiService::crd(),
            scalable("figures.elasti.local", "Gadget", "gadgets")?,
        ] {
            establish(&client, &kind).await?;
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
        Ok(Self {
            resolver: Resolver::start(cluster, &client, home.name(), cli.services + SPARE_PORTS)
                .await?,
            _prometheus: cli
                .triggers
                .then(|| prometheus::start(cluster))
                .transpose()?,
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
