//! Elasti beside what others run: the real KEDA, the real Argo Rollouts, and real proxies in front.

mod ingress;
mod keda;
mod rollouts;

use anyhow::{Context, Result, ensure};
use elasti_e2e::{
    exchange,
    stage::{PATIENCE, Stage, courteous},
};
use futures::future::try_join_all;
use http_body_util::Full;
use hyper::{Request, StatusCode, header::HOST};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
    runtime::wait::await_condition,
};
use serde_json::Value;
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

/// `web` behind its service, with pods that end as applications should.
async fn deploy(stage: &Stage<'_>, web: Value) -> Result<()> {
    stage.serve("web", courteous(web, 4)).await
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
