//! Programs that the node needs from the system.

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Uid;
use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const PROGRAMS: [(&str, &str); 8] = [
    ("etcd", "etcd-server"),
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
];
const CNI_PACKAGE: &str = "containernetworking-plugins";
const CNI_PLACES: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// One line for a machine that cannot hold a cluster, with the way out.
pub(crate) fn check_machine() -> Result<()> {
    ensure!(
        Uid::effective().is_root(),
        "a local cluster needs root: run as root, or set KUBECONFIG to use an existing cluster"
    );
    let namespaces = Command::new("unshare")
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "true",
        ])
        .stderr(Stdio::null())
        .status();
    ensure!(
        namespaces.is_ok_and(|status| status.success()),
        "this machine lets nobody make network, mount and process namespaces: set KUBECONFIG to use an existing cluster"
    );
    Ok(())
}

/// Installs what is missing.
pub(crate) fn ensure_installed() -> Result<()> {
    let mut missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if cni_plugins().is_err() {
        missing.push(CNI_PACKAGE);
    }
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if find("apt-get").is_none() {
        bail!(
            "missing programs: install the equivalents of the Debian packages {list}, or set KUBECONFIG to use an existing cluster"
        );
    }
    eprintln!("Installing {list}");
    apt(&["update", "-qq"])?;
    let mut install = vec!["install", "-y", "-qq", "--no-install-recommends"];
    install.extend(&missing);
    apt(&install).with_context(|| format!("installing {list}"))
}

/// Where the CNI plugins are; distributions differ.
pub(crate) fn cni_plugins() -> Result<PathBuf> {
    CNI_PLACES
        .iter()
        .map(Path::new)
        .find(|place| place.join("bridge").exists())
        .map(Path::to_owned)
        .with_context(|| format!("no CNI plugins in {}", CNI_PLACES.join(", ")))
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

fn apt(args: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()?;
    ensure!(
        output.status.success(),
        "apt-get {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
