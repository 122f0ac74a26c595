//! Pods that do not speak with Kubernetes: whoever waits for them waits for the pods only.

use super::{asleep, sleeping, sleeping_gated};
use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_e2e::{
    Place, exchange,
    stage::{PATIENCE, Stage, Whole, workload},
};
use http_body_util::Full;
use hyper::{Request, Response};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

const SELDOM: u32 = 60;
/// Kubernetes asks from the node's end of the pods' network. It may look at any moment, whatever the period, and would
/// now and then be the first to see a pod ready.
const SNUB: &str = "snub=10.244.0.1";

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_slow_start_is_answered_when_its_own_probe_passes_and_not_before() -> Result<()> {
    early(
        &["late=1", "unready=2"],
        json!({"readinessProbe": ready(8080)}),
    )
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_startup_probe_has_to_pass_first() -> Result<()> {
    let readiness = json!({"tcpSocket": {"port": 8080}, "periodSeconds": SELDOM});
    early(
        &["unready=2"],
        json!({"startupProbe": ready(8080), "readinessProbe": readiness}),
    )
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_probe_over_tls_takes_any_certificate() -> Result<()> {
    let action = json!({"path": "/ready", "port": "secure", "scheme": "HTTPS"});
    let own = rcgen::generate_simple_self_signed(["nobody.example".to_owned()])?;
    early(
        &["tls=8443", "unready=2"],
        json!({
            "env": [
                {"name": "ECHO_CERTIFICATE", "value": own.cert.pem()},
                {"name": "ECHO_KEY", "value": own.signing_key.serialize_pem()},
            ],
            "ports": [{"name": "secure", "containerPort": 8443}],
            "readinessProbe": {"httpGet": action, "periodSeconds": SELDOM},
        }),
    )
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn the_health_protocol_of_grpc_is_asked() -> Result<()> {
    let probe = json!({"grpc": {"port": 8080}, "periodSeconds": SELDOM});
    early(&["unready=2"], json!({"readinessProbe": probe}))
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_connection_is_a_probe() -> Result<()> {
    let probe = json!({"tcpSocket": {"port": 8080}, "periodSeconds": SELDOM});
    elasti_e2e::test(async |place| never_ready(place, json!({"readinessProbe": probe})).await)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn without_a_probe_a_connection_is_enough() -> Result<()> {
    elasti_e2e::test(async |place| never_ready(place, json!({"readinessProbe": null})).await)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn every_container_with_a_probe_has_to_pass() -> Result<()> {
    elasti_e2e::test(async |place| both(place, [1, 3], 9090).await)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn the_first_of_two_containers_has_to_pass_too() -> Result<()> {
    elasti_e2e::test(async |place| both(place, [3, 1], 8080).await)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn an_application_that_is_later_than_its_health_is_waited_for_in_peace() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        let mut web = workload("web", "Deployment", 0, &stage.image);
        let containers = &mut web["spec"]["template"]["spec"]["containers"];
        let mut health = containers[0].clone();
        containers[0]["args"] = json!(["late=3"]);
        containers[0]["readinessProbe"].take();
        health["name"] = json!("health");
        health["args"] = json!([SNUB, "port=9090"]);
        health["readinessProbe"] = ready(9090);
        containers.as_array_mut().context("a list")?.push(health);
        asleep(stage, web, ports()).await?;
        is_early(&ask(stage).await?)?;
        let refused = [("result", "refused")];
        let refused = whole.samples("elasti_resolver_dial_seconds_count", &refused);
        ensure!(refused.await? == [0.0], "nobody was sent there in vain");
        let early = [("source", "web"), ("release", "EarliestReady")];
        let starts = whole.samples("elasti_resolver_cold_start_seconds_count", &early);
        ensure!(starts.await? == [1.0], "it was woken once");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn one_that_crashes_has_to_pass_again() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        sleeping(stage, ports(), |echo| {
            echo["args"] = json!([SNUB, "late=1", "unready=2"]);
            echo["readinessProbe"] = ready(8080);
        })
        .await?;
        is_early(&ask(stage).await?)?;
        let address = stage.reach("web", 80).await?;
        let exit = Request::post(format!("http://{address}/exit")).body(Full::default())?;
        let _ = timeout(PATIENCE, exchange(exit)).await?;
        let again = ask(stage).await?;
        ensure!(again.body() == "GET /hello\n", "{again:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_new_template_while_it_wakes_is_asked_by_its_own_probe() -> Result<()> {
    rolled(json!({"readinessProbe": ready(9999)}))
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_new_template_is_not_let_in_by_a_probe_that_was_easier() -> Result<()> {
    let easy = json!({"tcpSocket": {"port": 8080}, "periodSeconds": SELDOM});
    rolled(json!({"readinessProbe": easy, "args": ["late=600"]}))
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn readiness_gates_are_left_to_kubernetes_and_told() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        sleeping_gated(stage).await?;
        stage
            .condition("web", "EarlyRelease", "False", "ReadinessGate")
            .await?;
        let opened = async {
            whole.until_held("web", 1).await?;
            stage.open("web").await
        };
        let (answer, opened) = tokio::join!(ask(stage), opened);
        opened?;
        is_held_for_kubernetes(&answer?)
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_only_kubernetes_can_ask_is_left_to_it_and_told() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        let command = json!(["/elasti-echo", "get", "http://127.0.0.1:8080/ready"]);
        let probe = json!({"exec": {"command": command}, "periodSeconds": 1});
        sleeping(stage, ports(), |echo| echo["readinessProbe"] = probe).await?;
        stage
            .condition("web", "EarlyRelease", "False", "ExecProbe")
            .await?;
        is_held_for_kubernetes(&ask(stage).await?)
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn it_can_be_switched_off() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        sleeping(stage, ports(), |_| {}).await?;
        stage
            .amend("web", json!({"hold": {"release": "KubernetesReady"}}))
            .await?;
        let off = |status: &elasti_api::ElastiServiceStatus| status.readiness.is_none();
        stage.until_status("web", "nothing to ask", off).await?;
        is_held_for_kubernetes(&ask(stage).await?)
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn whoever_is_let_in_early_or_not_the_mode_follows_kubernetes() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        sleeping(stage, ports(), |echo| {
            echo["readinessProbe"].take();
            echo["args"] = json!(["late=1"]);
        })
        .await?;
        let answer = ask(stage).await?;
        ensure!(answer.body() == "GET /hello\n", "{answer:?}");
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.delete::<ElastiService>("web").await
    })
}

/// A pod of this kind answers though Kubernetes never calls it ready.
fn early(args: &[&str], container: Value) -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        sleeping(stage, ports(), |echo| {
            echo["args"] = json!([&[SNUB], args].concat());
            for (name, value) in container.as_object().into_iter().flatten() {
                echo[name] = value.clone();
            }
        })
        .await?;
        is_early(&ask(stage).await?)
    })
}

/// A pod of which one container never runs, so that Kubernetes never calls it ready, and the other is like this.
async fn never_ready(place: &Place, container: Value) -> Result<()> {
    let whole = Whole::set(place).await?;
    let stage = &whole.stage;
    let mut web = workload("web", "Deployment", 0, &stage.image);
    let containers = &mut web["spec"]["template"]["spec"]["containers"];
    containers[0]["args"] = json!(["late=2"]);
    for (name, value) in container.as_object().into_iter().flatten() {
        containers[0][name] = value.clone();
    }
    let never = json!({"name": "never", "image": "elasti.local/never", "imagePullPolicy": "Never"});
    containers.as_array_mut().context("a list")?.push(never);
    asleep(stage, web, ports()).await?;
    is_early(&ask(stage).await?)
}

/// Two containers that are ready after so many seconds, behind the port of the one that is late.
async fn both(place: &Place, seconds: [u32; 2], late: u16) -> Result<()> {
    let whole = Whole::set(place).await?;
    let stage = &whole.stage;
    let mut web = workload("web", "Deployment", 0, &stage.image);
    let containers = &mut web["spec"]["template"]["spec"]["containers"];
    let mut second = containers[0].clone();
    containers[0]["args"] = json!([SNUB, format!("unready={}", seconds[0])]);
    containers[0]["readinessProbe"] = ready(8080);
    second["name"] = json!("second");
    second["args"] = json!([SNUB, "port=9090", format!("unready={}", seconds[1])]);
    second["readinessProbe"] = ready(9090);
    containers.as_array_mut().context("a list")?.push(second);
    asleep(stage, web, json!([{"port": 80, "targetPort": late}])).await?;
    is_early(&ask(stage).await?)
}

/// From pods like this, which are never ready, to others that are ready two seconds after they listen.
fn rolled(from: Value) -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        sleeping(stage, ports(), |echo| {
            for (name, value) in from.as_object().into_iter().flatten() {
                echo[name] = value.clone();
            }
        })
        .await?;
        let change = async {
            stage.target("web").await?;
            let echo = json!({
                "name": "echo",
                "args": [SNUB, "unready=2"],
                "readinessProbe": {"tcpSocket": null, "httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": SELDOM},
            });
            let patch = json!({"spec": {"template": {"spec": {"containers": [echo]}}}});
            let patch = patch.to_string();
            place.kubectl_text(&["patch", "deployment/web", "--patch", &patch])
        };
        let (answer, changed) = tokio::join!(ask(stage), change);
        changed?;
        is_early(&answer?)
    })
}

fn ready(port: u16) -> Value {
    json!({"httpGet": {"path": "/ready", "port": port}, "periodSeconds": SELDOM})
}

fn ports() -> Value {
    json!([{"port": 80, "targetPort": 8080}])
}

async fn ask(stage: &Stage<'_>) -> Result<Response<String>> {
    let address = stage.reach("web", 80).await?;
    let request = Request::get(format!("http://{address}/hello")).body(Full::default())?;
    timeout(Duration::from_secs(u64::from(SELDOM)), exchange(request))
        .await
        .context("no answer")?
}

fn is_early(answer: &Response<String>) -> Result<()> {
    ensure!(answer.body() == "GET /hello\n", "{answer:?}");
    let timing = answer.headers()["server-timing"].to_str()?;
    ensure!(timing.contains("until its probes passed"), "{timing}");
    Ok(())
}

fn is_held_for_kubernetes(answer: &Response<String>) -> Result<()> {
    ensure!(answer.body() == "GET /hello\n", "{answer:?}");
    let timing = answer.headers()["server-timing"].to_str()?;
    ensure!(timing.contains("desc=\"held\""), "{timing}");
    Ok(())
}
