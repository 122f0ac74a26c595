//! What tests on a real cluster share: the cluster, a namespace for each test, and the application
//! that they deploy.

mod app;
mod fetch;
mod namespace;
mod running;

pub use self::{
    app::app,
    fetch::fetch,
    namespace::Namespace,
    running::{Running, built},
};

use anyhow::{Context, Result, anyhow, ensure};
use elasti_cluster::Cluster;
use futures::FutureExt;
use kube::Client;
use std::{
    env,
    io::Write,
    panic::AssertUnwindSafe,
    path::Path,
    process::{Output, Stdio},
    sync::OnceLock,
    thread,
};

const ECHO_IMAGE: &str = "elasti.local/echo:test";

/// Where a test runs: a namespace of its own on the cluster.
pub struct Place {
    pub cluster: &'static Cluster,
    pub client: Client,
    pub namespace: Namespace,
}

/// The cluster that `KUBECONFIG` names, or else the local one, started if need be.
pub fn cluster() -> Result<&'static Cluster> {
    static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();
    let found = CLUSTER.get_or_init(|| match env::var("KUBECONFIG") {
        Ok(config) if !config.is_empty() => Ok(Cluster::existing(None)),
        _ => Cluster::up(&local_name()).map_err(|error| format!("{error:#}")),
    });
    found
        .as_ref()
        .map_err(|error| anyhow::Error::msg(error.clone()))
}

fn local_name() -> String {
    env::var("ELASTI_CLUSTER").unwrap_or_else(|_| "elasti".into())
}

/// Runs one test in a namespace named after it. When it fails, what is in there is printed.
pub fn test(work: impl AsyncFnOnce(&Place) -> Result<()> + Send) -> Result<()> {
    let name = thread::current().name().unwrap_or("test").to_owned();
    let cluster = cluster()?;
    cluster.run(async || {
        let client = cluster.client().await?;
        let place = Place {
            cluster,
            namespace: Namespace::create(&client, &name).await?,
            client,
        };
        // A failed assertion must not skip what follows.
        let outcome = AssertUnwindSafe(work(&place)).catch_unwind().await;
        let outcome = outcome.unwrap_or_else(|_| Err(anyhow!("an assertion failed")));
        if outcome.is_err() {
            place.dump();
        }
        place.namespace.delete(&place.client).await?;
        outcome
    })
}

// === impl Place ===

impl Place {
    /// The cluster's own kubectl, as a user would call it.
    pub fn kubectl(&self, args: &[&str]) -> Result<Output> {
        Ok(self
            .cluster
            .command("kubectl")?
            .args(["--namespace", self.namespace.name()])
            .args(args)
            .output()?)
    }

    /// What kubectl prints, or what it complains about.
    pub fn kubectl_text(&self, args: &[&str]) -> Result<String> {
        let output = self.kubectl(args)?;
        ensure!(
            output.status.success(),
            "kubectl {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The image of the application that tests deploy: made of the binary and loaded, or, on a
    /// cluster that is not ours, the one that its user has put there.
    pub fn echo_image(&self, binary: &Path) -> Result<String> {
        if self.cluster.is_local() {
            self.cluster.load_image(binary, Some(ECHO_IMAGE))?;
            return Ok(ECHO_IMAGE.into());
        }
        env::var("ELASTI_ECHO_IMAGE").context(
            "set ELASTI_ECHO_IMAGE to the name under which the cluster of KUBECONFIG knows the image of `make images`",
        )
    }

    /// `kubectl apply` of manifests into this namespace, on the server's side: tests that run side by
    /// side may apply the same.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        let mut kubectl = self
            .cluster
            .command("kubectl")?
            .args([
                "--namespace",
                self.namespace.name(),
                "apply",
                "--server-side",
                "--force-conflicts",
                "--filename=-",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        kubectl
            .stdin
            .take()
            .context("kubectl takes input")?
            .write_all(manifests.as_bytes())?;
        let status = kubectl.wait()?;
        ensure!(status.success(), "kubectl apply: {status}");
        Ok(())
    }

    fn dump(&self) {
        for args in [
            ["get", "all,endpointslices", "--output=wide"].as_slice(),
            &["get", "events", "--sort-by=.lastTimestamp"],
        ] {
            match self.kubectl_text(args) {
                Ok(text) => eprintln!(
                    "--- kubectl {} ({})\n{text}",
                    args.join(" "),
                    self.namespace.name()
                ),
                Err(error) => eprintln!("--- {error}"),
            }
        }
    }
}
