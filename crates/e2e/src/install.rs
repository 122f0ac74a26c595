//! Elasti itself, from its own manifests.

use crate::built;
use anyhow::{Context, Result, ensure};
use elasti_cluster::Cluster;
use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// `config/base`, with images of what was built.
pub fn install(cluster: &Cluster) -> Result<()> {
    install_overlay(
        cluster,
        "installation",
        "resources:\n  - ../../config/base\n",
    )
}

/// The same with a kustomization that comes into this folder of `target`.
pub fn install_overlay(cluster: &Cluster, folder: &str, kustomization: &str) -> Result<()> {
    let mut images = String::new();
    for part in ["operator", "resolver"] {
        let (name, tag) = image(cluster, part)?;
        images +=
            &format!("  - name: elasti.local/{part}\n    newName: {name}\n    newTag: \"{tag}\"\n");
    }
    let overlay = Path::new(WORKSPACE).join("target").join(folder);
    fs::create_dir_all(&overlay)?;
    let text = format!("{kustomization}images:\n{images}");
    fs::write(overlay.join("kustomization.yaml"), text)?;
    let overlay = overlay.display().to_string();
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "-k",
        &overlay,
    ];
    kubectl(cluster, &apply, "")?;
    for name in ["elasti-operator-controller-manager", "elasti-resolver"] {
        rolled_out(cluster, "elasti", name)?;
    }
    Ok(())
}

/// Name and tag of an image: made of a binary and loaded, under a tag that names its content, so that
/// what has not changed is not started anew; or where the user of another cluster has put it.
pub fn image(cluster: &Cluster, part: &str) -> Result<(String, String)> {
    if !cluster.is_local() {
        let folder = env::var("ELASTI_DEMO_IMAGES").context(
            "set ELASTI_DEMO_IMAGES to where the cluster of KUBECONFIG finds the images of `make images`, such as registry.example.com/elasti",
        )?;
        return Ok((format!("{folder}/{part}"), "latest".into()));
    }
    let binary = built(&format!("elasti-{part}"))?;
    let mut hasher = DefaultHasher::new();
    fs::read(&binary)?.hash(&mut hasher);
    let (name, tag) = (
        format!("elasti.local/{part}"),
        format!("{:016x}", hasher.finish()),
    );
    cluster.load_image(&binary, Some(&format!("{name}:{tag}")))?;
    Ok((name, tag))
}

pub fn apply(cluster: &Cluster, manifests: &str) -> Result<()> {
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--filename=-",
    ];
    kubectl(cluster, &apply, manifests)
}

pub fn rolled_out(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let deployment = format!("deployment/{name}");
    let wait = [
        "-n",
        namespace,
        "rollout",
        "status",
        &deployment,
        "--timeout=120s",
    ];
    kubectl(cluster, &wait, "").with_context(|| pods(cluster, namespace))
}

/// What a person would look at next.
fn pods(cluster: &Cluster, namespace: &str) -> String {
    let get = ["-n", namespace, "get", "pods"];
    let told = cluster
        .command("kubectl")
        .and_then(|mut kubectl| Ok(kubectl.args(get).output()?));
    let table = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    format!("pods of {namespace}:\n{}", table.unwrap_or_default())
}

fn kubectl(cluster: &Cluster, args: &[&str], input: &str) -> Result<()> {
    let mut command: Command = cluster.command("kubectl")?;
    let mut child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("running kubectl")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "kubectl {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
