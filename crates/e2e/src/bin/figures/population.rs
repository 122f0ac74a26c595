//! Sleeping services by the thousand: a Service, a target at zero replicas and an ElastiService each.

use crate::{copies::Place, prometheus, stage::Stage};
use anyhow::{Context, Result};
use elasti_api::ElastiService;
use futures::{TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use tokio::time::Instant;

const AT_ONCE: usize = 32;

pub(crate) struct Population {
    client: Client,
    namespace: String,
    triggers: Value,
    /// Of resolvers, for the services.
    ports: RangeInclusive<u16>,
    /// One that stands for others.
    first: Option<String>,
    pub(crate) count: usize,
}

// === impl Population ===

impl Population {
    pub(crate) fn new(stage: &Stage<'_>) -> Self {
        Self {
            client: stage.client.clone(),
            namespace: stage.namespace().into(),
            ports: stage.resolver.ports.clone(),
            triggers: if stage.triggers {
                prometheus::trigger()
            } else {
                json!([])
            },
            first: None,
            count: 0,
        }
    }

    /// Returns when the last ElastiService was created.
    pub(crate) async fn add(&mut self, names: &[String]) -> Result<Instant> {
        eprintln!("Creating {} sleeping services", names.len());
        self.create(&ApiResource::erase::<Service>(&()), names, service)
            .await?;
        self.create(&targets(), names, target).await?;
        let elasti_services = ApiResource::erase::<ElastiService>(&());
        let elasti_service = |name: &str| elasti_service(name, &self.triggers);
        self.create(&elasti_services, names, elasti_service).await?;
        self.count += names.len();
        Ok(Instant::now())
    }

    /// The same, for a local cluster: all but the first are copies of it.
    pub(crate) async fn store(&mut self, names: &[String]) -> Result<()> {
        let Some((first, others)) = names.split_first() else {
            return Ok(());
        };
        self.add(std::slice::from_ref(first)).await?;
        self.first = Some(first.clone());
        self.copy(first, others).await
    }

    /// As those are that were stored before: the operator has worked on them.
    pub(crate) async fn multiply(&mut self, names: &[String]) -> Result<()> {
        let first = self
            .first
            .clone()
            .context("there are fewer of them before")?;
        self.copy(&first, names).await
    }

    async fn copy(&mut self, first: &str, names: &[String]) -> Result<()> {
        eprintln!("Storing {} copies of {first}", names.len());
        let place = Place {
            client: &self.client,
            namespace: &self.namespace,
            targets: targets(),
            ports: self.ports.clone(),
        };
        place.copy(first, names).await?;
        self.count += names.len();
        Ok(())
    }

    async fn create(
        &self,
        resource: &ApiResource,
        names: &[String],
        object: impl Fn(&str) -> Value,
    ) -> Result<()> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, resource);
        stream::iter(names.iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, async |name| {
                let object = serde_json::from_value(object(name))?;
                api.create(&PostParams::default(), &object)
                    .await
                    .with_context(|| format!("creating {} {name}", resource.kind))?;
                Ok(())
            })
            .await
    }
}

pub(crate) fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}-{i:05}")).collect()
}

pub(crate) fn targets() -> ApiResource {
    let kind = GroupVersionKind::gvk("figures.elasti.local", "v1", "Gadget");
    ApiResource::from_gvk_with_plural(&kind, "gadgets")
}

fn labels(name: &str) -> Value {
    json!({
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/version": "1.4.2",
        "app.kubernetes.io/managed-by": "Helm",
        "helm.sh/chart": "web-0.7.1",
    })
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels(name)},
        "spec": {
            "selector": {"app.kubernetes.io/name": name},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    })
}

/// As large as an ordinary Deployment: whoever lists targets has to read all of it.
fn target(name: &str) -> Value {
    let probe = json!({"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10});
    let env: Vec<Value> = (0..12)
        .map(|i| json!({"name": format!("SETTING_{i}"), "value": format!("value-{i}-of-{name}")}))
        .collect();
    json!({
        "apiVersion": "figures.elasti.local/v1",
        "kind": "Gadget",
        "metadata": {"name": name, "labels": labels(name)},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {
                "metadata": {"labels": labels(name)},
                "spec": {"containers": [{
                    "name": "web",
                    "image": format!("registry.example.com/shop/{name}:1.4.2"),
                    "ports": [{"name": "http", "containerPort": 8080}],
                    "env": env,
                    "readinessProbe": probe,
                    "livenessProbe": probe,
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                    "securityContext": {"runAsNonRoot": true, "readOnlyRootFilesystem": true},
                }]},
            },
        },
    })
}

fn elasti_service(name: &str, triggers: &Value) -> Value {
    json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": name, "labels": labels(name)},
        "spec": {
            "service": name,
            "scaleTargetRef": {"apiVersion": "figures.elasti.local/v1", "kind": "Gadget", "name": name},
            "minTargetReplicas": 1,
            "cooldownPeriod": 900,
            "triggers": triggers,
        },
    })
}
