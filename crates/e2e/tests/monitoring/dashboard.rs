//! What the dashboard shows, and what it asks for that.

use crate::parsed;
use anyhow::{Context, Result};
use serde_json::Value;

pub const FILE: &str = "config/monitoring/dashboard.json";

pub struct Dashboard(Value);

// === impl Dashboard ===

impl Dashboard {
    pub fn read() -> Result<Self> {
        Ok(Self(parsed(FILE)?))
    }

    /// But for rows, which are titles.
    pub fn panels(&self) -> impl Iterator<Item = &Value> {
        let all = self.0["panels"].as_array().into_iter().flatten();
        all.filter(|panel| panel["type"] != "row")
    }

    /// What Grafana asks, with all namespaces chosen.
    pub fn queries(&self) -> Result<Vec<String>> {
        let mut queries = vec![self.namespaces()?];
        for panel in self.panels() {
            let targets = panel["targets"].as_array().into_iter().flatten();
            for target in targets {
                let query = target["expr"].as_str();
                let query = query.with_context(|| format!("{target} asks nothing"))?;
                queries.push(filled_in(query));
            }
        }
        Ok(queries)
    }

    fn namespaces(&self) -> Result<String> {
        let variables = self.0["templating"]["list"].as_array();
        let mut variables = variables.into_iter().flatten();
        let found = variables.find(|variable| variable["name"] == "namespace");
        let query = found.and_then(|found| found["definition"].as_str());
        let query = query.context("the namespace is a variable")?;
        let inner = query.strip_prefix("label_values(");
        let inner = inner.and_then(|inner| inner.strip_suffix(')'));
        let (metric, label) = inner
            .and_then(|inner| inner.split_once(", "))
            .with_context(|| format!("{query} asks for the values of a label"))?;
        Ok(format!("group by ({label}) ({metric})"))
    }
}

fn filled_in(query: &str) -> String {
    [
        ("$namespace", ".*"),
        ("$__rate_interval", "1m"),
        ("$__range", "1h"),
    ]
    .iter()
    .fold(query.into(), |query: String, (variable, value)| {
        query.replace(variable, value)
    })
}
