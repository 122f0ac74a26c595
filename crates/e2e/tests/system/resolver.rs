//! Operator and resolver together: what a client of a sleeping service sees.

mod again;
mod bodies;
mod crowd;
mod drain;
mod drop_in;
mod dying;
mod early;
mod families;
mod host;
mod hpa;
mod http;
mod ingress;
mod killed;
mod limits;
mod manners;
mod many;
mod mesh;
mod namesakes;
mod operator_away;
mod port_change;
mod ports;
mod probes;
mod refusing;
mod silent;
mod slow_head;
mod sse;
mod stuck;
mod swap;

use anyhow::Result;
use elasti_api::{Mode, Phase};
use elasti_e2e::stage::{Stage, gated, service, workload};
use serde_json::{Value, json};

/// `web`, asleep, behind these ports, as this makes its container.
async fn sleeping(stage: &Stage<'_>, ports: Value, make: impl FnOnce(&mut Value)) -> Result<()> {
    let mut web = workload("web", "Deployment", 0, &stage.image);
    make(&mut web["spec"]["template"]["spec"]["containers"][0]);
    asleep(stage, web, ports).await
}

/// `web`, asleep, whose pods are ready only when the test says so.
async fn sleeping_gated(stage: &Stage<'_>) -> Result<()> {
    let ports = json!([{"port": 80, "targetPort": 8080}]);
    asleep(stage, gated("web", 0, &stage.image), ports).await
}

async fn asleep(stage: &Stage<'_>, web: Value, ports: Value) -> Result<()> {
    stage.place.put(web).await?;
    stage.place.put(service("web", "web", &ports)).await?;
    stage.declare(json!({})).await?;
    stage.reaches(Phase::Asleep, Mode::Proxy).await
}
