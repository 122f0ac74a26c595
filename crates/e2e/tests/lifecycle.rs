//! Clusters come and go without a trace, however they go.

use anyhow::{Context, Result, ensure};
use elasti_cluster::Cluster;
use std::{
    collections::BTreeSet,
    env, fs,
    panic::{self, AssertUnwindSafe},
    path::Path,
    process::{Command, Stdio},
};

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn down_leaves_nothing_behind() -> Result<()> {
    on_this_machine("traceless", |name| {
        let before = Traces::now();
        let cluster = Cluster::up(name)?;
        ensure!(
            cluster.processes().len() >= 9,
            "{:?} is no node",
            cluster.processes()
        );
        ensure!(
            !Traces::now().cgroups.is_subset(&before.cgroups),
            "the node has no cgroup to look for"
        );
        Cluster::down(name)?;
        before.assert_nothing_new(name)
    })
}

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn up_works_after_everything_was_killed() -> Result<()> {
    on_this_machine("killed", |name| {
        let before = Traces::now();
        let cluster = Cluster::up(name)?;
        let ids = cluster
            .processes()
            .into_iter()
            .map(|(id, _)| id.to_string());
        let killed = Command::new("kill")
            .arg("-9")
            .args(ids)
            .stderr(Stdio::null())
            .status();
        killed.context("running kill")?;
        let again = Cluster::up(name)?;
        again.run(async || {
            let version = again.client().await?.apiserver_version().await?;
            ensure!(version.major == "1", "{version:?}");
            Ok(())
        })?;
        Cluster::down(name)?;
        before.assert_nothing_new(name)
    })
}

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn down_cleans_up_after_a_killed_up() -> Result<()> {
    on_this_machine("halfway", |name| {
        let before = Traces::now();
        let mut up = Command::new(elasti_e2e::built("elasti-cluster")?)
            .args(["--name", name, "up"])
            .spawn()?;
        while Cluster::running(name)?.is_none() {
            ensure!(
                up.try_wait()?.is_none(),
                "up ended before it could be killed"
            );
        }
        up.kill()?;
        up.wait()?;
        Cluster::down(name)?;
        before.assert_nothing_new(name)
    })
}

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn clusters_live_side_by_side() -> Result<()> {
    on_this_machine("beside", |name| {
        let here = elasti_e2e::cluster()?;
        let beside = Cluster::up(name)?;
        for cluster in [here, &beside] {
            cluster.run(async || {
                let client = cluster.client().await?;
                client
                    .apiserver_version()
                    .await
                    .context("answers while the other runs")?;
                Ok(())
            })?;
        }
        Cluster::down(name)?;
        here.run(async || {
            let client = here.client().await?;
            client
                .apiserver_version()
                .await
                .context("answers after the other ended")?;
            Ok(())
        })
    })
}

/// Settings and folders of the host that components like to change.
const SETTINGS: [&str; 4] = [
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
];
const FOLDERS: [&str; 7] = [
    "/etc/cni/net.d",
    "/opt/cni",
    "/opt/containerd",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/pods",
];

/// What a cluster could leave on its host.
struct Traces {
    kernel: BTreeSet<String>,
    folders: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    processes: BTreeSet<String>,
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    links: BTreeSet<String>,
    rules: BTreeSet<String>,
}

// === impl Traces ===

impl Traces {
    fn now() -> Self {
        Self {
            kernel: SETTINGS
                .iter()
                .filter_map(|path| {
                    fs::read_to_string(path)
                        .ok()
                        .map(|value| format!("{path} {value}"))
                })
                .collect(),
            folders: FOLDERS
                .iter()
                .filter(|path| Path::new(path).exists())
                .map(ToString::to_string)
                .collect(),
            namespaces: lines(&output("ip", &["netns", "list"])),
            processes: processes(),
            mounts: lines(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()),
            cgroups: cgroups(Path::new("/sys/fs/cgroup"), 2),
            links: lines(&output("ip", &["-brief", "link"])),
            rules: lines(&output("nft", &["list", "ruleset"])),
        }
    }

    /// Tests run side by side, so only what carries the cluster's name or is of no cluster counts.
    fn assert_nothing_new(&self, name: &str) -> Result<()> {
        let now = Self::now();
        for (kind, before, after) in [
            ("processes", &self.processes, &now.processes),
            ("mounts", &self.mounts, &now.mounts),
            ("cgroups", &self.cgroups, &now.cgroups),
        ] {
            let left: Vec<_> = after
                .difference(before)
                .filter(|trace| trace.contains(name))
                .collect();
            ensure!(left.is_empty(), "{kind} left behind: {left:?}");
        }
        ensure!(
            now.kernel == self.kernel,
            "kernel settings changed: {:?}",
            now.kernel
        );
        ensure!(
            now.folders.is_subset(&self.folders),
            "folders left behind: {:?}",
            now.folders
        );
        ensure!(
            now.namespaces == self.namespaces,
            "namespaces left behind: {:?}",
            now.namespaces
        );
        ensure!(
            now.links == self.links,
            "interfaces changed: {:?}",
            now.links
        );
        ensure!(
            now.rules == self.rules,
            "packet rules changed: {:?}",
            now.rules
        );
        let folder = Cluster::folder(name)?;
        ensure!(!folder.exists(), "{} is left", folder.display());
        Ok(())
    }
}

/// Command lines carry the cluster's folder, and those of pods their cgroup's name. The dead, who only
/// wait to be reaped by somebody else, do not count.
fn processes() -> BTreeSet<String> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let cgroup = fs::read_to_string(entry.path().join("cgroup")).ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            (!stat.contains(") Z ")).then_some(())?;
            (id != std::process::id())
                .then(|| format!("{id} {} {cgroup}", String::from_utf8_lossy(&line)))
        })
        .collect()
}

fn cgroups(at: &Path, depth: u8) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        if depth > 0 && entry.path().is_dir() {
            found.insert(entry.path().display().to_string());
            found.append(&mut cgroups(&entry.path(), depth - 1));
        }
    }
    found
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

fn output(program: &str, args: &[&str]) -> String {
    Command::new(program)
        .args(args)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

/// Runs a test with a cluster name of its own, which is gone afterwards in any case.
fn on_this_machine(purpose: &str, work: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    if env::var("KUBECONFIG").is_ok_and(|config| !config.is_empty()) {
        println!("KUBECONFIG names the cluster, so no local one is tried");
        return Ok(());
    }
    // The same name each time: a run that was killed is cleaned up by the next.
    let name = format!("lifecycle-{purpose}");
    Cluster::down(&name)?;
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| work(&name)));
    Cluster::down(&name)?;
    outcome.unwrap_or_else(|panic| panic::resume_unwind(panic))
}
