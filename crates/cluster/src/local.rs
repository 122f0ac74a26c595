//! A cluster on this machine: up, down, and the way in.

use crate::{
    Controllers, cgroups, components, config,
    image::{self, Image},
    keeper::Keeper,
    layout::Layout,
    network, packages, pki, ready,
};
use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use std::{
    fs::{self, File, Permissions},
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

#[derive(Clone, Debug)]
pub(crate) struct Local {
    layout: Layout,
    keeper: Keeper,
}

pub(crate) fn up(name: &str, controllers: Controllers) -> Result<Local> {
    let layout = Layout::of_user(name)?;
    packages::check_machine()?;
    packages::ensure_installed()?;
    let bin = components::ensure_built(&layout)?;
    let _alone = lock(&layout)?;
    if let Some(local) = living(&layout) {
        match ready::wait(&local) {
            // It was just being killed.
            Err(_) if !local.keeper.is_alive() => {}
            outcome => return outcome.map(|()| local),
        }
    }
    eprintln!("Starting cluster '{name}'");
    let local = start(layout, &bin, controllers)?;
    ready::wait(&local)?;
    Ok(local)
}

fn start(layout: Layout, bin: &Path, controllers: Controllers) -> Result<Local> {
    clear(&layout)?;
    fs::create_dir_all(layout.root())?;
    fs::set_permissions(layout.root(), Permissions::from_mode(0o700))?;
    pki::write(&layout)?;
    config::write(&layout, &packages::cni_plugins()?)?;
    let keeper = Keeper::start(&layout, bin, controllers)?;
    Ok(Local { layout, keeper })
}

/// The cluster of that name, if it runs.
pub(crate) fn running(name: &str) -> Result<Option<Local>> {
    Ok(living(&Layout::of_user(name)?))
}

pub(crate) fn down(name: &str) -> Result<()> {
    let layout = Layout::of_user(name)?;
    let _alone = lock(&layout)?;
    clear(&layout)?;
    Ok(fs::remove_file(layout.lock())?)
}

fn living(layout: &Layout) -> Option<Local> {
    Some(Local {
        layout: layout.clone(),
        keeper: Keeper::find(layout)?,
    })
}

/// One command at a time on one cluster. `down` removes the file, so a lock counts only if it is
/// still that of the path.
fn lock(layout: &Layout) -> Result<Flock<File>> {
    let path = layout.lock();
    fs::create_dir_all(path.parent().context("a lock has a folder")?)?;
    loop {
        let lock = Flock::lock(File::create(&path)?, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .context("waiting for another command on this cluster")?;
        let held = lock.metadata()?.ino();
        if fs::metadata(&path).is_ok_and(|current| current.ino() == held) {
            return Ok(lock);
        }
    }
}

/// Ends and removes whatever is there, in whatever state it was left.
fn clear(layout: &Layout) -> Result<()> {
    while let Some(keeper) = Keeper::find(layout) {
        keeper.end()?;
    }
    cgroups::remove(&layout.cgroup())?;
    match fs::remove_dir_all(layout.root()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", layout.root().display()))
        }
        _ => Ok(()),
    }
}

// === impl Local ===

impl Local {
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    pub(crate) fn kubectl(&self) -> PathBuf {
        components::place(&self.layout).join("kubectl")
    }

    /// Makes an image of a static binary, or takes an archive, which names its images itself.
    pub(crate) fn load_image(&self, file: &Path, name: Option<&str>) -> Result<()> {
        let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        match (image::is_elf(&bytes), name) {
            (true, Some(name)) => self.import(&Image::of_binary(name, file)?),
            (true, None) => bail!(
                "{} is a binary: give its image a name, such as elasti.local/app:1",
                file.display()
            ),
            (false, None) => self.import_archive(&bytes),
            (false, Some(name)) => bail!(
                "{} is no binary, and an archive names its images itself: leave out {name}",
                file.display()
            ),
        }
    }

    pub(crate) fn import(&self, image: &Image) -> Result<()> {
        let mut archive = Vec::new();
        image.write(&mut archive)?;
        self.import_archive(&archive)
    }

    fn import_archive(&self, archive: &[u8]) -> Result<()> {
        let mut ctr = self
            .keeper
            .inside("ctr")
            .args([
                "--address",
                config::CONTAINERD_SOCKET,
                "--namespace",
                "k8s.io",
                "images",
                "import",
                "-",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting ctr")?;
        // A ctr that fails early closes its end; its own words then tell more than this error.
        let written = ctr.stdin.take().map(|mut stdin| stdin.write_all(archive));
        let output = ctr.wait_with_output()?;
        ensure!(
            output.status.success(),
            "ctr images import: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(written.transpose().map(|_| ())?)
    }

    /// A command in the cluster's network, with its kubeconfig.
    pub(crate) fn command(&self, program: &Path) -> Result<Command> {
        self.keeper.enter_network()?;
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", self.layout.kubeconfig())
            .env("KUBECACHEDIR", self.layout.root().join("kubectl"));
        Ok(command)
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "Kubernetes {} on {}:{}",
            components::version(),
            network::NODE,
            network::API_PORT
        )
    }
}
