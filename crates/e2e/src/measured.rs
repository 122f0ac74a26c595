use crate::report::Report;
use anyhow::{Context, Result, bail};
use elasti_cluster::Cluster;
use std::{env, fs, path::Path};

/// Measures on a local cluster of that name, or on the one of KUBECONFIG; prints what there is, whatever
/// became of the rest.
pub fn measured(
    name: &str,
    keep: bool,
    json: Option<&Path>,
    work: impl AsyncFnOnce(&Cluster, &mut Report) -> Result<()> + Send,
) -> Result<()> {
    let cluster = match env::var("KUBECONFIG") {
        Ok(config) if !config.is_empty() => Cluster::existing(None),
        _ => Cluster::up_as_elsewhere(name)?,
    };
    let mut report = Report::default();
    let outcome = cluster.run(async || {
        tokio::select! {
            outcome = work(&cluster, &mut report) => outcome,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    });
    print!("{report}");
    if let Some(path) = json {
        fs::write(path, serde_json::to_vec(&report)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if cluster.is_local() && !keep {
        Cluster::down(name)?;
    }
    outcome
}
