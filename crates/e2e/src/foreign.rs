//! Controllers of others, built from their Go modules once and kept in the user's cache beside Kubernetes.

use crate::Place;
use anyhow::{Context, Result, ensure};
use elasti_cluster::Cluster;
use serde::Deserialize;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write, stderr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub const KEDA: Controller = Controller {
    name: "keda",
    module: "github.com/kedacore/keda/v2",
    version: "v2.21.0",
    package: "./cmd/operator",
    kinds: "config/crd",
    takes: "10 minutes",
};

pub const ROLLOUTS: Controller = Controller {
    name: "argo-rollouts",
    module: "github.com/argoproj/argo-rollouts",
    version: "v1.9.2",
    package: "./cmd/rollouts-controller",
    kinds: "manifests/crds",
    takes: "4 minutes",
};

pub struct Controller {
    name: &'static str,
    module: &'static str,
    version: &'static str,
    package: &'static str,
    /// The folder of its definitions, a kustomization.
    kinds: &'static str,
    /// On 2 cores.
    takes: &'static str,
}

/// The folder with what was built, and with the kinds that belong to it.
pub struct Built(PathBuf);

/// What `go mod download` tells of a module.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    dir: PathBuf,
}

const PROGRAM: &str = "controller";
const KINDS: &str = "kinds";
/// Packages from one line of progress to the next.
const STRIDE: usize = 500;

// === impl Controller ===

impl Controller {
    /// Before any clock of a test runs: the first time takes minutes.
    pub fn built(&self) -> Result<Built> {
        let cache = cache()?;
        let name = format!("{}-{}", self.name, self.version);
        let built = cache.join(&name);
        let lock = File::create(cache.join(format!("{}.lock", self.name)))?;
        lock.lock().context("waiting for another build")?;
        if !built.exists() {
            self.build(&go(&cache), &cache.join(format!("{name}.partial")), &built)
                .with_context(|| format!("building {name}"))?;
        }
        Ok(Built(built))
    }

    fn build(&self, go: &Path, partial: &Path, built: &Path) -> Result<()> {
        say(&format!(
            "Building {} {}, once for this user: about {} on 2 cores",
            self.name, self.version, self.takes
        ));
        let dir = download(go, self.module, self.version)?;
        // Only as the main module do its own replacements count.
        let sources = partial.join("sources");
        let _ = fs::remove_dir_all(partial);
        fs::create_dir_all(partial)?;
        output(Command::new("cp").args([
            "--recursive".as_ref(),
            "--no-preserve=mode".as_ref(),
            dir.as_os_str(),
            sources.as_os_str(),
        ]))?;
        let listed = output(within(go, &sources).args(["list", "-deps", self.package]))?;
        let mut build = within(go, &sources);
        build
            .args(["build", "-v", "-trimpath", "-ldflags=-s -w", "-o"])
            .args([&partial.join(PROGRAM), Path::new(self.package)]);
        self.compile(build, listed.lines().count())?;
        fs::rename(sources.join(self.kinds), partial.join(KINDS))?;
        fs::remove_dir_all(sources)?;
        Ok(fs::rename(partial, built)?)
    }

    /// Go tells each package that it compiles, and what is wrong with the last of them.
    fn compile(&self, mut build: Command, total: usize) -> Result<()> {
        let mut child = build.stderr(Stdio::piped()).spawn()?;
        let mut lines = Vec::new();
        for line in BufReader::new(child.stderr.take().context("it is piped")?).lines() {
            lines.push(line?);
            if lines.len() % STRIDE == 0 {
                say(&format!(
                    "  {}: {} of at most {total} packages compiled",
                    self.name,
                    lines.len()
                ));
            }
        }
        let status = child.wait()?;
        let last = &lines[lines.len().saturating_sub(20)..];
        ensure!(status.success(), "{build:?}: {status}\n{}", last.join("\n"));
        Ok(())
    }
}

/// Where the sources of a Go module are, downloaded if need be.
pub fn sources(module: &str, version: &str) -> Result<PathBuf> {
    download(&go(&cache()?), module, version)
}

fn download(go: &Path, module: &str, version: &str) -> Result<PathBuf> {
    let module = format!("{module}@{version}");
    let downloaded = output(Command::new(go).args(["mod", "download", "-json", &module]))?;
    let Downloaded { dir } = serde_json::from_str(&downloaded)?;
    Ok(dir)
}

fn cache() -> Result<PathBuf> {
    let clusters = Cluster::folder("any")?;
    let cache = clusters.ancestors().nth(2).context("there is a cache")?;
    Ok(cache.to_owned())
}

/// The one that the cluster got for itself, or the one on the PATH.
fn go(cache: &Path) -> PathBuf {
    let own = cache.join("go/go/bin/go");
    if own.exists() { own } else { "go".into() }
}

fn within(go: &Path, sources: &Path) -> Command {
    let mut command = Command::new(go);
    command
        .current_dir(sources)
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "auto");
    command
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Past the test harness, which would keep it to itself.
fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

// === impl Built ===

impl Built {
    /// Makes its kinds known, and gives a command in the cluster's network, for flags to be added.
    pub fn install(&self, place: &Place) -> Result<Command> {
        let kinds = self.0.join(KINDS).display().to_string();
        place.kubectl_text(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--kustomize",
            &kinds,
        ])?;
        place.kubectl_text(&[
            "wait",
            "--for=condition=established",
            "--timeout=60s",
            "--all",
            "customresourcedefinitions",
        ])?;
        let log = File::create(place.folder().join("controller.log"))?;
        let program = self.0.join(PROGRAM).display().to_string();
        let mut command = place.cluster.command(&program)?;
        command.stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }
}
