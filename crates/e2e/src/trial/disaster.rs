use super::canary::Canary;
use crate::{
    kill_pod_process,
    stage::{PATIENCE, Stage},
};
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
    runtime::{conditions::is_deleted, wait::await_condition},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{cell::RefCell, time::Duration};
use tokio::time::{Instant, sleep, timeout};

const NAMESPACE: &str = "elasti";
const OPERATOR: &str = "elasti-operator-controller-manager";
const RESOLVER: &str = "elasti-resolver";
const REPLICAS: i32 = 2;
/// In which everybody knows of a disaster.
const CALM: Duration = Duration::from_secs(3);
/// The next comes within this.
const UNREST: Duration = Duration::from_secs(6);
/// In which every data plane has learnt that a resolver is no more.
const NEWS: Duration = Duration::from_secs(10);
/// Recovery has no event: its witness may be what recovers.
const LOOK: Duration = Duration::from_millis(200);

/// Parts of the system that are killed, each when the one before is whole again.
#[derive(Default)]
pub(super) struct Disasters {
    happened: RefCell<Vec<(Instant, Disaster)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disaster {
    Leader,
    Resolver,
    ApiServer,
    Proxy,
    Etcd,
}

// === impl Disasters ===

impl Disasters {
    pub(super) fn happened(&self) -> bool {
        !self.happened.borrow().is_empty()
    }

    /// A resolver that is killed takes the connections that it holds with it, and nobody can help that.
    pub(super) fn explain(&self, request: Instant) -> bool {
        let happened = self.happened.borrow();
        let mut killed = happened
            .iter()
            .filter(|(_, what)| *what == Disaster::Resolver);
        killed.any(|(when, _)| *when + NEWS >= request)
    }

    /// Never ends.
    pub(super) async fn happen(&self, canary: &Canary<'_>, stage: &Stage<'_>, mut random: Rng) {
        let beginning = Instant::now();
        loop {
            sleep(UNREST.mul_f64(random.f64())).await;
            let disaster = Disaster::ALL[random.usize(..Disaster::ALL.len())];
            let after = beginning.elapsed().as_secs_f64();
            self.happened.borrow_mut().push((Instant::now(), disaster));
            match disaster.strike(stage, &mut random).await {
                Ok(whom) => {
                    println!("  {after:6.1} s: {disaster:?} is killed ({whom})");
                    whole(stage, canary).await;
                    if disaster.strikes_pods() {
                        replace(stage, &whom).await;
                    }
                }
                Err(error) => println!("  {after:6.1} s: {disaster:?} is spared: {error:#}"),
            }
            whole(stage, canary).await;
        }
    }
}

// === impl Disaster ===

impl Disaster {
    const ALL: [Self; 5] = [
        Self::Leader,
        Self::Resolver,
        Self::ApiServer,
        Self::Proxy,
        Self::Etcd,
    ];

    fn strikes_pods(self) -> bool {
        matches!(self, Self::Leader | Self::Resolver)
    }

    /// Who was killed.
    async fn strike(self, stage: &Stage<'_>, random: &mut Rng) -> Result<String> {
        match self {
            Self::Leader => kill_pod(leader(stage).await?),
            Self::Resolver => kill_pod(any_resolver(stage, random).await?),
            Self::ApiServer => kill_component(stage, "kube-apiserver"),
            Self::Proxy => {
                no_chain_is_empty(stage).await?;
                kill_component(stage, "kube-proxy")
            }
            Self::Etcd => kill_component(stage, "etcd"),
        }
    }
}

fn kill_pod(pod: String) -> Result<String> {
    kill_pod_process(&pod)?;
    Ok(pod)
}

/// One that is killed often is started ever later; another takes its place, and this one ends in order.
async fn replace(stage: &Stage<'_>, pod: &str) {
    let pods: Api<Pod> = Api::namespaced(stage.place.client.clone(), NAMESPACE);
    let Ok(deleted) = pods.delete(pod, &DeleteParams::default()).await else {
        return;
    };
    if let Some(uid) = deleted.left().and_then(|pod| pod.uid()) {
        let gone = await_condition(pods, pod, is_deleted(&uid));
        let _ = timeout(PATIENCE, gone).await;
    }
}

fn kill_component(stage: &Stage<'_>, component: &str) -> Result<String> {
    let processes = stage.place.cluster.processes();
    let (id, name) = processes
        .into_iter()
        .find(|(_, name)| name.starts_with(component))
        .with_context(|| format!("{component} does not run"))?;
    kill(Pid::from_raw(id), Signal::SIGKILL)?;
    Ok(format!("{name}, process {id}"))
}

/// kube-proxy empties the chain of an endpoint that leaves, and removes it with a later change. If it starts anew in
/// between, and the endpoint is back, it takes the empty chain for a good one, and refuses connections: docs/limits.md.
async fn no_chain_is_empty(stage: &Stage<'_>) -> Result<()> {
    while has_empty_chain(stage, "ip")? || has_empty_chain(stage, "ip6")? {
        sleep(LOOK).await;
    }
    Ok(())
}

fn has_empty_chain(stage: &Stage<'_>, family: &str) -> Result<bool> {
    let mut nft = stage.place.cluster.command("nft")?;
    let listed = nft.args(["list", "table", family, "kube-proxy"]).output()?;
    ensure!(listed.status.success(), "nft: {}", listed.status);
    let rules = String::from_utf8(listed.stdout)?;
    let mut chains = rules.split("chain endpoint-").skip(1);
    Ok(chains.any(|chain| {
        let body = chain.split_once('{').map(|(_, body)| body.trim_start());
        body.is_some_and(|body| body.starts_with('}'))
    }))
}

async fn whole(stage: &Stage<'_>, canary: &Canary<'_>) {
    // What was just killed may still be thought to run.
    sleep(CALM).await;
    while !is_whole(stage).await {
        sleep(LOOK).await;
    }
    canary.is_heard().await;
}

async fn is_whole(stage: &Stage<'_>) -> bool {
    let deployments: Api<Deployment> = Api::namespaced(stage.place.client.clone(), NAMESPACE);
    for name in [OPERATOR, RESOLVER] {
        let Ok(deployment) = deployments.get_status(name).await else {
            return false;
        };
        let status = deployment.status.unwrap_or_default();
        if status.ready_replicas != Some(REPLICAS) {
            return false;
        }
    }
    leader(stage).await.is_ok()
}

async fn leader(stage: &Stage<'_>) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(stage.place.client.clone(), NAMESPACE);
    let lease = leases.get("elasti-operator").await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    holder.context("nobody leads")
}

async fn any_resolver(stage: &Stage<'_>, random: &mut Rng) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(stage.place.client.clone(), NAMESPACE);
    let resolvers = ListParams::default().labels("app=elasti-resolver");
    let mut resolvers = pods.list(&resolvers).await?.items;
    resolvers.sort_by_key(ResourceExt::name_any);
    let chosen = random.choice(&resolvers).context("there is none")?;
    Ok(chosen.name_any())
}
