use crate::{CHART, VERSION, WORKSPACE, helm, name, rendered, succeeded, template};
use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec;
use serde_json::{Value, json};
use std::{collections::BTreeSet, env, fs, process::Command};

#[test]
#[ignore = "needs helm: make chart"]
fn it_has_the_names_that_people_know() -> Result<()> {
    let mut lint = Command::new(helm());
    succeeded(&lint.args(["lint", "--strict", VERSION, CHART]).output()?)?;
    let expected = [
        "ClusterRole/elasti-operator-controller-manager",
        "ClusterRole/elasti-resolver",
        "ClusterRoleBinding/elasti-operator-controller-manager",
        "ClusterRoleBinding/elasti-resolver",
        "CustomResourceDefinition/elastiservices.elasti.truefoundry.com",
        "Deployment/elasti-operator-controller-manager",
        "Deployment/elasti-resolver",
        "HorizontalPodAutoscaler/elasti-resolver",
        "Job/elasti-uninstall",
        "PodDisruptionBudget/elasti-operator-controller-manager",
        "PodDisruptionBudget/elasti-resolver",
        "Role/elasti-operator-controller-manager-at-home",
        "Role/elasti-uninstall",
        "RoleBinding/elasti-operator-controller-manager-at-home",
        "RoleBinding/elasti-uninstall",
        "Service/elasti-operator-controller-manager-metrics-service",
        "Service/elasti-operator-controller-service",
        "Service/elasti-resolver-service",
        "ServiceAccount/elasti-operator-controller-manager",
        "ServiceAccount/elasti-resolver",
    ];
    let rendered = rendered("default")?;
    let names: BTreeSet<String> = rendered.iter().map(name).collect();
    let expected: BTreeSet<String> = expected.into_iter().map(String::from).collect();
    ensure!(names == expected, "{names:#?}");
    Ok(())
}

/// `UPDATE=1 make chart` writes them anew, for a review of what a change does.
#[test]
#[ignore = "needs helm: make chart"]
fn it_renders_what_was_reviewed() -> Result<()> {
    for set in ["allowed-namespaces", "default", "kubeelasti"] {
        let rendered = succeeded(&template(set, &["--set=crds.enabled=false"])?)?;
        let reviewed = format!("{WORKSPACE}/crates/e2e/tests/chart/{set}.yaml");
        if env::var_os("UPDATE").is_some() {
            fs::write(&reviewed, &rendered)?;
        }
        let known = fs::read_to_string(&reviewed)?;
        let changed = rendered.lines().zip(known.lines()).find(|(a, b)| a != b);
        ensure!(rendered == known, "{set}, first at {changed:?}");
    }
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn it_makes_what_config_base_makes() -> Result<()> {
    let rendered = rendered("default")?;
    let find = |like: &Value, kinds: &[&str]| {
        let wanted = name(like);
        let found = rendered.iter().find(|object| name(object) == wanted);
        let kind = like["kind"].as_str().unwrap_or_default();
        kinds.contains(&kind).then_some(found).flatten()
    };
    let mut compared = 0;
    for file in [
        "operator",
        "operator-permissions",
        "resolver",
        "resolver-permissions",
    ] {
        let file = format!("{WORKSPACE}/config/base/{file}.yaml");
        let objects: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(file)?)?;
        for base in &objects {
            let Some(object) = find(base, &["ClusterRole", "Deployment"]) else {
                continue;
            };
            ensure!(rules(object) == rules(base), "{} differs", name(object));
            for part in [
                "securityContext",
                "containers/0/securityContext",
                "containers/0/resources",
                "containers/0/readinessProbe",
                "containers/0/livenessProbe",
                "containers/0/ports",
                "containers/0/image",
                "terminationGracePeriodSeconds",
                "volumes",
            ] {
                let part = format!("/spec/template/spec/{part}");
                let (ours, theirs) = (object.pointer(&part), base.pointer(&part));
                ensure!(ours == theirs, "{} {part}: {ours:?} {theirs:?}", name(base));
            }
            compared += 1;
        }
    }
    ensure!(
        compared == 4,
        "two roles and two deployments, not {compared}"
    );
    let crd = fs::read_to_string(format!("{WORKSPACE}/config/crd/elastiservices.yaml"))?;
    let crd: Value = serde_saphyr::from_str(&crd)?;
    let ours = find(&crd, &["CustomResourceDefinition"]).context("it has the CRD")?;
    let spec = |crd: &Value| -> Result<CustomResourceDefinitionSpec> {
        Ok(serde_json::from_value(crd["spec"].clone())?)
    };
    ensure!(spec(ours)? == spec(&crd)?, "the CRD came through unchanged");
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn with_namespaces_it_asks_for_nothing_cluster_wide() -> Result<()> {
    let rendered = rendered("allowed-namespaces")?;
    for object in &rendered {
        let kind = object["kind"].as_str().unwrap_or_default();
        ensure!(!kind.starts_with("ClusterRole"), "{}", name(object));
        let has_namespace = object["metadata"]["namespace"].is_string();
        ensure!(
            has_namespace || kind == "CustomResourceDefinition",
            "{} is in no namespace",
            name(object)
        );
        if kind == "Deployment" {
            let environment = &object["spec"]["template"]["spec"]["containers"][0]["env"];
            let watched = json!({"name": "WATCH_NAMESPACES", "value": "shop,office,elasti"});
            let all = environment.as_array().context("it has an environment")?;
            ensure!(all.contains(&watched), "{environment}");
            let asks = json!({"name": "ELASTI_AUTHENTICATE_KNOCKS", "value": "true"});
            ensure!(!all.contains(&asks), "TokenReview is cluster-wide");
        }
    }
    let without = ["--set=crds.enabled=false"];
    let without = template("allowed-namespaces", &without)?;
    ensure!(!succeeded(&without)?.contains("CustomResourceDefinition"));
    Ok(())
}

fn rules(object: &Value) -> BTreeSet<String> {
    let rules = object["rules"].as_array().into_iter().flatten();
    rules.map(Value::to_string).collect()
}
