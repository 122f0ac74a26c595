//! A real Kubernetes for demo, tests and benchmarks: one node on this machine, made of the real
//! components in namespaces of its own; or, where a kubeconfig is given, a cluster that exists.

mod cgroups;
mod components;
mod config;
mod digest;
mod image;
mod keeper;
mod layout;
mod local;
mod network;
pub mod node;
mod packages;
mod patience;
mod pki;
mod progress;
mod ready;

pub use self::image::Image;

use anyhow::{Context, Result, bail};
use kube::{Client, Config, config::KubeConfigOptions, config::Kubeconfig};
use local::Local;
use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
};

/// Of the Kubernetes that local clusters run.
pub fn version() -> &'static str {
    components::version()
}

/// A cluster that can be used.
#[derive(Clone, Debug)]
pub struct Cluster(Kind);

/// How fast the controllers of Kubernetes write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    /// So that thousands of services do not take them minutes.
    Eager,
    /// 20 calls a second each, as they do by default.
    AsElsewhere,
}

#[derive(Clone, Debug)]
enum Kind {
    Local(Local),
    /// One that somebody else runs, by the ordinary kubeconfig rules.
    Existing {
        context: Option<String>,
    },
}

// === impl Cluster ===

impl Cluster {
    /// Starts the local cluster of that name, or finds it running.
    pub fn up(name: &str) -> Result<Self> {
        local::up(name, Controllers::Eager).map(Self::local)
    }

    /// The same, for what is to be compared with other clusters.
    pub fn up_as_elsewhere(name: &str) -> Result<Self> {
        local::up(name, Controllers::AsElsewhere).map(Self::local)
    }

    /// The local cluster of that name, if it runs.
    pub fn running(name: &str) -> Result<Option<Self>> {
        Ok(local::running(name)?.map(Self::local))
    }

    /// A cluster that exists: `KUBECONFIG`, and the given context or its current one.
    pub fn existing(context: Option<&str>) -> Self {
        Self(Kind::Existing {
            context: context.map(str::to_owned),
        })
    }

    /// Where all files of the local cluster of that name are while it runs.
    pub fn folder(name: &str) -> Result<PathBuf> {
        Ok(layout::Layout::of_user(name)?.root())
    }

    /// Ends the local cluster of that name and removes all that belongs to it.
    pub fn down(name: &str) -> Result<()> {
        local::down(name)
    }

    pub(crate) fn local(local: Local) -> Self {
        Self(Kind::Local(local))
    }

    /// Runs asynchronous work where the cluster's addresses can be reached.
    pub fn run<T: Send>(&self, work: impl AsyncFnOnce() -> Result<T> + Send) -> Result<T> {
        let inside = move || {
            if let Kind::Local(local) = &self.0 {
                local.keeper().enter_network()?;
            }
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(work())
        };
        // The namespace is a property of the thread, so the thread ends with the work.
        thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// A client; to be made and used inside [`run`](Self::run).
    pub async fn client(&self) -> Result<Client> {
        let config = match &self.0 {
            Kind::Local(local) => {
                let kubeconfig = Kubeconfig::read_from(local.layout().kubeconfig())?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
            }
            Kind::Existing { context } => {
                let options = KubeConfigOptions {
                    context: context.clone(),
                    ..KubeConfigOptions::default()
                };
                Config::from_kubeconfig(&options)
                    .await
                    .context("reading KUBECONFIG")?
            }
        };
        Ok(Client::try_from(config)?)
    }

    /// A command that reaches the cluster; `kubectl` is the cluster's own version. The calling
    /// thread moves into the cluster's network for good.
    pub fn command(&self, program: &str) -> Result<Command> {
        match &self.0 {
            Kind::Local(local) if program == "kubectl" => local.command(&local.kubectl()),
            Kind::Local(local) => local.command(Path::new(program)),
            Kind::Existing { context } => {
                let mut command = Command::new(program);
                if let (Some(context), "kubectl") = (context, program) {
                    command.args(["--context", context]);
                }
                Ok(command)
            }
        }
    }

    /// Loads an image archive, or a static binary as an image of that name.
    pub fn load_image(&self, file: &Path, name: Option<&str>) -> Result<()> {
        match &self.0 {
            Kind::Local(local) => local.load_image(file, name),
            Kind::Existing { .. } => bail!(
                "only a cluster that runs here can be given an image: load {} with your cluster's own tool (kind load image-archive, k3s ctr images import) or push it to a registry it pulls from",
                file.display()
            ),
        }
    }

    /// Whether it runs on this machine, as one of ours.
    pub fn is_local(&self) -> bool {
        matches!(self.0, Kind::Local(_))
    }

    /// Name and host process id of each component that runs.
    pub fn processes(&self) -> Vec<(i32, String)> {
        match &self.0 {
            Kind::Local(local) => local.keeper().processes(),
            Kind::Existing { .. } => Vec::new(),
        }
    }

    /// Where the logs of the components are, for a cluster that runs here.
    pub fn logs(&self) -> Option<PathBuf> {
        match &self.0 {
            Kind::Local(local) => Some(local.layout().logs()),
            Kind::Existing { .. } => None,
        }
    }

    pub fn kubeconfig(&self) -> Option<PathBuf> {
        match &self.0 {
            Kind::Local(local) => Some(local.layout().kubeconfig()),
            Kind::Existing { .. } => None,
        }
    }

    pub fn describe(&self) -> String {
        match &self.0 {
            Kind::Local(local) => local.describe(),
            Kind::Existing { context } => {
                format!(
                    "the cluster of {}",
                    context.as_deref().unwrap_or("the current context")
                )
            }
        }
    }
}
