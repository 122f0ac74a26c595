//! Alerts, dashboard and overlays: as files, as the chart brings them, and on a cluster with a real Prometheus.

mod dashboard;
mod files;
mod live;
mod namespaced;
mod prometheus;

use anyhow::{Context, Result, ensure};
use elasti_e2e::{Place, fetch, stage::PATIENCE};
use serde_json::Value;
use std::{fs, net::SocketAddr, path::PathBuf, process::Command};
use tokio::time::timeout;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn path(name: &str) -> PathBuf {
    [WORKSPACE, name].iter().collect()
}

fn read(name: &str) -> Result<String> {
    fs::read_to_string(path(name)).with_context(|| format!("reading {name}"))
}

fn parsed(name: &str) -> Result<Value> {
    serde_saphyr::from_str(&read(name)?).with_context(|| format!("reading {name}"))
}

/// The alerts of a file of rules.
fn alerts(rules: &Value) -> Vec<&Value> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    let rules = groups.filter_map(|group| group["rules"].as_array());
    rules.flatten().collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let objects = objects.iter();
    objects.filter(|object| object["kind"] == kind).collect()
}

/// What an overlay makes, by the kubectl of the cluster.
fn rendered(place: &Place, overlay: &str) -> Result<Vec<Value>> {
    let overlay = path(overlay).display().to_string();
    let text = place.kubectl_text(&["kustomize", &overlay])?;
    Ok(serde_saphyr::from_multiple(&text)?)
}

/// As a user would, but without effect.
fn can_be_applied(place: &Place, overlay: &str) -> Result<()> {
    let mut kubectl = place.cluster.command("kubectl")?;
    kubectl.args(["apply", "--dry-run=server", "--kustomize"]);
    output(kubectl.arg(path(overlay))).map(drop)
}

async fn ask(address: SocketAddr) -> Result<()> {
    let answer = timeout(PATIENCE, fetch(&format!("http://{address}/hello"))).await;
    let answer = answer.context("no answer")??;
    ensure!(answer == "GET /hello\n", "{answer}");
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}: make monitoring"))?;
    let (out, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(output.status.success(), "{command:?}: {out}{error}");
    Ok(out.into())
}
