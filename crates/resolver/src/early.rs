//! Kubernetes looks at a starting pod once in a while. While somebody waits for it we look more often, in the
//! same way, and let them go as soon as it passes; then we look after it until Kubernetes does.

mod check;

use self::check::Answer;
use crate::{
    directory::Directory,
    room::{Pod, Room},
};
use elasti_api::ReadinessCheck;
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use std::{future::pending, net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Between two questions, at first and at last.
const FIRST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_millis(250);
/// For a connection to where the service sends its traffic.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks the pods of a room while somebody knocks for it, and goes on while there is need; unless somebody else
/// does.
pub(crate) async fn ask_beside(
    knocks: impl Future<Output = ()>,
    room: &Room,
    directory: &Directory,
) {
    let mut knocks = pin!(knocks);
    let _turn = tokio::select! {
        turn = room.turn() => turn,
        () = &mut knocks => return,
    };
    let mut starting = room.starting();
    let need = async {
        knocks.await;
        let _ = starting.wait_for(|starting| starting.is_over()).await;
    };
    tokio::select! {
        () = need => {}
        () = ask(room, directory) => {}
    }
}

/// One prober for each pod that somebody waits for, or that was let in. Works until it is dropped.
async fn ask(room: &Room, directory: &Directory) {
    let mut starting = room.starting();
    let mut asked: Vec<(Arc<Pod>, DropGuard)> = Vec::new();
    let mut asking = FuturesUnordered::new();
    loop {
        {
            let now = starting.borrow_and_update();
            asked.retain(|(pod, _)| {
                let known = now.pods.get(&pod.address);
                known.is_some_and(|known| Arc::ptr_eq(known, pod))
                    && (now.awaited || pod.has_passed())
            });
            let wanted = now.pods.values().filter(|_| now.awaited);
            for pod in wanted {
                let is_asked = |(other, _): &(Arc<Pod>, _)| Arc::ptr_eq(other, pod);
                let Some(checks) = pod.checks().filter(|_| !asked.iter().any(is_asked)) else {
                    continue;
                };
                let stop = CancellationToken::new();
                asked.push((pod.clone(), stop.clone().drop_guard()));
                let (pod, checks) = (pod.clone(), checks.clone());
                asking.push(async move {
                    let attended = attend(room, directory, &pod, &checks);
                    stop.run_until_cancelled(attended).await
                });
            }
        }
        tokio::select! {
            Some(_) = asking.next(), if !asking.is_empty() => {}
            _ = starting.changed() => {}
        }
    }
}

/// Lets it in when it passes, and sends it back when it fails or is said to.
async fn attend(room: &Room, directory: &Directory, pod: &Pod, checks: &[ReadinessCheck]) {
    loop {
        let doubted = pod.doubted();
        passes(pod, checks).await;
        let open = async |port: &u16| {
            accepts(SocketAddr::new(pod.address, *port)).await;
            directory.passed(room, pod, *port);
        };
        let opens = async {
            join_all(pod.seen.ports.iter().map(open)).await;
            pending().await
        };
        tokio::select! {
            () = opens => {}
            () = fails(pod, checks) => {}
            () = doubted => {}
        }
        directory.failed(room, pod);
    }
}

/// Resolves when every container that has a probe has passed.
async fn passes(pod: &Pod, checks: &[ReadinessCheck]) {
    let (since, rests) = pod.times();
    sleep_until(rests).await;
    let mut containers: Vec<&str> = checks.iter().map(|check| &*check.container).collect();
    containers.dedup();
    let passes = async |container: &str| {
        for check in checks.iter().filter(|check| check.container == container) {
            let ask = || check::ask(pod.address, check);
            in_a_row(check, since, ask).await;
        }
    };
    join_all(containers.into_iter().map(passes)).await;
}

/// Resolves when a probe that goes on with the pod has failed so often that Kubernetes would not call it ready
/// any more.
async fn fails(pod: &Pod, checks: &[ReadinessCheck]) {
    let lasting = checks.iter().filter(|check| !check.startup);
    let fails = lasting.map(|check| too_often(check, || check::ask(pod.address, check)));
    let mut all: FuturesUnordered<_> = fails.collect();
    if all.next().await.is_none() {
        pending().await
    }
}

async fn accepts(socket: SocketAddr) {
    let mut pause = FIRST;
    while !check::connects(socket, PATIENCE).await {
        wait(&mut pause).await;
    }
}

/// Until it has passed as often in a row as it has to.
async fn in_a_row<F: Future<Output = Answer>>(
    check: &ReadinessCheck,
    since: Instant,
    ask: impl Fn() -> F,
) {
    let delay = check.initial_delay_seconds.try_into().unwrap_or_default();
    sleep_until(since + Duration::from_secs(delay)).await;
    let mut pause = FIRST;
    let mut passed = 0;
    loop {
        passed = match ask().await {
            Answer::Passed => passed + 1,
            Answer::Failed | Answer::Refused => 0,
        };
        if passed >= check.success_threshold {
            return;
        }
        wait(&mut pause).await;
    }
}

/// Until it has failed as often in a row as it may not, or nobody listens any more.
async fn too_often<F: Future<Output = Answer>>(check: &ReadinessCheck, ask: impl Fn() -> F) {
    let mut failed = 0;
    while failed < check.failure_threshold {
        sleep(LONGEST).await;
        failed = match ask().await {
            Answer::Passed => 0,
            Answer::Failed => failed + 1,
            Answer::Refused => return,
        };
    }
}

async fn wait(pause: &mut Duration) {
    sleep(*pause).await;
    *pause = pause.mul_f64(1.5).min(LONGEST);
}

#[cfg(test)]
mod tests;
