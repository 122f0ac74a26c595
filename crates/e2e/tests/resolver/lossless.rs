use anyhow::{Context, Result};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    fetch,
    stage::{Stage, Whole, service, workload},
};
use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};
use tokio::time::sleep;

const CYCLES: usize = 5;
const CLIENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(60);

#[test]
#[ignore = "needs a cluster: make e2e"]
fn no_request_is_lost_while_somebody_scales_to_zero_again_and_again() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        deploy(stage).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        let address = stage.reach("web", 80).await?;

        let (asked, lost) = (Cell::new(0), RefCell::new(Vec::new()));
        let client = async || loop {
            asked.set(asked.get() + 1);
            if let Err(error) = fetch(&format!("http://{address}/")).await {
                lost.borrow_mut().push(format!("{error:#}"));
            }
            sleep(PAUSE).await;
        };
        let clients = join_all((0..CLIENTS).map(|_| client()));
        let cycles = async {
            for cycle in 1..=CYCLES {
                stage.scale("web", 0).await?;
                let woken = |deployment: &Deployment| {
                    let spec = deployment.spec.as_ref();
                    spec.and_then(|spec| spec.replicas) == Some(1)
                };
                stage.until("web", "woken by traffic", woken).await?;
                stage.reaches(Phase::Awake, Mode::Serve).await?;
                println!("{cycle} of {CYCLES}: {} asked", asked.get());
            }
            Ok::<_, anyhow::Error>(())
        };
        let done = tokio::select! {
            done = cycles => done,
            _ = clients => Ok(()),
        };
        let lost = lost.into_inner();
        let told = format!("{} of {} lost: {lost:?}", lost.len(), asked.get());
        assert!(lost.is_empty(), "{told}");
        done.context(told)
    })
}

/// An app that takes connections until every data plane has dropped it, as apps should.
async fn deploy(stage: &Stage<'_>) -> Result<()> {
    let mut web = workload("web", "Deployment", 1, &stage.image);
    let spec = &mut web["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(10);
    spec["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 4}}});
    stage.place.put(web).await?;
    let ports = json!([{"port": 80, "targetPort": 8080}]);
    stage.place.put(service("web", "web", &ports)).await?;
    Ok(())
}
