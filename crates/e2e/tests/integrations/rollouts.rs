use crate::{CLIENTS, api, deploy, until, used};
use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    Place, Running, exchange, fetch,
    foreign::{Built, ROLLOUTS},
    stage::{Meter, Stage, Whole, free_port, workload},
};
use http_body_util::Full;
use hyper::Request;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;

#[test]
#[ignore = "needs a local cluster: make test-integrations"]
fn a_rollout_sleeps_and_a_request_wakes_it() -> Result<()> {
    with_a_sleeping_rollout(async |whole| {
        let stage = &whole.stage;
        let address = stage.reach("web", 80).await?;
        let answer = fetch(&format!("http://{address}/hello")).await?;
        ensure!(answer == "GET /hello\n", "{answer}");
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        until(rollouts(stage), "it is up", is_up).await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a local cluster: make test-integrations"]
fn new_templates_are_rolled_out_asleep_and_waking_and_every_request_is_answered() -> Result<()> {
    with_a_sleeping_rollout(async |whole| {
        let stage = &whole.stage;
        renew(stage, "asleep").await?;
        let address = stage.reach("web", 80).await?;
        used(address, async {
            whole.until_held("web", CLIENTS).await?;
            let newest = renew(stage, "waking").await?;
            stage.reaches(Phase::Awake, Mode::Serve).await?;
            until(rollouts(stage), "the newest is up", is_up).await?;
            let older = format!("of=web,rollouts-pod-template-hash!={newest}");
            stage.pods_end(&older).await?;
            let request = Request::get(format!("http://{address}/")).body(Full::default())?;
            let answer = exchange(request).await?;
            let pod = answer.headers()["x-served-by"].to_str()?.to_owned();
            ensure!(pod.starts_with(&format!("web-{newest}-")), "{pod}");
            Ok(())
        })
        .await
    })
}

/// `web`, which stays awake when it is woken.
fn with_a_sleeping_rollout(play: impl AsyncFnOnce(&Whole<'_>) -> Result<()> + Send) -> Result<()> {
    let controller = ROLLOUTS.built()?;
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let (stage, meter) = (&whole.stage, Meter::idle(place).await?);
        let _controller = start(&controller, place)?;
        let mut web = workload("web", "Rollout", 1, &stage.image);
        web["apiVersion"] = "argoproj.io/v1alpha1".into();
        web["spec"]["strategy"] = json!({"canary": {"steps": [{"setWeight": 50}]}});
        deploy(stage, web).await?;
        until(rollouts(stage), "it is up", is_up).await?;
        let target =
            json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"});
        stage
            .declare(json!({"triggers": meter.triggers(), "scaleTargetRef": target}))
            .await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage.pods_end("of=web").await?;
        stage.sleep_no_more().await?;
        play(&whole).await
    })
}

fn start(controller: &Built, place: &Place) -> Result<Running> {
    let mut command = controller.install(place)?;
    command
        .args(["--namespaced", "--leader-elect=false"])
        .arg(format!("--namespace={}", place.namespace.name()))
        .arg(format!("--metricsPort={}", free_port()))
        .arg(format!("--healthzPort={}", free_port()));
    Running::start(&mut command)
}

/// Gives the hash of a new template, once the controller has taken it.
async fn renew(stage: &Stage<'_>, version: &str) -> Result<String> {
    let template = json!({"metadata": {"annotations": {"version": version}}});
    let patch = Patch::Merge(json!({"spec": {"template": template}}));
    let before = rollouts(stage)
        .patch("web", &PatchParams::default(), &patch)
        .await?;
    let hash = |rollout: &DynamicObject| {
        let hash = rollout.data["status"]["currentPodHash"].as_str();
        hash.map(str::to_owned)
    };
    let taken = |rollout: &DynamicObject| hash(rollout) != hash(&before);
    let rollout = until(rollouts(stage), "its new template is taken", taken).await?;
    hash(&rollout).context("a template has a hash")
}

fn is_up(rollout: &DynamicObject) -> bool {
    let status = &rollout.data["status"];
    let generation = rollout.metadata.generation.map(|it| it.to_string());
    status["observedGeneration"].as_str() == generation.as_deref()
        && status["phase"] == "Healthy"
        && status["availableReplicas"] == 1
        && status["currentPodHash"] == status["stableRS"]
}

fn rollouts(stage: &Stage<'_>) -> Api<DynamicObject> {
    api(stage, "argoproj.io", "Rollout")
}
