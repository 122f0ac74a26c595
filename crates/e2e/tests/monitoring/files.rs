use crate::{
    alerts,
    dashboard::{self, Dashboard},
    of_kind, output, parsed, path, read,
};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{env, process::Command};

const ALERTS: &str = "config/monitoring/alerts.yaml";
const TRIALS: &str = "config/monitoring/alerts-test.yaml";

#[test]
fn every_alert_says_how_bad_it_is_what_it_means_and_what_to_do() -> Result<()> {
    let rules = parsed(ALERTS)?;
    ensure!(!alerts(&rules).is_empty());
    for alert in alerts(&rules) {
        let severity = alert["labels"]["severity"].as_str().unwrap_or_default();
        ensure!(
            ["critical", "warning", "info"].contains(&severity),
            "{alert}"
        );
        for text in ["summary", "description"] {
            let text = alert["annotations"][text].as_str().unwrap_or_default();
            ensure!(!text.is_empty(), "{alert}");
        }
    }
    Ok(())
}

#[test]
fn every_panel_says_what_it_shows_and_in_which_unit() -> Result<()> {
    let dashboard = Dashboard::read()?;
    for panel in dashboard.panels() {
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        for text in [&panel["title"], &panel["description"], unit] {
            ensure!(
                text.as_str().is_some_and(|text| !text.is_empty()),
                "{panel}"
            );
        }
        let sources = panel["targets"].as_array().context("it asks something")?;
        for source in sources.iter().chain([panel]) {
            ensure!(source["datasource"]["uid"] == "${datasource}", "{source}");
        }
    }
    Ok(())
}

#[test]
fn the_prometheus_rule_has_the_rules_of_the_file() -> Result<()> {
    let rule = parsed("config/monitoring/prometheusrule.yaml")?;
    ensure!(rule["spec"] == parsed(ALERTS)?, "it is stale: make rules");
    Ok(())
}

#[test]
#[ignore = "needs promtool: make monitoring"]
fn alerts_fire_when_they_should_and_only_then() -> Result<()> {
    let promtool = |args: &[&str], file| {
        let mut promtool = Command::new("promtool");
        output(promtool.args(args).arg(path(file)))
    };
    promtool(&["check", "rules"], ALERTS)?;
    promtool(&["test", "rules"], TRIALS)?;
    let trials = read(TRIALS)?;
    for alert in alerts(&parsed(ALERTS)?) {
        let name = alert["alert"].as_str().context("it has a name")?;
        let fires = format!("{{alertname=\"{name}\"}}");
        ensure!(trials.contains(&fires), "{name} is never seen to fire");
    }
    Ok(())
}

#[test]
#[ignore = "needs helm: make monitoring"]
fn the_chart_brings_the_same_alerts_and_dashboard() -> Result<()> {
    let without = chart(&["--set=global.enableMonitoring=true"])?;
    let names = ["PrometheusRule", "ConfigMap"];
    ensure!(names.iter().all(|kind| of_kind(&without, kind).is_empty()));
    let monitors = of_kind(&without, "ServiceMonitor");
    ensure!(monitors.len() == 2);
    for monitor in monitors {
        let honours = &monitor["spec"]["endpoints"][0]["honorLabels"];
        ensure!(honours == true, "{monitor}");
    }

    let with = chart(&[
        "--set=monitoring.rules.enabled=true,monitoring.dashboard.enabled=true",
        "--set=monitoring.rules.labels.release=prometheus",
        "--set=monitoring.dashboard.annotations.grafana_folder=Elasti",
        "--set=global.fullnameOverride=swift",
    ])?;
    let [rule] = of_kind(&with, "PrometheusRule")[..] else {
        anyhow::bail!("there is one PrometheusRule");
    };
    let alerts = read(ALERTS)?.replace("elasti-", "swift-");
    let alerts: Value = serde_saphyr::from_str(&alerts)?;
    ensure!(rule["spec"] == alerts, "the alerts came through");
    ensure!(rule["metadata"]["name"] == "swift");
    ensure!(rule["metadata"]["labels"]["release"] == "prometheus");
    let [map] = of_kind(&with, "ConfigMap")[..] else {
        anyhow::bail!("there is one ConfigMap");
    };
    let json = read(dashboard::FILE)?;
    ensure!(map["data"]["elasti.json"] == json, "the dashboard, too");
    ensure!(map["metadata"]["name"] == "swift-dashboard");
    ensure!(map["metadata"]["labels"]["grafana_dashboard"] == "1");
    ensure!(map["metadata"]["annotations"]["grafana_folder"] == "Elasti");
    Ok(())
}

fn chart(values: &[&str]) -> Result<Vec<Value>> {
    let helm = env::var_os("HELM").unwrap_or_else(|| "helm".into());
    let mut helm = Command::new(helm);
    helm.args(["template", "elasti", "--namespace=elasti"]);
    helm.arg("--kube-version=1.35.0").args(values);
    let text = output(helm.arg(path("charts/elasti")))?;
    Ok(serde_saphyr::from_multiple(&text)?)
}
