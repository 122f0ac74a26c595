//! elasti-cluster: a real Kubernetes on this machine.

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use elasti_cluster::{Cluster, Image, node};
use std::{fs, os::unix::process::CommandExt, path::PathBuf, process::ExitCode};

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
    },
    /// Load an image archive, or make an image of a static binary and load that
    LoadImage {
        /// Name and tag, such as elasti.local/echo:1
        image: String,
        /// An archive (OCI or docker save), or a statically linked executable
        file: PathBuf,
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
    let existing = context
        .as_deref()
        .map(|context| Cluster::existing(Some(context)));
    let find = || match existing.clone() {
        Some(cluster) => Ok(cluster),
        None => Cluster::running(&name)?.with_context(|| {
            format!("cluster '{name}' does not run: start it with `elasti-cluster up`")
        }),
    };
    match command {
        Command::Node { root, bin } => node::run(&root, &bin),
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
        } => {
            let out = fs::File::create(&archive)
                .with_context(|| format!("creating {}", archive.display()))?;
            Image::of_binary(&image, &binary)?.write(out)
        }
        Command::LoadImage { image, file } => find()?.load_image(&image, &file),
        Command::Logs { component } => logs(&find()?, component.as_deref()),
    }
}

fn up(name: &str) -> Result<()> {
    let cluster = Cluster::up(name)?;
    println!(
        "{} is ready; try: elasti-cluster --name {name} kubectl get nodes",
        cluster.describe()
    );
    Ok(())
}

fn exec(cluster: &Cluster, program: &str, args: &[String]) -> Result<()> {
    let error = cluster.command(program)?.args(args).exec();
    Err(error).with_context(|| format!("running {program}"))
}

fn status(cluster: &Cluster, name: &str) -> Result<()> {
    println!("{name}: {}", cluster.describe());
    for (label, path) in [
        ("kubeconfig", cluster.kubeconfig()),
        ("logs", cluster.logs()),
    ] {
        if let Some(path) = path {
            println!("{label}: {}", path.display());
        }
    }
    for (id, process) in cluster.processes() {
        println!("{id:>8} {process}");
    }
    Ok(())
}

fn logs(cluster: &Cluster, component: Option<&str>) -> Result<()> {
    let dir = cluster
        .logs()
        .context("only a cluster that runs here has logs here: use kubectl logs")?;
    let Some(component) = component else {
        for entry in fs::read_dir(&dir)?.flatten() {
            println!(
                "{}",
                entry
                    .path()
                    .with_extension("")
                    .file_name()
                    .unwrap_or_default()
                    .display()
            );
        }
        return Ok(());
    };
    let path = dir.join(format!("{component}.log"));
    let mut log = fs::File::open(&path).with_context(|| {
        format!("no log of '{component}': `elasti-cluster logs` names those there are")
    })?;
    std::io::copy(&mut log, &mut std::io::stdout())?;
    Ok(())
}
