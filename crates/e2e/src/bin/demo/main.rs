//! elasti-demo: installs Elasti on the local cluster, puts services to sleep and wakes them, and tells
//! what happens when.

mod apps;
mod clock;
mod farewell;
mod timeline;
mod visit;

use self::farewell::{farewell, word};
use anyhow::{Context, Result};
use elasti_cluster::Cluster;
use elasti_e2e::{
    install::{ensure_free, install, installation},
    local_name,
};
use std::{env, process::ExitCode};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elasti-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let cluster = elasti_e2e::cluster()?;
    ensure_free(cluster)?;
    // Prometheus has something to tell by the time that somebody asks it.
    apps::deploy(cluster)?;
    step("Installing Elasti: two operators, two resolvers (config/base)");
    install(cluster)?;
    apps::declare(cluster)?;
    cluster.run(async || timeline::show(cluster).await)?;
    println!("{}", last_words(cluster)?);
    Ok(())
}

fn step(text: &str) {
    println!("\n==> {text}");
}

fn last_words(cluster: &Cluster) -> Result<String> {
    if cluster.is_local() {
        let program = env::current_exe()?.with_file_name("elasti-cluster");
        let program = program.to_str().context("a path that can be printed")?;
        let ours = format!("{} --name {}", word(program), word(&local_name()));
        return Ok(farewell(
            &format!("{ours} kubectl"),
            &[format!("{ours} down")],
        ));
    }
    let kubectl = format!("KUBECONFIG={} kubectl", word(&env::var("KUBECONFIG")?));
    let installation = installation()?;
    let installation = installation
        .to_str()
        .context("a path that can be printed")?;
    // While there are operators to give their targets back.
    let remove = [
        format!(
            "{kubectl} delete elastiservices --all -n {}",
            apps::NAMESPACE
        ),
        format!("{kubectl} delete namespace {}", apps::NAMESPACE),
        format!("{kubectl} delete -k {}", word(installation)),
    ];
    Ok(farewell(&kubectl, &remove))
}
