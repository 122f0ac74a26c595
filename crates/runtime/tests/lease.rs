//! Leader election on a real API server.

use anyhow::{Context, Result, ensure};
use elasti_e2e::Place;
use elasti_runtime::lease::{Claim, Leadership, Terms};
use k8s_openapi::api::{
    coordination::v1::{Lease, LeaseSpec},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use std::{pin::pin, time::Duration};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

const LEASE: &str = "leader";
const DURATION: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(500);

struct Candidate {
    claim: Claim,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

fn leadership(client: &Client, place: &Place, identity: &str, terms: Terms) -> Leadership {
    Leadership::new(
        client.clone(),
        place.namespace.name(),
        LEASE,
        identity,
        terms,
    )
}

fn short() -> Result<Terms> {
    Ok(Terms::new(DURATION, DEADLINE, RETRY)?)
}

fn stand(client: &Client, place: &Place, identity: &str) -> Result<Candidate> {
    Ok(stand_by(short()?, client, place, identity))
}

fn stand_by(terms: Terms, client: &Client, place: &Place, identity: &str) -> Candidate {
    let leadership = leadership(client, place, identity, terms);
    let shutdown = CancellationToken::new();
    Candidate {
        claim: leadership.claim(),
        running: tokio::spawn(leadership.run(shutdown.clone())),
        shutdown,
    }
}

fn leases(place: &Place) -> Api<Lease> {
    Api::namespaced(place.client.clone(), place.namespace.name())
}

async fn record(place: &Place) -> Result<LeaseSpec> {
    leases(place).get(LEASE).await?.spec.context("a record")
}

/// How long it took until the claim held.
async fn until_leading(claim: &Claim) -> Result<Duration> {
    told(claim, true).await
}

async fn told(claim: &Claim, leads: bool) -> Result<Duration> {
    let began = Instant::now();
    let mut watch = claim.watch();
    timeout(2 * DURATION, watch.wait_for(|now| *now == leads)).await??;
    ensure!(claim.holds() == leads, "what was told is so");
    Ok(began.elapsed())
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn of_three_candidates_one_leads() -> Result<()> {
    elasti_e2e::test(async |place| {
        let three = [
            stand(&place.client, place, "a")?,
            stand(&place.client, place, "b")?,
            stand(&place.client, place, "c")?,
        ];
        let began = Instant::now();
        let (mut leaders, mut looks) = (Vec::new(), 0);
        while began.elapsed() < 2 * DURATION {
            let leading: Vec<_> = (0..3).filter(|n| three[*n].claim.holds()).collect();
            ensure!(leading.len() <= 1, "two lead: {leading:?}");
            leaders.extend(leading);
            looks += 1;
            sleep(Duration::from_millis(5)).await;
        }
        ensure!(
            leaders.len() > looks * 9 / 10,
            "there is a leader: {} of {looks}",
            leaders.len()
        );
        leaders.dedup();
        ensure!(leaders.len() == 1, "and it stays: {leaders:?}");

        let record = record(place).await?;
        assert_eq!(
            record.holder_identity.as_deref(),
            Some(["a", "b", "c"][leaders[0]])
        );
        assert_eq!(record.lease_transitions, Some(0));
        assert_eq!(record.lease_duration_seconds, Some(3));
        assert!(record.renew_time > record.acquire_time);
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn never_do_two_lead_while_leaders_come_and_go() -> Result<()> {
    elasti_e2e::test(async |place| {
        let mut candidates: Vec<Candidate> =
            (0..3).map(|n| newcomer(place, n)).collect::<Result<_>>()?;
        for round in 3..12 {
            let leader = the_leader(&candidates).await?;
            let gone = candidates.swap_remove(leader);
            match round % 4 {
                0 => gone.running.abort(),
                _ => gone.shutdown.cancel(),
            }
            candidates.push(newcomer(place, round)?);
        }
        the_leader(&candidates).await?;
        assert_eq!(
            record(place).await?.lease_transitions,
            Some(9),
            "each one followed another"
        );
        Ok(())
    })
}

fn newcomer(place: &Place, number: usize) -> Result<Candidate> {
    stand(&place.client, place, &number.to_string())
}

async fn the_leader(candidates: &[Candidate]) -> Result<usize> {
    let began = Instant::now();
    while began.elapsed() < 2 * DURATION {
        let mut leading = (0..candidates.len()).filter(|n| candidates[*n].claim.holds());
        if let Some(leader) = leading.next() {
            ensure!(leading.next().is_none(), "two lead");
            return Ok(leader);
        }
        sleep(Duration::from_millis(1)).await;
    }
    anyhow::bail!("nobody leads")
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_killed_leader_is_replaced_within_the_lease_time() -> Result<()> {
    elasti_e2e::test(async |place| {
        let first = stand(&place.client, place, "first")?;
        until_leading(&first.claim).await?;
        let second = stand(&place.client, place, "second")?;
        sleep(DURATION).await;
        ensure!(first.claim.holds() && !second.claim.holds());

        first.running.abort();
        let took = until_leading(&second.claim).await?;
        eprintln!("replaced after {took:?}");
        ensure!(took < DURATION + RETRY, "took {took:?}");
        ensure!(took > DURATION - 2 * RETRY, "not before its time: {took:?}");
        ensure!(!first.claim.holds());
        assert_eq!(record(place).await?.lease_transitions, Some(1));
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_lease_given_back_is_taken_over_at_once() -> Result<()> {
    elasti_e2e::test(async |place| {
        let first = stand_by(Terms::default(), &place.client, place, "first");
        until_leading(&first.claim).await?;
        let second = stand_by(Terms::default(), &place.client, place, "second");
        sleep(RETRY).await;

        first.shutdown.cancel();
        let took = until_leading(&second.claim).await?;
        eprintln!("taken over after {took:?}");
        ensure!(took < Duration::from_secs(1), "took {took:?}");
        first.running.await?;

        second.shutdown.cancel();
        second.running.await?;
        ensure!(!second.claim.holds());
        assert_eq!(record(place).await?.holder_identity.as_deref(), Some(""));
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_leader_stopped_past_its_lease_knows_it_before_any_call() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stopped = leadership(&place.client, place, "stopped", short()?);
        let claim = stopped.claim();
        let mut running = pin!(stopped.run(CancellationToken::new()));
        tokio::select! {
            () = &mut running => {}
            led = until_leading(&claim) => { led?; }
        }
        let other = stand(&place.client, place, "other")?;
        // Nothing polls it from here on, as nothing runs in a process that got SIGSTOP.
        sleep(DEADLINE).await;
        ensure!(
            !claim.holds() && *claim.watch().borrow(),
            "its clock knows, its tasks do not"
        );
        until_leading(&other.claim).await?;

        let resumed = timeout(DURATION, running).await;
        ensure!(resumed.is_err() && !claim.holds() && !*claim.watch().borrow());
        ensure!(other.claim.holds(), "the new leader stays");
        assert_eq!(
            record(place).await?.holder_identity.as_deref(),
            Some("other")
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn the_rest_of_the_record_and_a_strangers_change_to_it_stay() -> Result<()> {
    elasti_e2e::test(async |place| {
        let candidate = stand(&place.client, place, "one")?;
        until_leading(&candidate.claim).await?;
        let labels = json!({"metadata": {"labels": {"team": "blue"}}});
        let patch = Patch::Merge(labels);
        leases(place)
            .patch(LEASE, &PatchParams::default(), &patch)
            .await?;
        let before = record(place).await?;
        sleep(DEADLINE).await;

        ensure!(candidate.claim.holds(), "a conflict does not end a claim");
        let lease = leases(place).get(LEASE).await?;
        assert_eq!(lease.metadata.labels.context("labels")?["team"], "blue");
        let after = lease.spec.context("a record")?;
        assert!(after.renew_time > before.renew_time);
        assert_eq!(after.acquire_time, before.acquire_time);
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_lease_that_was_deleted_is_made_anew() -> Result<()> {
    elasti_e2e::test(async |place| {
        let candidate = stand(&place.client, place, "one")?;
        until_leading(&candidate.claim).await?;
        leases(place)
            .delete(LEASE, &DeleteParams::default())
            .await?;
        sleep(DEADLINE).await;
        ensure!(candidate.claim.holds());
        assert_eq!(record(place).await?.holder_identity.as_deref(), Some("one"));
        Ok(())
    })
}

/// With the permissions that election cannot do without, and no others: it may not watch.
#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_leader_refused_by_the_api_server_leads_to_its_deadline_and_again_when_it_may() -> Result<()> {
    elasti_e2e::test(async |place| {
        place.apply(ROLE)?;
        bind(place)?;
        let candidate = stand(&candidate_client(place).await?, place, "one")?;
        until_leading(&candidate.claim).await?;

        let bindings: Api<RoleBinding> =
            Api::namespaced(place.client.clone(), place.namespace.name());
        bindings
            .delete("candidate", &DeleteParams::default())
            .await?;
        let took = told(&candidate.claim, false).await?;
        eprintln!("led no longer after {took:?}");
        ensure!(
            took > DEADLINE - 2 * RETRY && took < DEADLINE + RETRY,
            "took {took:?}"
        );

        bind(place)?;
        until_leading(&candidate.claim).await?;
        assert_eq!(
            record(place).await?.lease_transitions,
            Some(0),
            "nobody else led"
        );
        Ok(())
    })
}

const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: candidate}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
";

fn bind(place: &Place) -> Result<()> {
    let user = format!("--user={}", place.namespace.name());
    place.kubectl_text(&[
        "create",
        "rolebinding",
        "candidate",
        "--role=candidate",
        &user,
    ])?;
    Ok(())
}

async fn candidate_client(place: &Place) -> Result<Client> {
    let options = KubeConfigOptions::default();
    let mut config = match place.cluster.kubeconfig() {
        Some(path) => {
            Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?
        }
        None => Config::from_kubeconfig(&options).await?,
    };
    config.auth_info.impersonate = Some(place.namespace.name().to_owned());
    Ok(Client::try_from(config)?)
}
