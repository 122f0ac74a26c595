//! The Helm chart: what it renders, and its life on a cluster.

mod farewell;
mod life;
mod policies;
mod release;
mod rendering;
mod roles;
mod traffic;
mod values;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    env,
    path::PathBuf,
    process::{Command, Output},
};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/elasti");
/// Without a cluster, helm takes one for granted that is too old.
const VERSION: &str = "--kube-version=1.35.0";

/// `HELM`, or what `make chart` has installed.
fn helm() -> PathBuf {
    let own = || {
        let cache = env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty());
        let home = || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache");
        let cache = cache.map_or_else(home, PathBuf::from);
        cache.join("elasti/tools/bin/helm")
    };
    env::var_os("HELM").map_or_else(own, PathBuf::from)
}

fn template(set: &str, args: &[&str]) -> Result<Output> {
    let values = format!("--values={CHART}/ci/{set}.yaml");
    let mut helm = Command::new(helm());
    helm.args(["template", "elasti", CHART, "--namespace=elasti"]);
    helm.args([VERSION, &values]).args(args);
    helm.output().context("running helm: make chart")
}

fn rendered(set: &str, args: &[&str]) -> Result<Vec<Value>> {
    let text = succeeded(&template(set, args)?)?;
    Ok(serde_saphyr::from_multiple(&text)?)
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let objects = objects.iter();
    objects.filter(|object| object["kind"] == kind).collect()
}

/// Such as `Deployment/elasti-resolver`.
fn named<'a>(objects: &'a [Value], wanted: &str) -> Result<&'a Value> {
    let found = objects.iter().find(|object| name(object) == wanted);
    found.with_context(|| format!("there is no {wanted}"))
}

fn matches(selector: &Value, labels: &Value) -> bool {
    let mut wanted = selector["matchLabels"].as_object().into_iter().flatten();
    wanted.all(|(key, value)| labels[key] == *value)
}

/// The environment of a Deployment or a Job.
fn environment(object: &Value) -> Result<&Vec<Value>> {
    let environment = &object["spec"]["template"]["spec"]["containers"][0]["env"];
    let variables = environment.as_array();
    variables.with_context(|| format!("{} has no environment", name(object)))
}

fn succeeded(output: &Output) -> Result<String> {
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{error}");
    Ok(String::from_utf8_lossy(&output.stdout).into())
}

fn name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{}/{}",
        text(&object["kind"]),
        text(&object["metadata"]["name"])
    )
}
