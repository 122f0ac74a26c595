use super::sleeping_gated;
use anyhow::{Result, ensure};
use elasti_e2e::{fetch, stage::Whole};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_port_that_changes_during_sleep_is_served_and_whoever_waits_at_the_old_one_too() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        sleeping_gated(stage).await?;
        let old = format!("http://{}/old", stage.reach("web", 80).await?);
        let change = async {
            whole.until_held("web", 1).await?;
            let ports = json!({"spec": {"ports": [{"port": 81, "targetPort": 8080}]}});
            stage.amend_object::<Service>("web", ports).await?;
            let new = format!("http://{}/new", stage.reach("web", 81).await?);
            let (answer, opened) = tokio::join!(fetch(&new), async {
                whole.until_held("web", 2).await?;
                stage.open("web").await
            });
            opened?;
            answer
        };
        let (old, new) = tokio::join!(fetch(&old), change);
        ensure!(new? == "GET /new\n");
        ensure!(old? == "GET /old\n");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn whoever_waits_at_a_port_that_is_given_a_name_is_served() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        sleeping_gated(stage).await?;
        let old = format!("http://{}/old", stage.reach("web", 80).await?);
        let change = async {
            whole.until_held("web", 1).await?;
            // With a second port, both need a name.
            let ports = json!({"spec": {"ports": [
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "admin", "port": 81, "targetPort": 8080},
            ]}});
            stage.amend_object::<Service>("web", ports).await?;
            let new = format!("http://{}/new", stage.reach("web", 81).await?);
            let (answer, opened) = tokio::join!(fetch(&new), async {
                whole.until_held("web", 2).await?;
                stage.open("web").await
            });
            opened?;
            answer
        };
        let (old, new) = tokio::join!(fetch(&old), change);
        ensure!(new? == "GET /new\n");
        ensure!(old? == "GET /old\n");
        Ok(())
    })
}
