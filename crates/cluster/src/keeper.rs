//! The process that holds a cluster's namespaces. It dies with its child, the node, and the child
//! with it; and when the node, process 1 of its namespace, dies, the kernel ends every process in
//! there and drops mounts, interfaces and rules. So nothing can be left behind, however it ends.

use crate::{Controllers, layout::Layout, packages, patience::patiently};
use anyhow::{Context, Result, ensure};
use nix::{
    errno::Errno,
    sched::{CloneFlags, setns},
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use std::{
    env, fs,
    fs::File,
    io, iter,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    pid: Pid,
    /// Of the processes inside, as the link in `/proc/<pid>/ns/pid` spells it.
    namespace: PathBuf,
}

// === impl Keeper ===

impl Keeper {
    /// Forks the namespaces off this process and starts the node in them.
    pub(crate) fn start(layout: &Layout, bin: &Path, controllers: Controllers) -> Result<Self> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(layout.log("node"))?;
        let mut child = Command::new("unshare")
            .env("PATH", packages::path())
            .args([
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child=SIGKILL",
            ])
            .args(["--mount-proc", "--propagation", "private"])
            .arg(program()?)
            .args(node_args(layout))
            .arg(bin)
            .args((controllers == Controllers::Eager).then_some("--eager-controllers"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("starting unshare")?;
        loop {
            if let Some(keeper) = Self::find(layout) {
                return Ok(keeper);
            }
            ensure!(
                child.try_wait()?.is_none(),
                "the node ended at once: {}",
                fs::read_to_string(layout.log("node"))?
            );
            std::thread::yield_now();
        }
    }

    /// The living keeper of a cluster. Its command line is the record of it, so none can be lost.
    pub(crate) fn find(layout: &Layout) -> Option<Self> {
        let ours = fs::read_link("/proc/self/ns/pid").ok()?;
        let args = node_args(layout).join("\0");
        processes().find_map(|pid| {
            let line = fs::read(proc(pid, "cmdline")).ok()?;
            String::from_utf8_lossy(&line)
                .contains(&args)
                .then_some(())?;
            // Between the call to unshare and the fork the link leads nowhere.
            let namespace = fs::read_link(proc(pid, "ns/pid_for_children")).ok()?;
            (namespace != ours).then_some(Self { pid, namespace })
        })
    }

    pub(crate) fn is_alive(&self) -> bool {
        fs::read_link(proc(self.pid, "ns/pid_for_children"))
            .is_ok_and(|link| link == self.namespace)
    }

    /// Moves the calling thread into the cluster's network.
    pub(crate) fn enter_network(&self) -> Result<()> {
        let namespace =
            File::open(proc(self.pid, "ns/net")).context("the cluster is not running")?;
        Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
    }

    /// A command that runs with the cluster's network and files.
    pub(crate) fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .env("PATH", packages::path())
            .args(["--target", &self.pid.to_string(), "--net", "--mount", "--"])
            .arg(program);
        command
    }

    /// Ends everything inside, and waits until it is gone.
    pub(crate) fn end(&self) -> Result<()> {
        match kill(self.pid, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).context("ending the cluster"),
        }
        patiently(|| match self.inside_processes().next() {
            None if self.reaped() => Ok(()),
            _ => Err(io::Error::other("its processes do not end")),
        })
        .context("ending the cluster")
    }

    /// A keeper started by this very process stays a zombie until it is waited for.
    fn reaped(&self) -> bool {
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => false,
            Ok(_) => true,
            Err(_) => !self.is_alive(),
        }
    }

    /// The keeper and the processes of the node, not those of pods: id and name.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        iter::once(self.pid)
            .chain(self.inside_processes())
            .filter_map(|pid| {
                let name = fs::read_to_string(proc(pid, "comm")).ok()?;
                Some((pid.as_raw(), name.trim().to_owned()))
            })
            .collect()
    }

    fn inside_processes(&self) -> impl Iterator<Item = Pid> {
        processes().filter(|pid| {
            fs::read_link(proc(*pid, "ns/pid")).is_ok_and(|link| link == self.namespace)
                && !is_zombie(*pid)
        })
    }
}

/// Where nobody reaps, the dead stay listed for ever.
fn is_zombie(pid: Pid) -> bool {
    fs::read_to_string(proc(pid, "stat")).is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('Z'))
    })
}

/// What tells one cluster's node from every other process.
fn node_args(layout: &Layout) -> [String; 4] {
    let root = layout.root().display().to_string();
    ["node".into(), "--root".into(), root, "--bin".into()]
}

fn processes() -> impl Iterator<Item = Pid> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
}

fn proc(pid: Pid, entry: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{entry}"))
}

/// The `elasti-cluster` binary, also when a test is what runs.
fn program() -> Result<PathBuf> {
    let this = env::current_exe()?;
    if this
        .file_name()
        .is_some_and(|name| name == "elasti-cluster")
    {
        return Ok(this);
    }
    this.ancestors()
        .map(|dir| dir.join("elasti-cluster"))
        .find(|path| path.is_file())
        .context(
            "elasti-cluster is not built beside this program: run `cargo build -p elasti-cluster`",
        )
}
