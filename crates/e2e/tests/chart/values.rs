use crate::{CHART, environment, named, rendered, succeeded, template};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs};

const OPERATOR: &str = "Deployment/elasti-operator-controller-manager";
const RESOLVER: &str = "Deployment/elasti-resolver";

#[test]
#[ignore = "needs helm: make chart"]
fn every_value_of_kubeelasti_has_an_effect() -> Result<()> {
    let file = fs::read_to_string(format!("{CHART}/ci/kubeelasti.yaml"))?;
    let mut values: Value = serde_saphyr::from_str(&file)?;
    values["leftOver"].take();
    let mut texts = BTreeSet::new();
    leaves(&values, &mut texts);
    let rendered = succeeded(&template("kubeelasti", &[])?)?;
    let missing: Vec<_> = texts
        .iter()
        .filter(|text| !rendered.contains(*text))
        .collect();
    ensure!(missing.is_empty(), "without effect: {missing:?}");
    ensure!(!rendered.contains("replicas: 5"), "the autoscaler decides");
    ensure!(rendered.contains("replicas: 3"), "from its least on");
    ensure!(rendered.contains("terminationGracePeriodSeconds: 1270"));
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn sentry_has_the_keys_that_people_have_in_their_secrets() -> Result<()> {
    let rendered = rendered("kubeelasti", &[])?;
    for (name, key) in [
        (
            "Deployment/swift-operator-controller-manager",
            "operatorSentryDsn",
        ),
        ("Deployment/swift-resolver", "resolverSentryDsn"),
        ("Job/swift-uninstall", "operatorSentryDsn"),
    ] {
        // A Secret without them, or none, keeps nobody from starting.
        let key = json!({"name": "sentry", "key": key, "optional": true});
        let dsn = json!({"name": "SENTRY_DSN", "valueFrom": {"secretKeyRef": key}});
        let all = environment(named(&rendered, name)?)?;
        ensure!(all.contains(&dsn), "{name}: {all:?}");
    }
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn images_are_named_as_in_kubeelasti_s_chart() -> Result<()> {
    let appless = [
        "--set-string=elastiController.manager.image.tag=",
        "--set=global.image.registry=ghcr.io/",
    ];
    let rendered = rendered("default", &appless)?;
    let chart: Value = serde_saphyr::from_str(&fs::read_to_string(format!("{CHART}/Chart.yaml"))?)?;
    let version = chart["appVersion"].as_str().unwrap_or_default();
    for (name, image) in [
        (OPERATOR, format!("ghcr.io/operator:{version}")),
        (RESOLVER, "ghcr.io/resolver:latest".into()),
    ] {
        let pod = &named(&rendered, name)?["spec"]["template"]["spec"];
        let found = &pod["containers"][0]["image"];
        ensure!(*found == image, "{found}");
    }
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn a_flag_and_its_value_may_be_two_arguments() -> Result<()> {
    let flags = [
        "--metrics-bind-address",
        ":9090",
        "--health-probe-bind-address",
        ":9091",
    ];
    let args = format!(
        "--set=elastiController.manager.args={{{}}}",
        flags.join(",")
    );
    let rendered = rendered("default", &[&args])?;
    let container = &named(&rendered, OPERATOR)?["spec"]["template"]["spec"]["containers"][0];
    ensure!(container["args"] == json!(flags), "{container}");
    let ports = json!([
        {"name": "custom-port", "containerPort": 8013},
        {"name": "http", "containerPort": 9090},
        {"name": "health", "containerPort": 9091},
    ]);
    ensure!(container["ports"] == ports, "{container}");
    Ok(())
}

/// Its chart has such a value, and no use for it.
#[test]
#[ignore = "needs helm: make chart"]
fn nothing_is_published_that_kubeelasti_does_not_publish() -> Result<()> {
    let public = "--set=elastiResolver.reverseProxyService.type=LoadBalancer";
    let rendered = rendered("default", &[public])?;
    let service = named(&rendered, "Service/elasti-resolver-service")?;
    ensure!(service["spec"]["type"] == "ClusterIP", "{service}");
    Ok(())
}

/// Argo CD, say, which has no cluster to ask.
#[test]
#[ignore = "needs helm: make chart"]
fn whoever_renders_without_a_cluster_can_leave_replicas_to_the_autoscaler() -> Result<()> {
    let without = "--set=elastiResolver.autoscaling.writeReplicas=false";
    for (args, replicas) in [(&[][..], json!(2)), (&[without], Value::Null)] {
        let rendered = rendered("default", args)?;
        let found = &named(&rendered, RESOLVER)?["spec"]["replicas"];
        ensure!(*found == replicas, "{found}");
    }
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn a_wrong_value_is_named() -> Result<()> {
    for (wrong, told) in [
        ("elastiResolver.replicas=two", "/elastiResolver/replicas"),
        (
            "elastiResolver.proxy.env.reqTimeout=soon",
            "/elastiResolver/proxy/env/reqTimeout",
        ),
        ("elastiController.service.port=70000", "65,535"),
        ("elastiController.service.type=Public", "LoadBalancer"),
        ("global.allowedNamespaces=shop", "/global/allowedNamespaces"),
        (
            "global.nameOverride=much-too-long-a-name",
            "global.fullnameOverride",
        ),
        (
            "elastiController.manager.env.resolverPorts=99999-99999",
            "such as 10000-32767",
        ),
        (
            "elastiController.manager.env.resolverPorts=32767-10000",
            "such as 10000-32767",
        ),
        (
            "elastiController.manager.env.resolverPorts=8000-8012",
            "8012",
        ),
        (
            "elastiController.manager.env.resolverPorts=8013-9000",
            "8013",
        ),
        ("elastiResolver.autoscaling.minReplicas=9", "maxReplicas"),
        ("uninstall.deadlineSeconds=0", "/uninstall/deadlineSeconds"),
    ] {
        let output = template("default", &[&format!("--set={wrong}")])?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "{wrong} passed");
        ensure!(error.contains(told), "{wrong}: {error}");
    }
    succeeded(&template("default", &["--set=nobody.knows=this"])?)?;
    Ok(())
}

/// Every number and text, and the names of those that only say yes.
fn leaves(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            if value == "yes" {
                texts.insert(key.clone());
            }
            leaves(value, texts);
        }),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, texts)),
        Value::String(text) => drop(texts.insert(text.clone())),
        Value::Number(number) => drop(texts.insert(number.to_string())),
        Value::Bool(_) | Value::Null => {}
    }
}
