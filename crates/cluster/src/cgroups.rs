//! Cgroups of a cluster: one below the root of every hierarchy, which the node's processes see as
//! the root itself, so that whatever containerd makes is inside and can be found again.

use crate::patience::patiently;
use anyhow::{Context, Result};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

const ROOT: &str = "/sys/fs/cgroup";

struct Hierarchy {
    /// `cgroup` or `cgroup2`.
    kind: String,
    at: PathBuf,
    /// Controllers or the name of a version 1 hierarchy, as its mount option.
    option: String,
}

/// Moves this process, and so all that it starts, into the cgroup, and makes that its root.
pub(crate) fn enter(name: &str) -> Result<()> {
    let hierarchies = hierarchies(&fs::read_to_string("/proc/self/mountinfo")?);
    for hierarchy in &hierarchies {
        hierarchy
            .enter(name)
            .with_context(|| format!("entering cgroup {name} of {}", hierarchy.at.display()))?;
    }
    unshare(CloneFlags::CLONE_NEWCGROUP)?;
    for hierarchy in &hierarchies {
        hierarchy
            .remount()
            .with_context(|| format!("mounting {} anew", hierarchy.at.display()))?;
    }
    Ok(())
}

/// Removes what [`enter`] and containerd made, once no process is left in it.
pub(crate) fn remove(name: &str) -> Result<()> {
    for hierarchy in hierarchies(&fs::read_to_string("/proc/self/mountinfo")?) {
        let cgroup = hierarchy.at.join(name);
        patiently(|| remove_tree(&cgroup))
            .with_context(|| format!("removing {}", cgroup.display()))?;
    }
    Ok(())
}

/// The kernel's own files in there go with the folder, and a process that was left in it is ended.
fn remove_tree(path: &Path) -> io::Result<()> {
    let Ok(children) = fs::read_dir(path) else {
        return Ok(());
    };
    for child in children.flatten() {
        if child.file_type()?.is_dir() {
            remove_tree(&child.path())?;
        }
    }
    for id in fs::read_to_string(path.join("cgroup.procs"))?.lines() {
        // A process of another namespace shows as 0, which would mean ourselves.
        if let Some(id) = id.parse().ok().filter(|id| *id > 0) {
            let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
    fs::remove_dir(path)
}

/// A line of mountinfo ends in `- <kind> <source> <options>`; its fifth field is where it is mounted.
fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mounted, filesystem) = line.split_once(" - ")?;
            let mut filesystem = filesystem.split(' ');
            let kind = filesystem.next()?;
            let options = filesystem.nth(1)?;
            kind.starts_with("cgroup").then_some(())?;
            Some(Hierarchy {
                kind: kind.into(),
                at: mounted.split(' ').nth(4)?.into(),
                option: options
                    .split(',')
                    .filter(|option| !["rw", "ro", "xattr", "clone_children"].contains(option))
                    .filter(|option| kind == "cgroup" && !option.starts_with("release_agent"))
                    .collect::<Vec<_>>()
                    .join(","),
            })
        })
        .collect()
}

// === impl Hierarchy ===

impl Hierarchy {
    fn enter(&self, name: &str) -> io::Result<()> {
        let cgroup = self.at.join(name);
        fs::create_dir_all(&cgroup)?;
        // A version 1 cpuset starts empty, and takes no process before it has been given these.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if self.kind == "cgroup" && self.at.join(file).exists() {
                fs::write(cgroup.join(file), fs::read(self.at.join(file))?)?;
            }
        }
        fs::write(cgroup.join("cgroup.procs"), "0")
    }

    fn remount(&self) -> Result<()> {
        let kind = Some(self.kind.as_str());
        let option = (!self.option.is_empty()).then_some(self.option.as_str());
        umount2(&self.at, MntFlags::MNT_DETACH)?;
        mount(kind, &self.at, kind, MsFlags::empty(), option)?;
        if self.at == Path::new(ROOT) {
            self.delegate()?;
        }
        Ok(())
    }

    /// In version 2 a cgroup hands its controllers down only when no process is in it directly.
    fn delegate(&self) -> io::Result<()> {
        let node = self.at.join("node");
        fs::create_dir_all(&node)?;
        fs::write(node.join("cgroup.procs"), "0")?;
        let controllers: String = fs::read_to_string(self.at.join("cgroup.controllers"))?
            .split_whitespace()
            .map(|controller| format!("+{controller} "))
            .collect();
        fs::write(
            self.at.join("cgroup.subtree_control"),
            controllers.trim_end(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_with_their_mount_options() {
        let found = hierarchies(
            "25 24 0:21 / /proc rw,relatime - proc proc rw\n\
             31 30 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
             32 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
             33 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        let options: Vec<_> = found
            .iter()
            .map(|h| (h.kind.as_str(), h.option.as_str()))
            .collect();
        assert_eq!(
            options,
            [
                ("cgroup", "memory"),
                ("cgroup", "name=systemd"),
                ("cgroup2", "")
            ]
        );
        assert_eq!(found[0].at, Path::new("/sys/fs/cgroup/memory"));
    }
}
