//! The local cluster itself: a Kubernetes on which pods, services, names and kubectl work.

use anyhow::{Context, Result, ensure};
use elasti_e2e::{Place, app, fetch};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    time::Duration,
};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_pod_answers_through_its_service_by_name() -> Result<()> {
    elasti_e2e::test(async |place| {
        deploy_echo(place)?;
        let namespace = place.namespace.name();
        let url = format!("http://echo.{namespace}.svc.cluster.local/by-name");
        let get = ["exec", "deploy/echo", "--", "/elasti-echo", "get", &url];
        let answer = until_answered(async || place.kubectl_text(&get)).await?;
        assert_eq!(answer, "GET /by-name\n");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn kubectl_shows_logs_and_forwards_ports() -> Result<()> {
    elasti_e2e::test(async |place| {
        deploy_echo(place)?;
        assert_eq!(
            place.kubectl_text(&["logs", "deploy/echo"])?,
            "Listening on 8080\n"
        );

        let mut forward = place
            .cluster
            .command("kubectl")?
            .args([
                "--namespace",
                place.namespace.name(),
                "port-forward",
                "deploy/echo",
                ":8080",
            ])
            .stdout(Stdio::piped())
            .spawn()?;
        // Held to the end: port-forward dies when nobody takes its next line.
        let mut printed = BufReader::new(forward.stdout.take().context("port-forward prints")?);
        let mut line = String::new();
        printed.read_line(&mut line)?;
        let address = line
            .strip_prefix("Forwarding from ")
            .and_then(|rest| rest.split(' ').next())
            .with_context(|| format!("port-forward said {line:?}"))?;
        let answer = fetch(&format!("http://{address}/forwarded")).await;
        forward.kill()?;
        forward.wait()?;
        assert_eq!(answer?, "GET /forwarded\n");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn services_have_both_address_families() -> Result<()> {
    elasti_e2e::test(async |place| {
        deploy_echo(place)?;
        let addresses = place.kubectl_text(&[
            "get",
            "service",
            "echo",
            "--output=jsonpath={.spec.clusterIPs[*]}",
        ])?;
        ensure!(
            addresses.contains(':') && addresses.contains('.'),
            "{addresses} is not of both families"
        );
        for address in addresses.split(' ') {
            let url = if address.contains(':') {
                format!("http://[{address}]/family")
            } else {
                format!("http://{address}/family")
            };
            let answer = until_answered(async || fetch(&url).await).await?;
            assert_eq!(answer, "GET /family\n", "through {address}");
        }
        Ok(())
    })
}

fn deploy_echo(place: &Place) -> Result<()> {
    let image = place.echo_image(Path::new(env!("CARGO_BIN_EXE_elasti-echo")))?;
    place.apply(&app("echo", "Deployment", &image))?;
    place.kubectl_text(&["rollout", "status", "deploy/echo", "--timeout=60s"])?;
    Ok(())
}

/// kube-proxy learns of a ready pod a moment after everybody else.
async fn until_answered(attempt: impl AsyncFn() -> Result<String>) -> Result<String> {
    let mut outcome = attempt().await;
    for _ in 0..100 {
        if outcome.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        outcome = attempt().await;
    }
    outcome
}
