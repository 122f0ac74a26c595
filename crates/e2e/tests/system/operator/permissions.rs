use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, ElastiServiceStatus, Mode, Phase, names};
use elasti_e2e::{
    Place,
    stage::{Meter, Setting, Stage, metric, service},
};
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{Service, ServiceAccount},
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use std::{fs, path::PathBuf};

const SHIPPED: &str = include_str!("../../../../../config/namespaced/permissions/operator.yaml");
const SHIPPED_AT_HOME: &str = include_str!("../../../../../config/base/operator-permissions.yaml");
/// Group, kind and what of it.
const DEPLOYMENTS: [&str; 2] = ["apps/deployments", "apps/deployments/scale"];

#[test]
#[ignore = "needs a cluster: make e2e"]
fn roles_in_its_namespaces_are_all_that_it_needs() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let meter = Meter::idle(place).await?;
        let elsewhere = place.beside("elsewhere").await?;
        let there = stage.at(&elsewhere);
        there.deploy("Deployment", 0).await?;
        there.declare(json!({})).await?;
        let limited = limited(place, &DEPLOYMENTS).await?;
        let operator = stage
            .operator_with(Setting::default().kubeconfig(limited))
            .await?;
        stage.deploy("Deployment", 1).await?;
        stage.declare(json!({"triggers": meter.triggers()})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage.sleep_no_more().await?;
        operator.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.said("SuccessToScale", "ElastiService").await?;

        let private = names::private_service("web");
        let uid = stage.uid::<Service>(&private).await?;
        let ports = json!([{"port": 80, "targetPort": 8080}]);
        place.put(service("shop", "web", &ports)).await?;
        stage.amend("web", json!({"service": "shop"})).await?;
        stage
            .gone::<Service>(&private, &uid)
            .await
            .context("the old service is let go")?;
        stage.delete::<ElastiService>("web").await?;
        let untouched = there.api::<ElastiService>().get("web").await?;
        ensure!(
            untouched.status.is_none(),
            "{untouched:?} is none of its business"
        );
        elsewhere.leave().await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_kind_that_it_may_not_see_is_told_and_harms_no_other() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let limited = limited(place, &DEPLOYMENTS).await?;
        let operator = stage
            .operator_with(Setting::default().kubeconfig(limited))
            .await?;
        stage.deploy_as("hidden", "StatefulSet", 0).await?;
        let target = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "hidden"});
        stage
            .declare_as("hidden", json!({"scaleTargetRef": target}))
            .await?;
        let says_why = |status: &ElastiServiceStatus| {
            status.conditions.iter().any(|condition| {
                (&*condition.type_, &*condition.status) == ("TargetFound", "Unknown")
                    && condition.message.contains("statefulsets")
            })
        };
        stage
            .until_status(
                "hidden",
                "the API server's refusal in a condition",
                says_why,
            )
            .await?;

        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        operator.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;

        let both = [
            DEPLOYMENTS,
            ["apps/statefulsets", "apps/statefulsets/scale"],
        ]
        .concat();
        allow(place, &both).await?;
        stage.reaches_as("hidden", Phase::Asleep, Mode::Proxy).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_spec_that_named_what_it_may_not_scale_can_be_put_right() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let meter = Meter::idle(place).await?;
        let limited = limited(place, &DEPLOYMENTS).await?;
        let operator = stage
            .operator_with(Setting::default().kubeconfig(limited))
            .await?;
        stage.deploy("Deployment", 1).await?;
        let target = |kind: &str| json!({"apiVersion": "apps/v1", "kind": kind, "name": "web"});
        let wrong = json!({"service": "web", "scaleTargetRef": target("StatefulSet")});
        stage.declare(wrong).await?;
        let taken = |status: &ElastiServiceStatus| status.attached.is_some();
        stage.until_status("web", "attached", taken).await?;

        let ports = json!([{"port": 80, "targetPort": 8080}]);
        place.put(service("shop", "web", &ports)).await?;
        let right = json!({
            "service": "shop",
            "scaleTargetRef": target("Deployment"),
            "triggers": meter.triggers(),
        });
        stage.amend("web", right).await?;
        stage.said("FailedToScale", "StatefulSet").await?;
        let refused = [("target", "StatefulSet-web"), ("error", "forbidden")];
        let counted = metric(
            &operator.metrics().await?,
            "elasti_operator_scale_counter",
            &refused,
        );
        ensure!(counted >= Some(1.0), "{counted:?} of the old target");
        stage
            .until::<Service>(&names::private_service("shop"), "made", |_| true)
            .await
            .context("what is right does not wait for what was wrong")?;
        stage.said("FailedToRestore", "StatefulSet").await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage
            .condition("web", "Ready", "True", "AllInPlace")
            .await?;
        Ok(())
    })
}

/// A kubeconfig of somebody who may do in this namespace what the operator has to, to targets of
/// these kinds alone, and nothing anywhere else.
async fn limited(place: &Place, targets: &[&str]) -> Result<PathBuf> {
    allow(place, targets).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": place.namespace.name()}],
    });
    place.put(binding).await?;
    let accounts: Api<ServiceAccount> =
        Api::namespaced(place.client.clone(), place.namespace.name());
    let made = accounts
        .create_token_request("default", &PostParams::default(), &TokenRequest::default())
        .await?;
    let token = made.status.context("a token was made")?.token;
    let view = [
        "config",
        "view",
        "--raw",
        "--flatten",
        "--minify",
        "--output=json",
    ];
    let mut config: Value = serde_json::from_str(&place.kubectl_text(&view)?)?;
    config["users"][0]["user"] = json!({"token": token});
    let path = place.folder().join("limited.yaml");
    fs::write(&path, config.to_string())?;
    Ok(path)
}

/// As shipped, but for the targets: these, in place of those of before.
async fn allow(place: &Place, targets: &[&str]) -> Result<()> {
    let all = format!("{SHIPPED}\n---\n{SHIPPED_AT_HOME}");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&all)?;
    let roles = objects.iter().filter(|object| object["kind"] == "Role");
    let shipped = roles.flat_map(|role| role["rules"].as_array().into_iter().flatten());
    let of_targets = |rule: &&Value| {
        ["apps", "argoproj.io"]
            .map(Value::from)
            .contains(&rule["apiGroups"][0])
    };
    let mut rules: Vec<Value> = shipped.filter(|rule| !of_targets(rule)).cloned().collect();
    for target in targets {
        let (group, resource) = target.split_once('/').unwrap_or(("", target));
        let verbs = if resource.ends_with("/scale") {
            json!(["get", "patch"])
        } else {
            json!(["list", "watch"])
        };
        rules.push(json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}));
    }
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "operator"},
        "rules": rules,
    });
    place.put(role).await?;
    Ok(())
}
