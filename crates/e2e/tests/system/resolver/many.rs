use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    establish, fetch, scalable,
    stage::{PATIENCE, Stage, Whole},
};
use futures::{
    StreamExt, TryStreamExt,
    future::{try_join, try_join_all},
    stream,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use std::env;
use tokio::time::timeout;

/// Unless `ELASTI_E2E_SERVICES` says otherwise.
const SERVICES: usize = 100;
const AT_ONCE: usize = 16;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn many_services_woken_at_once_all_answer() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        let kind = scalable("e2e.elasti.local", "Sleeper", "sleepers")?;
        establish(stage.place.cluster, &stage.place.client, &kind).await?;
        stage.deploy_as("echo", "Deployment", 1).await?;
        let count = env::var("ELASTI_E2E_SERVICES").map_or(Ok(SERVICES), |text| text.parse())?;
        let names: Vec<String> = (0..count).map(|n| format!("web-{n}")).collect();
        stream::iter(&names)
            .map(|name| sleeping(stage, name))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        let mut urls = Vec::new();
        for name in &names {
            stage.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
            urls.push(format!("http://{}/{name}", stage.reach(name, 80).await?));
        }
        let answers = urls.iter().zip(&names).map(async |(url, name)| {
            let answer = fetch(url).await?;
            ensure!(answer == format!("GET /{name}\n"), "{name} got {answer}");
            Ok(())
        });
        try_join(try_join_all(answers), wake(stage, &names)).await?;
        Ok(())
    })
}

/// One pod answers for all: it is of a service as soon as it carries the service's label.
async fn wake(stage: &Stage<'_>, names: &[String]) -> Result<()> {
    let targets = targets(stage);
    let has_one = |target: Option<&DynamicObject>| {
        target.is_some_and(|target| target.data["spec"]["replicas"] == 1)
    };
    for name in names {
        let scaled = await_condition(targets.clone(), name, has_one);
        let scaled = timeout(PATIENCE, scaled).await;
        scaled.with_context(|| format!("waiting for {name} to be scaled"))??;
    }
    let labels: Value = names.iter().map(|name| (name.clone(), "awake")).collect();
    let pod = stage.target("echo").await?.pod;
    let patch = json!({"metadata": {"labels": labels}});
    stage.amend_object::<Pod>(&pod, patch).await
}

async fn sleeping(stage: &Stage<'_>, name: &str) -> Result<()> {
    let ports = json!([{"port": 80, "targetPort": 8080}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {name: "awake"}, "ports": ports},
    });
    let target = json!({
        "apiVersion": "e2e.elasti.local/v1", "kind": "Sleeper", "metadata": {"name": name},
        "spec": {"replicas": 0},
    });
    stage.place.put(service).await?;
    stage.place.put(target).await?;
    let target = json!({"apiVersion": "e2e.elasti.local/v1", "kind": "Sleeper", "name": name});
    stage
        .declare_as(name, json!({"scaleTargetRef": target}))
        .await
}

fn targets(stage: &Stage<'_>) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("e2e.elasti.local", "v1", "Sleeper");
    let resource = ApiResource::from_gvk_with_plural(&kind, "sleepers");
    let namespace = stage.place.namespace.name();
    Api::namespaced_with(stage.place.client.clone(), namespace, &resource)
}
