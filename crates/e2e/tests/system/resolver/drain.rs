use super::sleeping_gated;
use anyhow::{Context, Result, ensure};
use elasti_e2e::{
    fetch,
    stage::{Cast, PATIENCE, Whole},
};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use std::{cell::Cell, time::Duration};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

const PAUSE: Duration = Duration::from_millis(50);

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_resolver_that_ends_under_load_loses_nothing() -> Result<()> {
    elasti_e2e::test(async |place| {
        let cast = Cast::default().resolvers(2).grace(120);
        let whole = Whole::with(place, cast.resolver_flag("farewell", "2s")).await?;
        let stage = &whole.stage;
        sleeping_gated(stage).await?;
        let url = format!("http://{}/", stage.reach("web", 80).await?);
        let ending = &whole.resolvers[0];

        let over = Cell::new(false);
        let arrivals = stream::unfold((), async |()| {
            sleep(PAUSE).await;
            (!over.get()).then(|| (fetch(&url), ()))
        });
        let load = arrivals.buffer_unordered(usize::MAX).collect::<Vec<_>>();
        let end = async {
            while whole.held("web").await?.iter().any(|held| *held < 5) {
                sleep(PAUSE).await;
            }
            let uid = stage.uid::<Pod>(&ending.pod).await?;
            stage
                .api::<Pod>()
                .delete(&ending.pod, &DeleteParams::default())
                .await?;
            let closed = timeout(PATIENCE, closes(&ending.address));
            closed.await.context("waiting for its door to close")?;
            stage.open("web").await?;
            let gone = stage.gone::<Pod>(&ending.pod, &uid).await;
            over.set(true);
            gone.context("it ends when all that it held is answered")
        };
        let (answers, ended) = tokio::join!(load, end);
        ended?;
        let asked = answers.len();
        let lost: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
        ensure!(lost.is_empty(), "{} of {asked} lost: {lost:?}", lost.len());
        Ok(())
    })
}

/// It takes no more connections, and works on those that it has.
async fn closes(address: &str) {
    while TcpStream::connect((address, 8012)).await.is_ok() {
        sleep(PAUSE).await;
    }
}
