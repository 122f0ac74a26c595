use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::stage::{Meter, Operator, Stage, metric, workload};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn an_argo_rollout_sleeps_and_wakes_by_its_old_plural_too() -> Result<()> {
    elasti_e2e::test(async |place| {
        let kind = Kind {
            group: "argoproj.io",
            version: "v1alpha1",
            kind: "Rollout",
            plural: "rollouts",
            count: "replicas",
        };
        sleeps_and_wakes(&Stage::set(place).await?, &kind, "rollouts").await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_custom_kind_with_scale_sleeps_and_wakes() -> Result<()> {
    elasti_e2e::test(async |place| {
        let kind = Kind {
            group: "e2e.elasti.local",
            version: "v1",
            kind: "Gizmo",
            plural: "gizmos",
            count: "replicas",
        };
        sleeps_and_wakes(&Stage::set(place).await?, &kind, "Gizmo").await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_custom_kind_may_count_its_replicas_anywhere() -> Result<()> {
    elasti_e2e::test(async |place| {
        let kind = Kind {
            group: "e2e.elasti.local",
            version: "v1",
            kind: "Widget",
            plural: "widgets",
            count: "size",
        };
        sleeps_and_wakes(&Stage::set(place).await?, &kind, "Widget").await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_target_deleted_and_made_again_while_asleep_still_wakes() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage.delete::<Deployment>("web").await?;
        stage
            .condition("web", "TargetFound", "False", "TargetMissing")
            .await?;
        stage.deploy("Deployment", 0).await?;
        stage
            .condition("web", "TargetFound", "True", "TargetFound")
            .await?;
        operator.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn another_target_is_taken_while_asleep_and_the_old_one_let_go() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        two_sleeping_targets(&stage).await?;
        stage.amend("web", other_target()).await?;
        old_one_is_let_go(&stage, &operator).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn another_target_named_while_the_operator_was_down_is_taken_too() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        two_sleeping_targets(&stage).await?;
        drop(operator);
        stage.amend("web", other_target()).await?;
        let operator = stage.operator().await?;
        old_one_is_let_go(&stage, &operator).await
    })
}

/// `web`, which is declared, and `other`, with pods for the same service.
async fn two_sleeping_targets(stage: &Stage<'_>) -> Result<()> {
    stage.deploy("Deployment", 0).await?;
    let mut other = workload("other", "Deployment", 0, &stage.image);
    other["spec"]["template"]["metadata"]["labels"]["app"] = "web".into();
    stage.place.put(other).await?;
    stage.declare(json!({})).await?;
    stage.reaches(Phase::Asleep, Mode::Proxy).await
}

fn other_target() -> Value {
    json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}})
}

async fn old_one_is_let_go(stage: &Stage<'_>, operator: &Operator) -> Result<()> {
    stage
        .scaled_to("web", 1)
        .await
        .context("the old one is back")?;
    let old = [("target", "Deployment-web"), ("error", "success")];
    let is_counted = |text: &str| metric(text, "elasti_operator_scale_counter", &old) == Some(1.0);
    operator
        .until("/metrics", "that the old one was scaled", is_counted)
        .await?;
    ensure!(stage.replicas("other").await? == 0, "the new one sleeps on");
    operator.knock("web").await?;
    stage.scaled_to("other", 1).await?;
    stage.reaches(Phase::Awake, Mode::Serve).await
}

struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// The field of its spec that `/scale` speaks of.
    count: &'static str,
}

/// Nobody runs a controller for such a kind: a deployment's pods answer for it.
async fn sleeps_and_wakes(stage: &Stage<'_>, kind: &Kind, named: &str) -> Result<()> {
    stage.install(&kind.crd().to_string()).await?;
    let operator = stage.operator().await?;
    let meter = Meter::idle(stage.place).await?;
    stage.deploy("Deployment", 1).await?;
    stage.place.put(kind.object(1)).await?;
    let target = json!({"apiVersion": kind.api_version(), "kind": named, "name": "web"});
    stage
        .declare(json!({
            "minTargetReplicas": 2,
            "scaleTargetRef": target,
            "triggers": meter.triggers(),
        }))
        .await?;
    stage.reaches(Phase::Asleep, Mode::Proxy).await?;
    await_condition(kind.api(stage), "web", kind.counts(0)).await?;
    stage.sleep_no_more().await?;
    operator.knock("web").await?;
    stage.reaches(Phase::Awake, Mode::Serve).await?;
    await_condition(kind.api(stage), "web", kind.counts(2)).await?;
    Ok(())
}

// === impl Kind ===

impl Kind {
    fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    fn api(&self, stage: &Stage<'_>) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, self.plural);
        let namespace = stage.place.namespace.name();
        Api::namespaced_with(stage.place.client.clone(), namespace, &resource)
    }

    fn counts(&self, count: i32) -> impl Fn(Option<&DynamicObject>) -> bool {
        let field = self.count;
        move |object| object.is_some_and(|object| object.data["spec"][field] == count)
    }

    fn object(&self, count: i32) -> Value {
        json!({
            "apiVersion": self.api_version(),
            "kind": self.kind,
            "metadata": {"name": "web"},
            "spec": {self.count: count},
            // As their controller would keep telling.
            "status": {"readyReplicas": count},
        })
    }

    fn crd(&self) -> Value {
        let integer = json!({"type": "integer"});
        let counts = json!({"type": "object", "properties": {
            self.count: integer,
            "readyReplicas": integer,
        }});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", self.plural, self.group)},
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": {
                    "kind": self.kind,
                    "plural": self.plural,
                    "singular": self.kind.to_lowercase(),
                },
                "versions": [{
                    "name": self.version,
                    "served": true,
                    "storage": true,
                    "subresources": {"scale": {
                        "specReplicasPath": format!(".spec.{}", self.count),
                        "statusReplicasPath": format!(".status.{}", self.count),
                    }},
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": counts, "status": counts},
                    }},
                }],
            },
        })
    }
}
