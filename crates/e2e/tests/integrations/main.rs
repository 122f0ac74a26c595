//! Elasti beside what others run: the real KEDA, the real Argo Rollouts, and real proxies in front.

mod ingress;
mod keda;
mod rollouts;

use anyhow::{Context, Result, ensure};
use elasti_e2e::{
    exchange,
    stage::{PATIENCE, Stage, service},
};
use futures::future::try_join_all;
use http_body_util::Full;
use hyper::{Request, StatusCode, header::HOST};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};
use tokio::time::{interval, timeout};

/// What the world calls the service.
const OUTSIDE: &str = "shop.example.com";
const CLIENTS: usize = 4;
/// Between two requests of a client.
const BEAT: Duration = Duration::from_millis(50);

/// Plays while clients ask without a pause, and fails with the first that is not answered.
async fn used(address: SocketAddr, play: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::select! {
        done = play => done,
        lost = try_join_all((0..CLIENTS).map(|_| keep_asking(address))) => lost.map(drop),
    }
}

async fn keep_asking(address: SocketAddr) -> Result<()> {
    let mut beat = interval(BEAT);
    loop {
        beat.tick().await;
        let request = Request::get(format!("http://{address}/hello")).header(HOST, OUTSIDE);
        let answer = timeout(PATIENCE, exchange(request.body(Full::default())?))
            .await
            .context("no answer")??;
        ensure!(
            answer.status() == StatusCode::OK && answer.body() == "GET /hello\n",
            "{answer:?}"
        );
    }
}

/// `web` behind its service. Its pods take connections until every data plane has dropped them, as
/// applications should.
async fn deploy(stage: &Stage<'_>, mut web: Value) -> Result<()> {
    let spec = &mut web["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(6);
    spec["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 4}}});
    stage.place.put(web).await?;
    let ports = json!([{"port": 80, "targetPort": 8080}]);
    stage.place.put(service("web", "web", &ports)).await?;
    Ok(())
}

/// Waits for the end of all pods like this: until then they answer, too.
async fn gone(stage: &Stage<'_>, labels: &str) -> Result<()> {
    let params = ListParams::default().labels(labels);
    for pod in stage.api::<Pod>().list(&params).await? {
        let uid = pod.uid().context("what is stored has a uid")?;
        stage.gone::<Pod>(&pod.name_any(), &uid).await?;
    }
    Ok(())
}

fn api(stage: &Stage<'_>, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1alpha1", kind));
    let namespace = stage.place.namespace.name();
    Api::namespaced_with(stage.place.client.clone(), namespace, &resource)
}

async fn until(
    api: Api<DynamicObject>,
    what: &str,
    is_so: impl Fn(&DynamicObject) -> bool,
) -> Result<DynamicObject> {
    let is_so = |object: Option<&DynamicObject>| object.is_some_and(&is_so);
    let object = timeout(PATIENCE, await_condition(api, "web", is_so))
        .await
        .with_context(|| format!("waiting for web: {what}"))??;
    object.context("what was awaited is there")
}
