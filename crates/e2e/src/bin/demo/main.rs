//! elasti-demo: installs Elasti on the local cluster, puts services to sleep and wakes them, and tells
//! what happens when.

mod apps;
mod timeline;
mod visit;

use anyhow::Result;
use elasti_cluster::Cluster;
use elasti_e2e::install::install;
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
    step("Installing Elasti: two operators, two resolvers (config/base)");
    install(cluster)?;
    apps::deploy(cluster)?;
    cluster.run(async || timeline::show(cluster).await)?;
    farewell(cluster);
    Ok(())
}

fn step(text: &str) {
    println!("\n==> {text}");
}

/// Lines that work as printed.
fn farewell(cluster: &Cluster) {
    let kubectl = if cluster.is_local() {
        let program = env::current_exe().unwrap_or_default();
        let program = program.with_file_name("elasti-cluster");
        format!("{} kubectl", program.display())
    } else {
        "kubectl".into()
    };
    let remove = if cluster.is_local() {
        "make cluster-down".into()
    } else {
        format!(
            "{kubectl} delete namespace {} && {kubectl} delete -k config/base",
            apps::NAMESPACE
        )
    };
    println!(
        "
Everything goes on running. Try next:
  {kubectl} -n {namespace} get elastiservices -w                watch them fall asleep and wake
  {kubectl} -n {namespace} exec deploy/visitor -- /elasti-echo get http://web/hello   wake one
  {kubectl} -n {namespace} describe elastiservice web          conditions and events
  {kubectl} get --raw /api/v1/namespaces/elasti/services/elasti-resolver-service:8013/proxy/metrics
Remove everything:
  {remove}",
        namespace = apps::NAMESPACE
    );
}
