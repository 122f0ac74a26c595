//! Elasti itself, from its own manifests.

use crate::built;
use anyhow::{Context, Result, ensure};
use elasti_cluster::Cluster;
use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const INSTALLATION: &str = "installation";

/// By what the demo knows what it has installed itself.
const MARK: &str = "elasti.truefoundry.com/installed-by";
/// What an installation of ours, or of KubeElasti, consists of first.
const FOREIGN: [&str; 2] = [
    "customresourcedefinition/elastiservices.elasti.truefoundry.com",
    "namespace/elasti",
];

/// A cluster of somebody else may have an installation that is in use: it is neither taken over nor, later, removed.
pub fn ensure_free(cluster: &Cluster) -> Result<()> {
    if cluster.is_local() {
        return Ok(());
    }
    FOREIGN
        .iter()
        .try_for_each(|object| ensure_ours(cluster, object))
}

/// `config/base`, with images of what was built.
pub fn install(cluster: &Cluster) -> Result<()> {
    let labels = format!("labels:\n  - pairs: {{{MARK}: demo}}\n");
    install_overlay(
        cluster,
        INSTALLATION,
        &format!("resources:\n  - ../../config/base\n{labels}"),
    )
}

/// Where that installation is written down, for whoever removes it.
pub fn installation() -> Result<PathBuf> {
    Ok(Path::new(WORKSPACE)
        .join("target")
        .join(INSTALLATION)
        .canonicalize()?)
}

fn ensure_ours(cluster: &Cluster, object: &str) -> Result<()> {
    let label = format!(
        r"jsonpath=.{{.metadata.labels.{}}}",
        MARK.replace('.', r"\.")
    );
    let get = ["get", object, "--ignore-not-found", "-o", &label];
    let output = cluster.command("kubectl")?.args(get).output()?;
    ensure!(
        output.status.success(),
        "kubectl get {object}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let found = String::from_utf8_lossy(&output.stdout);
    ensure!(
        matches!(&*found, "" | ".demo"),
        "the cluster of KUBECONFIG has {object} already, and not from a demo, which would take it over and remove it in the end: try the demo on another cluster, or what is installed by docs/quick-start.md"
    );
    Ok(())
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
        let tag = env::var("ELASTI_DEMO_TAG").unwrap_or_else(|_| "latest".into());
        return Ok((format!("{folder}/{part}"), tag));
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
