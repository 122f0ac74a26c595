use crate::{api, deploy, until};
use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_e2e::{
    Place, Running, fetch,
    foreign::{Built, KEDA},
    stage::{Meter, Stage, Whole, free_port, workload},
};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::{Value, json};
use std::fs;

const CYCLES: usize = 3;

#[test]
#[ignore = "needs a local cluster: make test-integrations"]
fn what_keda_wants_up_sleeps_until_a_request_wakes_it() -> Result<()> {
    beside_keda(async |stage, meter| {
        sleeping(stage, meter).await?;
        let generation = stage.generation("web").await?;
        stage.deploy_as("other", "Deployment", 0).await?;
        stage.place.put(scaled_object("other", meter)).await?;
        stage
            .scaled_to("other", 1)
            .await
            .context("KEDA still raises what it may")?;
        ensure!(
            (stage.replicas("web").await?, stage.generation("web").await?) == (0, generation),
            "KEDA has left it alone"
        );
        stage.sleep_no_more().await?;
        wakes(stage).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        let autoscaler = |_: &HorizontalPodAutoscaler| true;
        stage
            .until("keda-hpa-web", "KEDA goes on", autoscaler)
            .await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a local cluster: make test-integrations"]
fn beside_keda_it_sleeps_and_wakes_again_and_again() -> Result<()> {
    beside_keda(async |stage, meter| {
        sleeping(stage, meter).await?;
        for _ in 0..CYCLES {
            wakes(stage).await?;
            sleeps(stage).await?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs a local cluster: make test-integrations"]
fn deleting_it_while_asleep_gives_the_target_back_to_keda() -> Result<()> {
    beside_keda(async |stage, meter| {
        sleeping(stage, meter).await?;
        stage.delete::<ElastiService>("web").await?;
        is_paused(stage, false).await?;
        stage.has_ready("web", 1).await?;
        stage.scale("web", 0).await?;
        stage.has_ready("web", 1).await.context("KEDA raises it")
    })
}

fn beside_keda(play: impl AsyncFnOnce(&Stage<'_>, &Meter) -> Result<()> + Send) -> Result<()> {
    let keda = KEDA.built()?;
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let meter = Meter::idle(place).await?;
        let _keda = start(&keda, place)?;
        let outcome = play(&whole.stage, &meter).await;
        // Its finalizers need it.
        place.kubectl(&["delete", "scaledobjects", "--all", "--timeout=20s"])?;
        outcome
    })
}

fn start(keda: &Built, place: &Place) -> Result<Running> {
    let folder = place.folder().join("keda");
    fs::create_dir_all(&folder)?;
    let identity = rcgen::generate_simple_self_signed(["keda-operator".to_owned()])?;
    fs::write(folder.join("ca.crt"), identity.cert.pem())?;
    fs::write(folder.join("tls.crt"), identity.cert.pem())?;
    fs::write(folder.join("tls.key"), identity.signing_key.serialize_pem())?;
    let mut command = keda.install(place)?;
    command
        .env("WATCH_NAMESPACE", place.namespace.name())
        .env("KEDA_CLUSTER_OBJECT_NAMESPACE", place.namespace.name())
        .arg(format!("--cert-dir={}", folder.display()))
        .arg(format!("--metrics-service-bind-address=:{}", free_port()))
        .args(["--metrics-bind-address=0", "--health-probe-bind-address=0"]);
    Running::start(&mut command)
}

/// `web`, which KEDA has raised, and which sleeps now.
async fn sleeping(stage: &Stage<'_>, meter: &Meter) -> Result<()> {
    deploy(stage, workload("web", "Deployment", 0, &stage.image)).await?;
    stage.place.put(scaled_object("web", meter)).await?;
    stage.has_ready("web", 1).await.context("KEDA raises it")?;
    let autoscaler = json!({"type": "keda", "name": "web"});
    stage
        .declare(json!({"triggers": meter.triggers(), "autoscaler": autoscaler}))
        .await?;
    sleeps(stage).await
}

async fn sleeps(stage: &Stage<'_>) -> Result<()> {
    stage.reaches(Phase::Asleep, Mode::Proxy).await?;
    is_paused(stage, true).await?;
    stage.pods_end("of=web").await
}

/// By a request, which is answered.
async fn wakes(stage: &Stage<'_>) -> Result<()> {
    let url = format!("http://{}/hello", stage.reach("web", 80).await?);
    let (answer, ()) = tokio::try_join!(fetch(&url), is_paused(stage, false))?;
    ensure!(answer == "GET /hello\n", "{answer}");
    Ok(())
}

/// By KEDA's own account.
async fn is_paused(stage: &Stage<'_>, paused: bool) -> Result<()> {
    let status = if paused { "True" } else { "False" };
    until(
        api(stage, "keda.sh", "ScaledObject"),
        &format!("Paused is {status}"),
        |object| {
            let conditions = object.data["status"]["conditions"].as_array();
            conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Paused" && condition["status"] == status)
        },
    )
    .await?;
    Ok(())
}

/// There is always one who asks, as far as KEDA is told.
fn scaled_object(name: &str, meter: &Meter) -> Value {
    let server = &meter.triggers()[0]["metadata"]["serverAddress"];
    json!({
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"name": name},
            "pollingInterval": 1,
            "triggers": [{"type": "prometheus", "metadata": {
                "serverAddress": server, "query": "vector(1)", "threshold": "1",
            }}],
        },
    })
}
