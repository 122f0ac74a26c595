use crate::{CHART, succeeded, template};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::{collections::BTreeSet, fs};

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
    ensure!(rendered.contains("terminationGracePeriodSeconds: 1270"));
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
