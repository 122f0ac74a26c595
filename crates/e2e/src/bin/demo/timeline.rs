//! What happens when, from idle to asleep to the answer.

use crate::{
    apps::{APPS, NAMESPACE, WEB},
    clock::Clock,
    step,
    visit::Visitor,
};
use anyhow::{Context, Result};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_cluster::Cluster;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, conditions::is_deleted, wait::await_condition, watcher},
};
use std::time::Duration;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(120);

type IsReached = fn(&Pod) -> bool;

/// What a pod comes through, in order.
const STAGES: [(&str, IsReached); 3] = [
    ("pod scheduled", |pod| is_true(pod, "PodScheduled")),
    ("container started", is_running),
    ("pod ready", |pod| is_true(pod, "Ready")),
];

pub(crate) async fn show(cluster: &Cluster) -> Result<()> {
    let client = cluster.client().await?;
    let mut visitors = Vec::new();
    for app in &APPS {
        visitors.push((app, Visitor::comes(&client, app.question).await?));
    }
    let mut visitors = visitors.into_iter();
    let (_, first) = visitors.next().context("there is a web app")?;
    step("Nobody visits the web app: it falls asleep (after 10 s)");
    fall_asleep(&client).await?;
    step("A visitor comes");
    wake(&client, first).await?;
    step("The others sleep, too, and wake for whoever speaks their protocol");
    for (app, visitor) in visitors {
        until(&client, app.name, "asleep", is_asleep).await?;
        no_pods(&client, app.name).await?;
        let clock = Clock::start();
        let answer = within("answered", visitor.asks()).await??;
        clock.say(&format!("{} answered: {answer}", app.name));
    }
    Ok(())
}

async fn fall_asleep(client: &Client) -> Result<()> {
    let clock = Clock::start();
    clock.say("idle: Prometheus sees no requests");
    let falls = |phase, mode| phase == Phase::FallingAsleep && mode == Mode::Proxy;
    let begins = |phase, mode| falls(phase, mode) || is_asleep(phase, mode);
    let (phase, mode) = until(client, WEB, "falling asleep", begins).await?;
    // It may sleep since an earlier run.
    if falls(phase, mode) {
        clock.say("falling asleep: its service leads to the resolvers, too");
        until(client, WEB, "asleep", is_asleep).await?;
        clock.say("scaled to 0: whoever comes now is held");
    }
    no_pods(client, WEB).await?;
    clock.say("asleep: 0 pods");
    Ok(())
}

async fn wake(client: &Client, visitor: Visitor) -> Result<()> {
    let clock = Clock::start();
    clock.say("GET http://web/hello, which a resolver holds");
    tokio::try_join!(
        async {
            let answer = within("answered", visitor.asks()).await??;
            clock.say(&format!("answered: {answer}"));
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
            follow_pod(client, &clock).await
        },
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
    let events = watcher(pods, watcher::Config::default().labels(&its_pods(WEB)));
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

fn is_asleep(phase: Phase, _: Mode) -> bool {
    phase == Phase::Asleep
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

fn its_pods(app: &str) -> String {
    format!("app={app}")
}

/// Until then one of them may still be led to.
async fn no_pods(client: &Client, app: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let its_own = ListParams::default().labels(&its_pods(app));
    for pod in pods.list(&its_own).await? {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        let gone = await_condition(pods.clone(), &name, is_deleted(&uid));
        within("without pods", gone).await??;
    }
    Ok(())
}

/// What it says when it says so.
async fn until(
    client: &Client,
    name: &str,
    what: &str,
    test: impl Fn(Phase, Mode) -> bool,
) -> Result<(Phase, Mode)> {
    let api: Api<ElastiService> = Api::namespaced(client.clone(), NAMESPACE);
    let holds = |object: Option<&ElastiService>| {
        object
            .and_then(says)
            .is_some_and(|(phase, mode)| test(phase, mode))
    };
    let object = within(what, await_condition(api, name, holds)).await??;
    object.as_ref().and_then(says).context("it says something")
}

fn says(object: &ElastiService) -> Option<(Phase, Mode)> {
    let status = object.status.as_ref()?;
    Some((status.phase?, status.mode?))
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T> {
    timeout(PATIENCE, work)
        .await
        .with_context(|| format!("waited in vain until it was {what}"))
}
