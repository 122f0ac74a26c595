//! Before an uninstall: every target as it would be without us, and nothing that waits for us.

use crate::{
    apply,
    index::Index,
    operator::Operator,
    run::{Parts, RETRY},
};
use anyhow::{Context, Result};
use elasti_api::{ElastiService, FINALIZER};
use elasti_runtime::watch::{Key, Scope};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Whose targets do not come up in this time is let go nevertheless.
const PATIENCE: Duration = Duration::from_secs(120);

impl Parts {
    /// Ends the operators of this deployment: what one gives back another would take again.
    pub async fn end_others(&self, deployment: &str) -> Result<()> {
        let (client, namespace) = (&self.operator.client, &self.operator.settings.namespace);
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
        let ended = deployments
            .patch_scale(deployment, &PatchParams::default(), &none)
            .await;
        apply::gone_is_fine(ended.map(drop))
            .with_context(|| format!("scaling deployment {namespace}/{deployment} to 0"))
    }

    /// Resolves when no ElastiService needs us any more.
    pub async fn release(&self) -> Result<()> {
        let operator = &*self.operator;
        let released = async {
            self.readiness.ready().await;
            while !operator.leads() || operator.read(is_needed) {
                sleep(RETRY).await;
            }
        };
        if timeout(PATIENCE, released).await.is_err() {
            tracing::warn!("Not all targets came up again: what is left is let go");
        }
        let_go(operator).await
    }
}

fn is_needed(index: &Index) -> bool {
    index
        .understood()
        .any(|(_, object)| object.finalizers().iter().any(is_ours))
}

/// Those that are not understood, too.
async fn let_go(operator: &Operator) -> Result<()> {
    let resource = ApiResource::erase::<ElastiService>(&());
    for scope in operator.settings.scopes() {
        let client = operator.client.clone();
        let api: Api<DynamicObject> = match &scope {
            Scope::All => Api::all_with(client, &resource),
            Scope::Namespace(namespace) => Api::namespaced_with(client, namespace, &resource),
        };
        let all = api.list(&ListParams::default()).await?;
        for object in all
            .iter()
            .filter(|object| object.finalizers().iter().any(is_ours))
        {
            let key = Key::of(object);
            tracing::warn!(elasti_service = %key, "Let go as it is");
            let others = object.finalizers().iter().filter(|name| !is_ours(name));
            let others: Vec<String> = others.cloned().collect();
            apply::set_finalizers(&operator.client, &key, &others, None).await?;
        }
    }
    Ok(())
}

fn is_ours(finalizer: &String) -> bool {
    finalizer == FINALIZER
}
