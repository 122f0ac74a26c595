//! What a newcomer sees first works, and so does what it says to try next.

use anyhow::{Context, Result, bail, ensure};
use elasti_cluster::Cluster;
use elasti_e2e::built;
use std::process::Command;

const CLUSTER: &str = "alone-demo";
/// What is shown, in this order.
const SHOWN: [&str; 9] = [
    "idle",
    "falling asleep",
    "scaled to 0",
    "asleep: 0 pods",
    "which a resolver holds",
    "answered: GET /hello",
    "basket answered: GET /hello",
    "greeter answered: grpc-status 0",
    "store answered: hello over TCP",
];
/// Meanwhile: an answer may come before the cluster knows that the pod is ready.
const POD: [&str; 5] = [
    "which a resolver holds",
    "scaled 0 → 1",
    "pod scheduled",
    "container started",
    "pod ready",
];

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn the_demo_shows_a_service_asleep_and_awake_and_its_last_lines_work_as_printed() -> Result<()> {
    Cluster::down(CLUSTER)?;
    let outcome = see_and_try();
    Cluster::down(CLUSTER)?;
    outcome
}

fn see_and_try() -> Result<()> {
    let mut demo = Command::new(built("elasti-demo")?);
    demo.env("ELASTI_CLUSTER", CLUSTER).env_remove("KUBECONFIG");
    let shown = printed(&mut demo)?;
    println!("{shown}");
    in_turn(&shown, &POD)?;
    let rest = in_turn(&shown, &SHOWN)?;
    ensure!(shown.contains("out of the path"), "it stays in the path");
    let indented = rest.lines().filter_map(|line| line.strip_prefix("  "));
    let commands: Vec<&str> = indented.filter(|line| !line.starts_with('#')).collect();
    let [watch, wake, describe, measure, remove] = commands[..] else {
        bail!("other commands than expected: {commands:?}");
    };
    // It goes on until it is stopped.
    let watched = Command::new("timeout")
        .args(["3", "sh", "-c", watch])
        .output()?;
    let watched = String::from_utf8(watched.stdout)?;
    ensure!(watched.contains("greeter"), "{watched}");
    let woken = typed(wake)?;
    ensure!(woken == "GET /hello\n", "{woken}");
    let described = typed(describe)?;
    ensure!(described.contains("Conditions:"), "{described}");
    let measured = typed(measure)?;
    ensure!(measured.contains("elasti_resolver_"), "{measured}");
    typed(remove)?;
    ensure!(Cluster::running(CLUSTER)?.is_none(), "it is still there");
    Ok(())
}

/// What comes after these.
fn in_turn<'a>(mut text: &'a str, all: &[&str]) -> Result<&'a str> {
    for what in all {
        let found = text.split_once(what);
        (_, text) = found.with_context(|| format!("{what:?} is not shown in its turn"))?;
    }
    Ok(text)
}

fn typed(line: &str) -> Result<String> {
    printed(Command::new("sh").args(["-c", line]))
}

fn printed(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = String::from_utf8(output.stdout)?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {text}{complaint}");
    Ok(text)
}
