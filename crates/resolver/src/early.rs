//! Kubernetes looks at a starting pod once in a while. While somebody waits for it we look more often, in the
//! same way, and let them go as soon as it passes.

mod check;

use crate::{directory::Directory, room::Room};
use elasti_api::ReadinessCheck;
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Between two questions, at first and at last.
const FIRST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_millis(250);
/// For a connection, where the template has no probe at all.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks the pods of one room, and tells the directory who passed. Works until it is dropped.
pub(crate) async fn ask(room: &Room, directory: &Directory) {
    let mut starting = room.starting();
    let mut asked: HashMap<IpAddr, CancellationToken> = HashMap::new();
    let mut asking = FuturesUnordered::new();
    loop {
        {
            let now = starting.borrow_and_update();
            let here: HashSet<IpAddr> = now.pods.iter().map(|pod| pod.address).collect();
            asked.retain(|address, stop| {
                let stays = here.contains(address);
                if !stays {
                    stop.cancel();
                }
                stays
            });
            let is_new = |address| !asked.contains_key(&address) && !room.has_passed(address);
            let new: Vec<_> = now
                .pods
                .iter()
                .filter(|pod| pod.askable && is_new(pod.address))
                .collect();
            for pod in new {
                let stop = CancellationToken::new();
                asked.insert(pod.address, stop.clone());
                let (address, since) = (pod.address, pod.since);
                let (checks, ports) = (now.checks.clone(), pod.ports.clone());
                asking.push(async move {
                    let passes = passes(address, &ports, &checks, since);
                    stop.run_until_cancelled(passes).await.map(|()| address)
                });
            }
        }
        tokio::select! {
            Some(passed) = asking.next(), if !asking.is_empty() => {
                if let Some(address) = passed {
                    asked.remove(&address);
                    directory.passed(room, address);
                }
            }
            _ = starting.changed() => {}
        }
    }
}

/// Resolves when every container that has a probe has passed.
async fn passes(address: IpAddr, ports: &[u16], checks: &[ReadinessCheck], since: Instant) {
    if checks.is_empty() {
        let sockets = ports.iter().map(|port| SocketAddr::new(address, *port));
        join_all(sockets.map(accepts)).await;
        return;
    }
    let mut containers: Vec<&str> = checks.iter().map(|check| &*check.container).collect();
    containers.dedup();
    let of = |container: &str| {
        let own = checks
            .iter()
            .filter(move |check| check.container == container);
        let own: Vec<&ReadinessCheck> = own.collect();
        async move {
            for check in own {
                in_a_row(address, check, since).await;
            }
        }
    };
    join_all(containers.into_iter().map(of)).await;
}

async fn accepts(socket: SocketAddr) {
    let mut pause = FIRST;
    while !check::connects(socket, PATIENCE).await {
        wait(&mut pause).await;
    }
}

/// Until it has passed as often in a row as it has to.
async fn in_a_row(address: IpAddr, check: &ReadinessCheck, since: Instant) {
    let seconds = |count: i32| Duration::from_secs(count.try_into().unwrap_or_default());
    sleep_until(since + seconds(check.initial_delay_seconds)).await;
    let mut pause = FIRST;
    let mut passed = 0;
    loop {
        let patience = seconds(check.timeout_seconds);
        passed = if check::passes(address, check, patience).await {
            passed + 1
        } else {
            0
        };
        if passed >= check.success_threshold {
            return;
        }
        wait(&mut pause).await;
    }
}

async fn wait(pause: &mut Duration) {
    sleep(*pause).await;
    *pause = pause.mul_f64(1.5).min(LONGEST);
}
