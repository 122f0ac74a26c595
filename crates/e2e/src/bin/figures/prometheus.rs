//! A Prometheus that scrapes nothing and answers what it is asked.

use anyhow::Result;
use elasti_cluster::Cluster;
use elasti_e2e::Running;
use serde_json::{Value, json};
use std::{env, fs, process};

const PORT: u16 = 18_091;

/// Says idle.
pub(crate) fn trigger() -> Value {
    json!([{"type": "prometheus", "metadata": {
        "serverAddress": format!("http://127.0.0.1:{PORT}"),
        "query": "vector(0)",
        "threshold": 1,
        "healthCheck": false,
    }}])
}

pub(crate) fn start(cluster: &Cluster) -> Result<Running> {
    let folder = env::temp_dir().join(format!("elasti-figures-{}", process::id()));
    fs::create_dir_all(&folder)?;
    let config = folder.join("prometheus.yml");
    fs::write(&config, "global: {}\n")?;
    let mut command = cluster.command("prometheus")?;
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{PORT}"))
        .arg("--log.level=error");
    Running::start(&mut command)
}
