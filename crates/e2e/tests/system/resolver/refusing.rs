use super::sleeping;
use anyhow::{Result, ensure};
use elasti_e2e::{exchange, fetch, stage::Whole};
use http_body_util::Full;
use hyper::Request;
use serde_json::{Value, json};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn an_endpoint_that_is_announced_but_refuses_for_three_seconds_is_waited_for() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let ports = json!([{"port": 80, "targetPort": 8080}]);
        let make = |container: &mut Value| {
            container["args"] = json!(["late=3"]);
            // Without it a pod is ready as soon as its process runs.
            if let Value::Object(container) = container {
                container.remove("readinessProbe");
            }
        };
        sleeping(&whole.stage, ports, make).await?;
        let url = format!("http://{}/", whole.stage.reach("web", 80).await?);
        let order = Request::post(&url).body(Full::from("an order"))?;
        let (answer, ordered) = tokio::join!(fetch(&url), exchange(order));
        ensure!(answer? == "GET /\n");
        ensure!(ordered?.body() == "POST /\nan order");
        Ok(())
    })
}
