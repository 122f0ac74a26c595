use super::{canary::Canary, ledger::now, loss::Failure};
use crate::{
    is_alive, kill_pod_process,
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
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};

const NAMESPACE: &str = "elasti";
const OPERATOR: &str = "elasti-operator-controller-manager";
const RESOLVER: &str = "elasti-resolver";
const REPLICAS: i32 = 2;
/// Of kube-controller-manager the kernel keeps so much.
const CONTROLLERS: &str = "kube-controller";
/// In which everybody knows of a disaster.
const CALM: Duration = Duration::from_secs(3);
/// The next comes within this.
const UNREST: Duration = Duration::from_secs(6);
/// A process that is no child of ours ends without an event.
const GLANCE: Duration = Duration::from_millis(5);
/// In which whoever spoke with it has noticed.
const NEWS: Duration = Duration::from_secs(2);
/// In which every data plane has dropped it; until then it refuses whom they lead to it.
const DROPPED: Duration = Duration::from_secs(5);
/// Recovery has no event: its witness may be what recovers.
const LOOK: Duration = Duration::from_millis(200);

/// Parts of the system that are killed, each when the one before is whole again, and all of them in every round.
#[derive(Default)]
pub(super) struct Disasters {
    happened: Cell<usize>,
    rounds: Cell<usize>,
    /// When resolvers that were killed took their last connection; none for one that may still.
    ended: RefCell<Vec<Option<Instant>>>,
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
        self.happened.get() > 0
    }

    /// In each of which everything was killed once.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.get()
    }

    /// A resolver that is killed takes the connections with it that it has then, and refuses others until no data plane
    /// leads to it; nobody can help that.
    pub(super) fn explain(&self, failure: Failure, began: Instant) -> bool {
        let ended = self.ended.borrow();
        ended.iter().any(|ended| match (failure, ended) {
            (Failure::Cut | Failure::Refused, None) => true,
            (Failure::Cut, Some(ended)) => began < *ended && ended.elapsed() < NEWS,
            (Failure::Refused, Some(ended)) => ended.elapsed() < DROPPED,
            (Failure::Silence | Failure::Wrong, _) => false,
        })
    }

    /// Never ends.
    pub(super) async fn happen(&self, canary: &Canary<'_>, stage: &Stage<'_>, mut random: Rng) {
        loop {
            let mut round = Disaster::ALL;
            random.shuffle(&mut round);
            for disaster in round {
                // All are drawn, whoever needs them: the next draw is the same, whatever happens.
                let (pause, lot) = (random.f64(), random.usize(..));
                sleep(UNREST.mul_f64(pause)).await;
                self.befall(disaster, canary, stage, lot).await;
            }
            self.rounds.update(|rounds| rounds + 1);
        }
    }

    async fn befall(&self, disaster: Disaster, canary: &Canary<'_>, stage: &Stage<'_>, lot: usize) {
        let whom = loop {
            match self.strike(disaster, stage, lot).await {
                Ok(whom) => break whom,
                Err(error) => println!("  {:.3}: {disaster:?} is spared: {error:#}", now()),
            }
            sleep(LOOK).await;
        };
        println!("  {:.3}: {disaster:?} is killed ({whom})", now());
        self.happened.update(|happened| happened + 1);
        whole(stage, canary).await;
        if disaster.strikes_pods() {
            replace(stage, &whom).await;
            whole(stage, canary).await;
        }
    }

    /// Who was killed.
    async fn strike(&self, disaster: Disaster, stage: &Stage<'_>, lot: usize) -> Result<String> {
        match disaster {
            Disaster::Leader => kill_pod(leader(stage).await?),
            Disaster::Resolver => {
                let whom = any_resolver(stage, lot).await?;
                let id = kill_pod_process(&whom)?;
                self.ended.borrow_mut().push(None);
                while is_alive(id) {
                    sleep(GLANCE).await;
                }
                if let Some(last) = self.ended.borrow_mut().last_mut() {
                    *last = Some(Instant::now());
                }
                Ok(whom)
            }
            // As on a machine that starts anew. Controllers that lose an API server every minute ask again ever later, and
            // lead clients to pods that have ended, with us or without.
            Disaster::ApiServer => {
                kill_component(stage, CONTROLLERS)?;
                kill_component(stage, "kube-scheduler")?;
                kill_component(stage, "kube-apiserver")
            }
            Disaster::Proxy => {
                no_chain_is_empty(stage).await?;
                kill_component(stage, "kube-proxy")
            }
            Disaster::Etcd => kill_component(stage, "etcd"),
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

async fn any_resolver(stage: &Stage<'_>, lot: usize) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(stage.place.client.clone(), NAMESPACE);
    let resolvers = ListParams::default().labels("app=elasti-resolver");
    let mut resolvers = pods.list(&resolvers).await?.items;
    resolvers.sort_by_key(ResourceExt::name_any);
    let turn = lot.checked_rem(resolvers.len());
    let chosen = &resolvers[turn.context("there is none")?];
    Ok(chosen.name_any())
}
