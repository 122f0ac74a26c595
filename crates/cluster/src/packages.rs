//! Programs that the node needs from the system.

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Uid;
use std::{
    env,
    ffi::OsString,
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

/// Where Debian keeps what only root uses; not on everybody's PATH.
const ROOT_PLACES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// One line for a machine that cannot hold a cluster, with the way out.
pub(crate) fn check_machine() -> Result<()> {
    if !Uid::effective().is_root() {
        let packages = match missing().join(" ") {
            none if none.is_empty() => none,
            list => format!(" and the packages {list}"),
        };
        bail!(
            "a local cluster needs root{packages}: run as root, or set KUBECONFIG to use an existing cluster"
        );
    }
    let Some(unshare) = find("unshare") else {
        return Ok(());
    };
    let namespaces = Command::new(unshare)
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "--",
            "/proc/self/exe",
            "--version",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ensure!(
        namespaces.is_ok_and(|status| status.success()),
        "this machine lets nobody make network, mount and process namespaces: set KUBECONFIG to use an existing cluster"
    );
    Ok(())
}

/// The PATH of the node's processes.
pub(crate) fn path() -> OsString {
    let given = env::var_os("PATH").unwrap_or_default();
    let places = ROOT_PLACES
        .iter()
        .chain(&["/usr/bin", "/bin"])
        .map(PathBuf::from);
    env::join_paths(env::split_paths(&given).chain(places)).unwrap_or(given)
}

/// Packages whose programs are not there.
fn missing() -> Vec<&'static str> {
    let mut missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if cni_plugins().is_err() {
        missing.push(CNI_PACKAGE);
    }
    missing.dedup();
    missing
}

/// Installs what is missing.
pub(crate) fn ensure_installed() -> Result<()> {
    let missing = missing();
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

/// pip, for what Debian has only in versions that are too old.
pub(crate) fn ensure_pip() -> Result<()> {
    let there = Command::new("python3")
        .args(["-m", "pip", "--version"])
        .output();
    if there.is_ok_and(|output| output.status.success()) || find("apt-get").is_none() {
        return Ok(());
    }
    apt(&["update", "-qq"])?;
    apt(&[
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        "python3-pip",
    ])
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
    env::split_paths(&path())
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

fn apt(args: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        // Machines install updates by themselves, too.
        .arg("-oDPkg::Lock::Timeout=600")
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
