//! The first process inside a cluster's namespaces: it lays out mounts and addresses, starts the
//! components, and starts again whichever ends. When it dies, the kernel ends everything below it.

use crate::{Controllers, cgroups, config, layout::Layout, network};
use anyhow::{Context, Result, ensure};
use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sys::wait::{WaitStatus, wait},
    unistd::Pid,
};
use std::{
    collections::HashMap,
    fs::{self, File},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Garbage is collected when there is this much more of it, in percent: all share a few cores, and memory is the
/// cheaper of the two.
const COLLECT: &str = "300";
const NONE: Option<&str> = None;
const RESTART_DELAY: Duration = Duration::from_millis(300);

pub fn run(root: &Path, bin: &Path, controllers: Controllers) -> Result<()> {
    let layout = Layout::of_root(root)?;
    cgroups::enter(&layout.cgroup())?;
    own_mounts(&layout)?;
    keep_kernel_settings(&layout)?;
    own_network()?;
    let components = config::components(&layout, bin, controllers);
    let mut running = HashMap::new();
    for (index, component) in components.iter().enumerate() {
        running.insert(start(&layout, component)?, index);
    }
    loop {
        let ended = match wait() {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => pid,
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(error) => return Err(error).context("waiting for the components"),
        };
        // Anything else is an orphan of containerd's that only needed to be reaped.
        if let Some(index) = running.remove(&ended) {
            eprintln!("{} ended, starting it again", components[index].name);
            pause();
            running.insert(start(&layout, &components[index])?, index);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a crash loop has no event to wait for, and there is no runtime here"
)]
fn pause() {
    thread::sleep(RESTART_DELAY);
}

fn start(layout: &Layout, component: &config::Component) -> Result<Pid> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(layout.log(component.name))?;
    let child = Command::new(&component.program)
        .env("GOGC", COLLECT)
        .args(&component.args)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {}", component.program.display()))?;
    Ok(Pid::from_raw(child.id().try_into()?))
}

/// Fresh `/run`, `/var/log` and `/var/lib`, so that no component leaves a trace on the host. Should
/// the cache itself lie below one of them, it stays visible.
fn own_mounts(layout: &Layout) -> Result<()> {
    let cache = layout.cache();
    let behind = File::open(cache)?;
    let behind = PathBuf::from(format!("/proc/self/fd/{}", behind.as_raw_fd()));
    for path in ["/run", "/var/log", "/var/lib"] {
        mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), NONE)
            .with_context(|| format!("mounting a tmpfs on {path}"))?;
        if cache.starts_with(path) {
            bind(&behind, cache).context("keeping the cache visible")?;
        }
    }
    bind(&layout.data("kubelet"), Path::new(config::KUBELET_ROOT))?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SHARED, NONE)
        .context("sharing mounts with pods")
}

/// Kubelet sets what it does not find set, and these belong to the whole machine.
fn keep_kernel_settings(layout: &Layout) -> Result<()> {
    for (key, value) in [
        ("vm/overcommit_memory", "1"),
        ("vm/panic_on_oom", "0"),
        ("kernel/panic", "10"),
        ("kernel/panic_on_oops", "1"),
        ("kernel/keys/root_maxkeys", "1000000"),
        ("kernel/keys/root_maxbytes", "25000000"),
    ] {
        let seen = layout.config().join(key.replace('/', "."));
        fs::write(&seen, value)?;
        let setting = format!("/proc/sys/{key}");
        mount(Some(&seen), setting.as_str(), NONE, MsFlags::MS_BIND, NONE)
            .with_context(|| format!("covering {setting}"))?;
    }
    Ok(())
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    mount(Some(from), to, NONE, MsFlags::MS_BIND, NONE)
        .with_context(|| format!("mounting {} on {}", from.display(), to.display()))
}

fn own_network() -> Result<()> {
    for line in [
        "link set lo up".to_owned(),
        "link add node0 type bridge".into(),
        "link add uplink0 type veth peer name uplink1".into(),
        "link set uplink0 master node0".into(),
        "link set uplink0 up".into(),
        "link set uplink1 up".into(),
        "link set node0 up".into(),
        format!("address add {}/24 dev node0", network::NODE),
        format!("address add {}/64 dev node0 nodad", network::NODE_V6),
        format!("route add default via {}", network::GATEWAY),
        format!("-6 route add default via {}", network::GATEWAY_V6),
    ] {
        let status = Command::new("ip")
            .args(line.split(' '))
            .status()
            .context("running ip")?;
        ensure!(status.success(), "ip {line}: {status}");
    }
    if !Path::new("/proc/sys/net/bridge").exists() {
        // Built in or loaded on most machines; what the next lines say if not is clear enough.
        let _ = Command::new("modprobe").arg("br_netfilter").status();
    }
    for (key, value) in [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("bridge/bridge-nf-call-iptables", "1"),
        ("bridge/bridge-nf-call-ip6tables", "1"),
    ] {
        let path = format!("/proc/sys/net/{key}");
        fs::write(&path, value).with_context(|| format!("writing {value} to {path}"))?;
    }
    Ok(())
}
