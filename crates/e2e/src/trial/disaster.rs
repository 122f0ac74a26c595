use crate::{kill_pod_process, stage::Stage};
use anyhow::{Context, Result};
use fastrand::Rng;
use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod};
use kube::{Api, ResourceExt, api::ListParams};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{cell::RefCell, time::Duration};
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "elasti";
const OPERATOR: &str = "elasti-operator-controller-manager";
const RESOLVER: &str = "elasti-resolver";
const CALM: Duration = Duration::from_secs(2);
const UNREST: Duration = Duration::from_secs(6);
/// In which every data plane has learnt that a resolver is no more.
const NEWS: Duration = Duration::from_secs(5);

/// Parts of the system that are killed, one after the other.
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

    pub(super) async fn happen(&self, stage: &Stage<'_>, mut random: Rng) -> Result<()> {
        let beginning = Instant::now();
        loop {
            sleep(CALM + UNREST.mul_f64(random.f64())).await;
            let disaster = Disaster::ALL[random.usize(..Disaster::ALL.len())];
            let after = beginning.elapsed().as_secs_f64();
            // While the API server is away nobody knows who leads.
            match disaster.strike(stage, &mut random).await {
                Ok(Some(whom)) => {
                    println!("  {after:6.1} s: {disaster:?} is killed ({whom})");
                    self.happened.borrow_mut().push((Instant::now(), disaster));
                }
                Ok(None) => println!("  {after:6.1} s: {disaster:?} is spared, one is missing"),
                Err(error) => println!("  {after:6.1} s: {disaster:?} is spared: {error:#}"),
            }
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

    /// Who was killed: nobody where nobody would be left.
    async fn strike(self, stage: &Stage<'_>, random: &mut Rng) -> Result<Option<String>> {
        match self {
            Self::Leader if has_all(stage, OPERATOR).await? => {
                let leader = leader(stage).await?;
                kill_pod_process(&leader)?;
                Ok(Some(leader))
            }
            Self::Resolver if has_all(stage, RESOLVER).await? => {
                let resolver = any_resolver(stage, random).await?;
                kill_pod_process(&resolver)?;
                Ok(Some(resolver))
            }
            Self::Leader | Self::Resolver => Ok(None),
            Self::ApiServer => kill_component(stage, "kube-apiserver"),
            Self::Proxy => kill_component(stage, "kube-proxy"),
            Self::Etcd => kill_component(stage, "etcd"),
        }
    }
}

fn kill_component(stage: &Stage<'_>, component: &str) -> Result<Option<String>> {
    let processes = stage.place.cluster.processes();
    let (id, name) = processes
        .into_iter()
        .find(|(_, name)| name.starts_with(component))
        .with_context(|| format!("{component} does not run"))?;
    kill(Pid::from_raw(id), Signal::SIGKILL)?;
    Ok(Some(format!("{name}, process {id}")))
}

async fn has_all(stage: &Stage<'_>, name: &str) -> Result<bool> {
    let deployments: Api<Deployment> = Api::namespaced(stage.place.client.clone(), NAMESPACE);
    let status = deployments.get_status(name).await?.status;
    Ok(status.is_some_and(|status| status.ready_replicas == status.replicas))
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
