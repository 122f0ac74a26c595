//! What happens when, from idle to asleep to the answer.

use crate::{
    apps::{APPS, NAMESPACE},
    step,
    visit::visit,
};
use anyhow::{Context, Result};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_cluster::Cluster;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, wait::await_condition, watcher},
};
use std::time::Duration;
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(120);
const WEB: &str = "web";
const ITS_PODS: &str = "app=web";

type IsReached = fn(&Pod) -> bool;

/// What a pod comes through, in order.
const STAGES: [(&str, IsReached); 3] = [
    ("pod scheduled", |pod| is_true(pod, "PodScheduled")),
    ("container started", is_running),
    ("pod ready", |pod| is_true(pod, "Ready")),
];

/// Prints moments, counted from its beginning.
struct Clock(Instant);

// === impl Clock ===

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn say(&self, text: &str) {
        println!("  {:>7.2} s  {text}", self.0.elapsed().as_secs_f64());
    }
}

pub(crate) async fn show(cluster: &Cluster) -> Result<()> {
    let client = cluster.client().await?;
    step("Nobody visits the web app: it falls asleep (after 10 s)");
    fall_asleep(&client).await?;
    step("A visitor comes");
    wake(&client).await?;
    step("The others sleep, too, and wake for whoever speaks their protocol");
    for app in APPS.iter().filter(|app| app.name != WEB) {
        until(&client, app.name, "asleep", |phase, _| {
            phase == Phase::Asleep
        })
        .await?;
        let address = address(&client, app.name).await?;
        let clock = Clock::start();
        let answer = visit(app.name, &address).await?;
        clock.say(&format!("{} answered: {}", app.name, answer.trim()));
    }
    Ok(())
}

async fn fall_asleep(client: &Client) -> Result<()> {
    let clock = Clock::start();
    clock.say("idle: Prometheus sees no requests");
    until(client, WEB, "in proxy mode", |_, mode| mode == Mode::Proxy).await?;
    clock.say("falling asleep: its service leads to the resolvers, too");
    until(client, WEB, "asleep", |phase, _| phase == Phase::Asleep).await?;
    clock.say("scaled to 0: whoever comes now is held");
    no_pods(client).await?;
    clock.say("asleep: 0 pods");
    Ok(())
}

async fn wake(client: &Client) -> Result<()> {
    let address = address(client, WEB).await?;
    let clock = Clock::start();
    clock.say(&format!(
        "GET http://{address}/hello, which a resolver holds"
    ));
    tokio::try_join!(
        async {
            let answer = visit(WEB, &address).await?;
            clock.say(&format!("answered: {}", answer.trim()));
            Ok(())
        },
        async {
            let targets: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
            let is_up = |target: Option<&Deployment>| {
                let spec = target.and_then(|target| target.spec.as_ref());
                spec.is_some_and(|spec| spec.replicas > Some(0))
            };
            within("scaled up", await_condition(targets, WEB, is_up)).await??;
            clock.say("the resolver knocked, the operator scaled 0 → 1");
            Ok(())
        },
        follow_pod(client, &clock),
        async {
            let awake = |phase, mode| phase == Phase::Awake && mode == Mode::Serve;
            until(client, WEB, "awake", awake).await?;
            clock.say("out of the path: its service leads to the pod alone");
            Ok(())
        },
    )?;
    Ok(())
}

/// The way of its first pod.
async fn follow_pod(client: &Client, clock: &Clock) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let events = watcher(pods, watcher::Config::default().labels(ITS_PODS));
    let events = events.default_backoff().applied_objects();
    pin_mut!(events);
    let mut stages = STAGES.iter().peekable();
    while stages.peek().is_some() {
        let event = within("the pod", events.next()).await?;
        let pod = event.context("the watch of the pods ended")??;
        while let Some((stage, _)) = stages.next_if(|(_, is_reached)| is_reached(&pod)) {
            clock.say(stage);
        }
    }
    Ok(())
}

fn is_running(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Running")
}

fn is_true(pod: &Pod, kind: &str) -> bool {
    let status = pod.status.iter();
    let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == kind && condition.status == "True")
}

async fn no_pods(client: &Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for pod in pods.list(&ListParams::default().labels(ITS_PODS)).await? {
        let name = pod.name_any();
        let gone = |pod: Option<&Pod>| pod.is_none();
        within("its pods gone", await_condition(pods.clone(), &name, gone)).await??;
    }
    Ok(())
}

async fn until(
    client: &Client,
    name: &str,
    what: &str,
    test: impl Fn(Phase, Mode) -> bool,
) -> Result<()> {
    let api: Api<ElastiService> = Api::namespaced(client.clone(), NAMESPACE);
    let holds = |object: Option<&ElastiService>| {
        let status = object.and_then(|object| object.status.as_ref());
        let told = status.and_then(|status| Some((status.phase?, status.mode?)));
        told.is_some_and(|(phase, mode)| test(phase, mode))
    };
    within(what, await_condition(api, name, holds)).await??;
    Ok(())
}

async fn address(client: &Client, name: &str) -> Result<String> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = services.get(name).await?.spec;
    spec.and_then(|spec| spec.cluster_ip)
        .context("a service has an address")
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T> {
    timeout(PATIENCE, work)
        .await
        .with_context(|| format!("waited in vain until it was {what}"))
}
