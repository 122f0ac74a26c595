//! elasti-cluster: a real Kubernetes on this machine.

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use elasti_cluster::{Cluster, Controllers, Image, node};
use k8s_openapi::jiff::Timestamp;
use std::{fs, io::Write, os::unix::process::CommandExt, path::PathBuf, process::ExitCode};

/// A real single-node Kubernetes on this machine, in namespaces of its own.
///
/// Nothing of the host is changed beyond packages; everything is below the user's cache directory,
/// and `down` removes it.
#[derive(Parser)]
#[command(name = "elasti-cluster", version)]
struct Cli {
    /// Which cluster; several can run side by side
    #[arg(long, global = true, default_value = "elasti", env = "ELASTI_CLUSTER")]
    name: String,

    /// A context of your kubeconfig, to use that cluster instead of a local one
    #[arg(long, global = true)]
    context: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the cluster, or find it running; the first time it builds Kubernetes
    Up,
    /// End the cluster and remove everything that belongs to it
    Down,
    /// Say what runs, and where its files are
    Status,
    /// Run kubectl on the cluster
    #[command(disable_help_flag = true)]
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run any command in the cluster's network, with its KUBECONFIG
    Run {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Make an image of a static binary, as an archive for `ctr images import` or `docker load`
    Image {
        /// Name and tag, such as elasti.local/echo:1
        image: String,
        /// A statically linked executable
        binary: PathBuf,
        /// Where to write the archive
        archive: PathBuf,
        /// Another path to the binary in the image, such as /manager
        #[arg(long, value_name = "PATH")]
        link: Option<String>,
        /// A bundle of authorities that programs in it trust
        #[arg(long, value_name = "FILE")]
        certificates: Option<PathBuf>,
        /// What the image says of itself
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
        labels: Vec<(String, String)>,
        /// When its source was written, in seconds since 1970
        #[arg(
            long,
            value_name = "SECONDS",
            env = "SOURCE_DATE_EPOCH",
            default_value_t = 0
        )]
        created: i64,
    },
    /// Load an image archive, or make an image of a static binary and load that
    LoadImage {
        /// An archive (OCI or docker save), or a statically linked executable
        file: PathBuf,
        /// Name and tag of a binary's image, such as elasti.local/echo:1
        image: Option<String>,
    },
    /// Print the log of a component, or the names of all
    Logs { component: Option<String> },
    /// The first process inside a cluster's namespaces
    #[command(hide = true)]
    Node {
        #[arg(long)]
        root: PathBuf,
        #[arg(long)]
        bin: PathBuf,
        #[arg(long)]
        eager_controllers: bool,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elasti-cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    let Cli {
        name,
        context,
        command,
    } = cli;
    let find = || match &context {
        Some(context) => Ok(Cluster::existing(Some(context))),
        None => Cluster::running(&name)?.with_context(|| {
            format!(
                "cluster '{name}' does not run: start it with `{} --name {name} up`",
                program()
            )
        }),
    };
    match command {
        Command::Node {
            root,
            bin,
            eager_controllers,
        } => {
            let controllers = if eager_controllers {
                Controllers::Eager
            } else {
                Controllers::AsElsewhere
            };
            node::run(&root, &bin, controllers)
        }
        Command::Up | Command::Down if context.is_some() => {
            bail!("up and down are for clusters on this machine: leave out --context")
        }
        Command::Up => up(&name),
        Command::Down => Cluster::down(&name),
        Command::Status => status(&find()?, &name),
        Command::Kubectl { args } => exec(&find()?, "kubectl", &args),
        Command::Run { command } => match command.split_first() {
            Some((program, args)) => exec(&find()?, program, args),
            None => bail!("no command given"),
        },
        Command::Image {
            image,
            binary,
            archive,
            link,
            certificates,
            labels,
            created,
        } => Image {
            link,
            certificates,
            labels: labels.into_iter().collect(),
            created: Timestamp::from_second(created)?,
            ..Image::of_binary(&image, &binary)?
        }
        .save(&archive),
        Command::LoadImage { file, image } => find()?.load_image(&file, image.as_deref()),
        Command::Logs { component } => logs(&find()?, component.as_deref()),
    }
}

fn label(text: &str) -> Result<(String, String)> {
    let (key, value) = text.split_once('=').context("a label is KEY=VALUE")?;
    Ok((key.into(), value.into()))
}

/// As it was called, so that what is printed can be pasted.
fn program() -> String {
    std::env::args()
        .next()
        .unwrap_or_else(|| "elasti-cluster".into())
}

fn up(name: &str) -> Result<()> {
    let cluster = Cluster::up(name)?;
    print(&format!(
        "{} is ready\n  try:    {program} --name {name} kubectl get nodes\n  remove: {program} --name {name} down\n",
        cluster.describe(),
        program = program(),
    ))
}

/// Whoever stops reading has read enough.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn exec(cluster: &Cluster, program: &str, args: &[String]) -> Result<()> {
    let error = cluster.command(program)?.args(args).exec();
    Err(error).with_context(|| format!("running {program}"))
}

fn status(cluster: &Cluster, name: &str) -> Result<()> {
    let version = cluster.run(async || {
        let client = cluster.client().await?;
        client
            .apiserver_version()
            .await
            .context("the API server does not answer")
    })?;
    let mut text = format!(
        "{}, API server {}\n",
        cluster.describe(),
        version.git_version
    );
    if let (Some(kubeconfig), Some(logs)) = (cluster.kubeconfig(), cluster.logs()) {
        text += &format!("cluster:    {name}\nlogs:       {}\n", logs.display());
        text += &format!(
            "kubeconfig: {} (for `{} run`: the cluster has a network of its own)\n",
            kubeconfig.display(),
            program()
        );
    }
    for (id, process) in cluster.processes() {
        text += &format!("{id:>10}  {process}\n");
    }
    print(&text)
}

fn logs(cluster: &Cluster, component: Option<&str>) -> Result<()> {
    let dir = cluster
        .logs()
        .context("only a cluster that runs here has logs here: use kubectl logs")?;
    let mut names: Vec<String> = fs::read_dir(&dir)?
        .flatten()
        .filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    match component {
        None => print(&(names.join("\n") + "\n")),
        Some(name) if names.iter().any(|known| known == name) => {
            print(&fs::read_to_string(dir.join(format!("{name}.log")))?)
        }
        Some(name) => bail!("no log of '{name}': there are {}", names.join(", ")),
    }
}
