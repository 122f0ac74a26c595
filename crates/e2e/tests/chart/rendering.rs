use crate::{
    CHART, VERSION, WORKSPACE, environment, helm, matches, name, named, of_kind, rendered,
    succeeded, template,
};
use anyhow::{Result, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec;
use serde_json::{Value, json};
use std::{collections::BTreeSet, env, fs, process::Command};

/// Of a Deployment, and the same wherever Elasti is installed from.
const POD: &[&str] = &[
    "spec/replicas",
    "spec/template/metadata/annotations",
    "spec/template/spec/securityContext",
    "spec/template/spec/containers/0/securityContext",
    "spec/template/spec/containers/0/resources",
    "spec/template/spec/containers/0/readinessProbe",
    "spec/template/spec/containers/0/livenessProbe",
    "spec/template/spec/containers/0/ports",
    "spec/template/spec/containers/0/image",
    "spec/template/spec/priorityClassName",
    "spec/template/spec/terminationGracePeriodSeconds",
    "spec/template/spec/volumes",
];

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
        "PriorityClass/elasti",
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
    let rendered = rendered("default", &[])?;
    let names: BTreeSet<String> = rendered.iter().map(name).collect();
    let expected: BTreeSet<String> = expected.into_iter().map(String::from).collect();
    ensure!(names == expected, "{names:#?}");
    Ok(())
}

/// `UPDATE=1 make chart` writes them anew, for a review of what a change does.
#[test]
#[ignore = "needs helm: make chart"]
fn it_renders_what_was_reviewed() -> Result<()> {
    for set in ["allowed-namespaces", "default", "kubeelasti", "others"] {
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
    let chart = rendered("default", &[])?;
    for (file, kind, parts) in [
        ("operator", "Deployment", POD),
        ("resolver", "Deployment", POD),
        ("priorityclass", "PriorityClass", &["value", "description"]),
    ] {
        let file = format!("{WORKSPACE}/config/base/{file}.yaml");
        let base: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(file)?)?;
        for base in of_kind(&base, kind) {
            let object = named(&chart, &name(base))?;
            for part in parts {
                let part = format!("/{part}");
                let (ours, theirs) = (object.pointer(&part), base.pointer(&part));
                ensure!(ours == theirs, "{} {part}: {ours:?} {theirs:?}", name(base));
            }
        }
    }
    let crd = fs::read_to_string(format!("{WORKSPACE}/config/crd/elastiservices.yaml"))?;
    let crd: Value = serde_saphyr::from_str(&crd)?;
    let ours = named(&chart, &name(&crd))?;
    let spec = |crd: &Value| -> Result<CustomResourceDefinitionSpec> {
        Ok(serde_json::from_value(crd["spec"].clone())?)
    };
    ensure!(spec(ours)? == spec(&crd)?, "the CRD came through unchanged");
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn the_crd_outlives_a_release_unless_somebody_says_otherwise() -> Result<()> {
    let crd = "CustomResourceDefinition/elastiservices.elasti.truefoundry.com";
    for (set, policy) in [("default", json!("keep")), ("others", Value::Null)] {
        let rendered = rendered(set, &[])?;
        let found = &named(&rendered, crd)?["metadata"]["annotations"]["helm.sh/resource-policy"];
        ensure!(*found == policy, "{set}: {found}");
    }
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn with_namespaces_it_asks_for_nothing_cluster_wide() -> Result<()> {
    let rendered = rendered("allowed-namespaces", &[])?;
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
            let all = environment(object)?;
            let watched = json!({"name": "WATCH_NAMESPACES", "value": "shop,office,elasti"});
            ensure!(all.contains(&watched), "{all:?}");
            let asks = json!({"name": "ELASTI_AUTHENTICATE_KNOCKS", "value": "true"});
            ensure!(!all.contains(&asks), "TokenReview is cluster-wide");
        }
    }
    let without = ["--set=crds.enabled=false"];
    let without = template("allowed-namespaces", &without)?;
    ensure!(!succeeded(&without)?.contains("CustomResourceDefinition"));
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn service_monitors_find_services_those_of_kubeelasti_too() -> Result<()> {
    let chart = rendered("default", &["--set=global.enableMonitoring=true"])?;
    let monitor = |labels: Value, port: &str| json!({"spec": {"selector": {"matchLabels": labels}, "endpoints": [{"port": port}]}});
    let theirs = [
        monitor(
            json!({"control-plane": "controller-manager"}),
            "custom-port",
        ),
        monitor(
            json!({"app.kubernetes.io/name": "elasti-resolver"}),
            "http-resolver",
        ),
    ];
    let ours = of_kind(&chart, "ServiceMonitor");
    ensure!(ours.len() == 2);
    for monitor in ours.into_iter().chain(&theirs) {
        let port = &monitor["spec"]["endpoints"][0]["port"];
        let found = of_kind(&chart, "Service").into_iter().filter(|service| {
            let ports = service["spec"]["ports"].as_array();
            matches(&monitor["spec"]["selector"], &service["metadata"]["labels"])
                && ports
                    .into_iter()
                    .flatten()
                    .any(|found| found["name"] == *port)
        });
        ensure!(found.count() == 1, "{monitor}");
    }
    Ok(())
}

/// They cannot be changed by an upgrade, from KubeElasti's chart either.
#[test]
#[ignore = "needs helm: make chart"]
fn no_value_changes_what_selects_pods() -> Result<()> {
    let selector = |key: &str, value: &str| {
        let (name, instance) = ("app.kubernetes.io/name", "app.kubernetes.io/instance");
        json!({(key): value, (name): "elasti", (instance): "elasti"})
    };
    let operator = selector("control-plane", "controller-manager");
    let resolver = selector("app", "elasti-resolver");
    for values in [
        "global.nameOverride=other",
        "global.fullnameOverride=swift",
        "global.labels.app=mine,elastiResolver.podLabels.app=mine",
    ] {
        let rendered = rendered("default", &[&format!("--set={values}")])?;
        let [of_operator, of_resolver] = of_kind(&rendered, "Deployment")[..] else {
            bail!("there are two Deployments");
        };
        for (deployment, selector) in [(of_operator, &operator), (of_resolver, &resolver)] {
            let spec = &deployment["spec"];
            let selects = &spec["selector"]["matchLabels"];
            ensure!(selects == selector, "{values}: {selects}");
            let labels = &spec["template"]["metadata"]["labels"];
            for (key, value) in selector.as_object().into_iter().flatten() {
                ensure!(labels[key] == *value, "{values}: {labels}");
            }
        }
        for service in of_kind(&rendered, "Service") {
            let selects = &service["spec"]["selector"];
            ensure!([&operator, &resolver].contains(&selects), "{service}");
        }
        for budget in of_kind(&rendered, "PodDisruptionBudget") {
            let selects = &budget["spec"]["selector"]["matchLabels"];
            ensure!([&operator, &resolver].contains(&selects), "{budget}");
        }
    }
    Ok(())
}
