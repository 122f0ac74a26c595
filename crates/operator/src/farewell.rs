//! Before an uninstall: every target as it would be without us, and nothing that waits for us.

use crate::{
    apply, clock,
    feed::dynamic,
    index::Index,
    operator::Operator,
    run::{Parts, RETRY},
    wake,
};
use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, FINALIZER};
use elasti_runtime::watch::{Key, Scope};
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Let go at once.
const HANDS: usize = 16;

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

    /// Resolves when no ElastiService needs us any more. What cannot be given back within this time is woken and let go.
    pub async fn release(&self, within: Duration) -> Result<()> {
        let operator = &*self.operator;
        if held(operator).await?.is_none() {
            tracing::info!("There are no ElastiServices, and nothing to give back");
            return Ok(());
        }
        if timeout(within, self.give_back()).await.is_err() {
            tracing::warn!("Not all targets came up again: what is left is let go");
        }
        let_go(operator).await
    }

    async fn give_back(&self) {
        let operator = &*self.operator;
        self.readiness.ready().await;
        let mut least = usize::MAX;
        loop {
            let needed = operator.read(needed);
            if needed == 0 && operator.leads() {
                return;
            }
            // While some come up, the others may still do so.
            if needed < least {
                least = needed;
                operator.note(|index| index.wait_anew(clock::now()));
            }
            sleep(RETRY).await;
        }
    }
}

fn needed(index: &Index) -> usize {
    index
        .understood()
        .filter(|(_, object)| object.finalizers().iter().any(is_ours))
        .count()
}

/// All that have our finalizer, those that are not understood, too. `None` if there cannot be any.
async fn held(operator: &Operator) -> Result<Option<Vec<DynamicObject>>> {
    let resource = ApiResource::erase::<ElastiService>(&());
    let api = dynamic(&operator.client, &resource);
    let mut held = None;
    for scope in operator.settings.scopes() {
        let error = match api(&scope).list(&ListParams::default()).await {
            Ok(all) => {
                let ours = |object: &DynamicObject| object.finalizers().iter().any(is_ours);
                let found = held.get_or_insert_with(Vec::new);
                found.extend(all.items.into_iter().filter(ours));
                continue;
            }
            Err(error) => apply::Error::from(error),
        };
        match (error.category(), &scope) {
            // The CRD is gone, and all of them with it.
            ("not_found", _) => {}
            // The namespace is, and our Role with it.
            ("forbidden", Scope::Namespace(namespace)) => {
                tracing::warn!(%namespace, %error, "Left as it is");
            }
            _ => return Err(error).context("listing ElastiServices"),
        }
    }
    Ok(held)
}

async fn let_go(operator: &Operator) -> Result<()> {
    let left = held(operator).await?.unwrap_or_default();
    let failed = stream::iter(&left)
        .map(async |object| {
            let key = Key::of(object);
            let woken = wake::rouse(operator, &key).await;
            tracing::warn!(elasti_service = %key, woken, "Let go as it is");
            let others = object.finalizers().iter().filter(|name| !is_ours(name));
            let others: Vec<String> = others.cloned().collect();
            let done = apply::set_finalizers(&operator.client, &key, &others, None).await;
            done.inspect_err(
                |error| tracing::error!(elasti_service = %key, %error, "Could not let go"),
            )
        })
        .buffer_unordered(HANDS)
        .filter(|done| std::future::ready(done.is_err()))
        .count()
        .await;
    ensure!(failed == 0, "{failed} ElastiServices still wait for us");
    Ok(())
}

fn is_ours(finalizer: &String) -> bool {
    finalizer == FINALIZER
}
