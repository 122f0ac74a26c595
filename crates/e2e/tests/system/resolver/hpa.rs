use anyhow::{Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    fetch,
    stage::{Meter, Whole, courteous, workload},
};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::json;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_horizontal_autoscaler_lets_its_target_sleep_and_goes_on_when_it_wakes() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let (stage, meter) = (&whole.stage, Meter::idle(place).await?);
        let web = workload("web", "Deployment", 1, &stage.image);
        stage.serve("web", courteous(web, 3)).await?;
        let cpu = json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
        }});
        place
            .put(json!({
                "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "web"},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                    "minReplicas": 2, "maxReplicas": 3, "metrics": [cpu],
                },
            }))
            .await?;
        let autoscaler = json!({"type": "hpa", "name": "web"});
        stage
            .declare(json!({"triggers": meter.triggers(), "autoscaler": autoscaler}))
            .await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage.pods_end("of=web").await?;
        let rests = |hpa: &HorizontalPodAutoscaler| {
            let status = hpa.status.as_ref();
            let conditions = status.and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|condition| {
                condition.type_ == "ScalingActive"
                    && condition.reason.as_deref() == Some("ScalingDisabled")
            })
        };
        stage.until("web", "nothing to scale", rests).await?;
        ensure!(stage.replicas("web").await? == 0, "it still sleeps");

        stage.sleep_no_more().await?;
        let address = stage.reach("web", 80).await?;
        ensure!(fetch(&format!("http://{address}/")).await? == "GET /\n");
        stage.scaled_to("web", 2).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}
