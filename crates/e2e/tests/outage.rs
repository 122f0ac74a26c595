//! Bad days of a whole cluster, each on a cluster of its own.

use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, FINALIZER, Mode, Phase, names};
use elasti_e2e::{
    LONGEST, Place, fetch,
    stage::{Operator, PATIENCE, Stage, Whole, gated, metric, service},
    test_alone,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject},
    runtime::{conditions::is_deleted, wait::await_condition},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time;

/// The shape that anything fits into, as before there was validation.
const SHAPELESS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: elastiservices.elasti.truefoundry.com}
spec:
  group: elasti.truefoundry.com
  scope: Namespaced
  names: {kind: ElastiService, plural: elastiservices, singular: elastiservice}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn an_api_server_that_restarts_changes_nothing_and_loses_no_knock() -> Result<()> {
    test_alone("restart", LONGEST, async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let before = Sleeping::of(&stage).await?;
        kill_api_server(place)?;
        recovered(place, &operator).await?;
        let after = Sleeping::of(&stage).await?;
        ensure!(before == after, "{before:?} became {after:?}");

        kill_api_server(place)?;
        operator
            .knock("web")
            .await
            .context("answered while the API server is away")?;
        recovered(place, &operator).await?;
        stage
            .reaches(Phase::Awake, Mode::Serve)
            .await
            .context("nobody knocked again")
    })
}

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn requests_wait_while_the_api_server_is_away_and_are_answered_after_it() -> Result<()> {
    test_alone("hold", LONGEST, async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        place.put(gated("web", 0, &stage.image)).await?;
        let ports = json!([{"port": 80, "targetPort": 8080}]);
        place.put(service("web", "web", &ports)).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let url = format!("http://{}/", stage.reach("web", 80).await?);
        let outage = async {
            whole.until_held("web", 1).await?;
            kill_api_server(place)?;
            let (answer, opened) = tokio::join!(fetch(&url), async {
                whole.until_held("web", 2).await?;
                let operator = whole.operator.as_ref().context("it runs")?;
                recovered(place, operator).await?;
                stage.open("web").await
            });
            opened?;
            answer
        };
        let (before, during) = tokio::join!(fetch(&url), outage);
        ensure!(during? == "GET /\n");
        ensure!(before? == "GET /\n");
        Ok(())
    })
}

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn one_stored_before_validation_is_told_so_and_harms_no_other() -> Result<()> {
    test_alone("malformed", LONGEST, async |place| {
        let stage = Stage::set(place).await?;
        stage.install(SHAPELESS).await?;
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        for (name, spec) in [
            ("serviceless", json!({"scaleTargetRef": target})),
            (
                "aimless",
                json!({"service": "web", "scaleTargetRef": "web"}),
            ),
            (
                "countless",
                json!({"service": "web", "scaleTargetRef": target, "minTargetReplicas": "two"}),
            ),
        ] {
            let mut object = elasti_service(name, spec);
            object["metadata"]["finalizers"] = json!([FINALIZER]);
            place.put(object).await?;
        }
        // The API server takes no status for this one, and nobody's finalizers.
        let spec = json!({"service": 5, "scaleTargetRef": target});
        place.put(elasti_service("untellable", spec)).await?;
        stage.deploy_as("timeless", "Deployment", 0).await?;
        place.put(timeless()).await?;
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        for name in ["serviceless", "aimless", "countless"] {
            malformed_is_told(&stage, name).await?;
        }
        let failed = [("error", "unreachable")];
        let failed = metric(
            &operator.metrics().await?,
            "elasti_operator_reconcile_count",
            &failed,
        );
        ensure!(failed.is_none(), "what was told is taken for a failure");
        stage
            .reaches_as("timeless", Phase::Awake, Mode::Serve)
            .await?;
        stage
            .condition("timeless", "Idle", "Unknown", "InvalidEnabledPeriod")
            .await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        operator.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        for name in ["serviceless", "aimless", "countless"] {
            malformed_is_deleted(&stage, name).await?;
        }
        Ok(())
    })
}

/// Enabled at no time that there is.
fn timeless() -> Value {
    let prometheus =
        json!({"serverAddress": "http://127.0.0.1:1", "query": "up", "threshold": "1"});
    let spec = json!({
        "service": "timeless",
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "timeless"},
        "enabledPeriod": {"schedule": "at night", "duration": "24h"},
        "triggers": [{"type": "prometheus", "metadata": prometheus}],
    });
    elasti_service("timeless", spec)
}

fn elasti_service(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// Not by its type, into which it does not fit.
fn shapeless(stage: &Stage<'_>) -> Api<DynamicObject> {
    let namespace = stage.place.namespace.name();
    let resource = ApiResource::erase::<ElastiService>(&());
    Api::namespaced_with(stage.place.client.clone(), namespace, &resource)
}

async fn malformed_is_deleted(stage: &Stage<'_>, name: &str) -> Result<()> {
    let api = shapeless(stage);
    let uid = api.get(name).await?.uid().context("it has a uid")?;
    api.delete(name, &DeleteParams::default()).await?;
    time::timeout(PATIENCE, await_condition(api, name, is_deleted(&uid)))
        .await
        .with_context(|| format!("waiting for the end of {name}"))??;
    Ok(())
}

async fn malformed_is_told(stage: &Stage<'_>, name: &str) -> Result<()> {
    let is_told = |object: Option<&DynamicObject>| {
        let conditions = object.and_then(|object| object.data["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|condition| {
            (
                &condition["type"],
                &condition["status"],
                &condition["reason"],
            ) == (&json!("Ready"), &json!("False"), &json!("Malformed"))
        })
    };
    time::timeout(PATIENCE, await_condition(shapeless(stage), name, is_told))
        .await
        .with_context(|| format!("waiting for Ready=False (Malformed) of {name}"))??;
    Ok(())
}

/// What must not change.
#[derive(Debug, PartialEq)]
struct Sleeping {
    generation: i64,
    phase: Option<Phase>,
    slice: (Option<String>, Option<String>),
}

// === impl Sleeping ===

impl Sleeping {
    async fn of(stage: &Stage<'_>) -> Result<Self> {
        let slices = stage.api::<EndpointSlice>();
        let slice = slices.get(&names::resolver_slice("web")).await?;
        Ok(Self {
            generation: stage.generation("web").await?,
            phase: stage.status("web").await?.phase,
            slice: (slice.uid(), slice.resource_version()),
        })
    }
}

fn kill_api_server(place: &Place) -> Result<()> {
    let processes = place.cluster.processes();
    let (id, _) = processes
        .iter()
        .find(|(_, name)| name.starts_with("kube-apiserver"))
        .with_context(|| format!("no API server among {processes:?}"))?;
    Ok(kill(Pid::from_raw(*id), Signal::SIGKILL)?)
}

/// The API server answers, and the operator is in step with it.
async fn recovered(place: &Place, operator: &Operator) -> Result<()> {
    let recovery = async {
        while place.client.apiserver_version().await.is_err() || !is_in_step(operator).await? {
            time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    time::timeout(PATIENCE, recovery)
        .await
        .context("waiting for the recovery")?
}

async fn is_in_step(operator: &Operator) -> Result<bool> {
    let text = operator.metrics().await?;
    let sum = metric(&text, "elasti_operator_watch_healthy", &[]).context("no metric of health")?;
    let kinds = text
        .lines()
        .filter(|line| line.starts_with("elasti_operator_watch_healthy{"));
    Ok(sum as usize == kinds.count())
}
