use super::sleeping_gated;
use anyhow::{Result, ensure};
use elasti_e2e::{
    fetch, kill_pod_process,
    stage::{Cast, Whole},
};
use futures::{FutureExt, future::join_all};
use std::{cell::Cell, time::Duration};
use tokio::time::sleep;

const CLIENTS: usize = 40;

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn clients_of_a_killed_resolver_come_again_and_those_of_the_other_notice_nothing() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::with(place, Cast::default().resolvers(2)).await?;
        let stage = &whole.stage;
        sleeping_gated(stage).await?;
        let url = format!("http://{}/", whole.reach_all("web", 80).await?);
        let closed = Cell::new(0);
        let client = async || {
            let mut answer = fetch(&url).await;
            if answer.is_err() {
                closed.set(closed.get() + 1);
            }
            // Until the data plane knows that one resolver is gone.
            while answer.is_err() {
                sleep(Duration::from_millis(100)).await;
                answer = fetch(&url).await;
            }
            answer.is_ok_and(|answer| answer == "GET /\n")
        };
        let kill = async {
            whole.until_held("web", CLIENTS).await?;
            let held = whole.held("web").await?;
            ensure!(held.iter().all(|count| *count > 0), "{held:?}");
            kill_pod_process(&whole.resolvers[0].pod)?;
            while closed.get() < held[0] {
                sleep(Duration::from_millis(10)).await;
            }
            stage.open("web").await?;
            Ok(held[0])
        };
        let clients = join_all((0..CLIENTS).map(|_| client())).map(Ok);
        let (answers, lost) = tokio::try_join!(clients, kill)?;
        ensure!(answers.into_iter().all(|answered| answered));
        ensure!(closed.get() == lost, "{} of {lost} saw it", closed.get());
        Ok(())
    })
}
