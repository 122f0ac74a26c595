use anyhow::{Result, ensure};
use elasti_e2e::{
    fetch,
    stage::{Cast, PATIENCE, Whole},
};
use std::{env, time::Duration};
use tokio::time::{sleep, timeout};

/// Three of them have waited for longer than the first back-off by far. `ELASTI_E2E_AWAY=60` lets it be away for
/// so many seconds instead.
const KNOCKS: f64 = 6.0;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn while_the_operator_is_away_requests_wait_and_go_on_asking() -> Result<()> {
    elasti_e2e::test(async |place| {
        let patient = Cast::default().resolver_flag("request-timeout", "180s");
        let mut whole = Whole::with(place, patient).await?;
        whole.stage.sleeping().await?;
        let url = format!("http://{}/", whole.stage.reach("web", 80).await?);
        whole.end_operator()?;
        let comeback = async {
            match env::var("ELASTI_E2E_AWAY") {
                Ok(seconds) => sleep(Duration::from_secs(seconds.parse()?)).await,
                Err(_) => timeout(PATIENCE, unheard(&whole)).await??,
            }
            ensure!(whole.stage.replicas("web").await? == 0, "nobody woke it");
            whole.start_operator().await
        };
        let (answer, returned) = tokio::join!(fetch(&url), comeback);
        returned?;
        ensure!(answer? == "GET /\n");
        Ok(())
    })
}

async fn unheard(whole: &Whole<'_>) -> Result<()> {
    let (name, labels) = (
        "elasti_resolver_operator_rpc_count",
        [("error", "unreachable")],
    );
    while whole.samples(name, &labels).await?.iter().sum::<f64>() < KNOCKS {
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
