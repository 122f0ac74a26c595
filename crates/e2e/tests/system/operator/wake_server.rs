use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, ElastiServiceStatus, Mode, Phase};
use elasti_e2e::stage::{Gate, Meter, Operator, Rule, Setting, Stage, metric, workload};
use hyper::Method;
use serde_json::{Value, json};
use std::fs;

const KNOCK: &str = "/informer/incoming-request";

#[test]
#[ignore = "needs a cluster: make e2e"]
fn knocks_are_answered_in_the_words_of_the_contract() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        let knock = json!({"count": 1, "svc": "nobody", "namespace": "nowhere"}).to_string();
        let answer = operator
            .send(Method::POST, KNOCK, &[], knock.clone())
            .await?;
        ensure!(answer.status() == 200, "an unknown service is no error");
        let body: Value = serde_json::from_str(answer.body())?;
        assert_eq!(body, json!({"message": "Request received successfully!"}));
        for _ in 0..9 {
            operator.knock("nobody").await?;
        }
        let unknown = [("result", "unknown_service")];
        let counted = read(&operator, "elasti_operator_knock_counter", &unknown).await?;
        assert_eq!(counted, 10.0);
        let log = format!("operator-{}.log", operator.port());
        let log = fs::read_to_string(place.folder().join(log))?;
        let warned = log.matches("that no ElastiService names").count();
        assert_eq!(warned, 1, "{log}");

        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let answer = operator.send(method, KNOCK, &[], knock.clone()).await?;
            assert_eq!(told(&answer), (405, "Invalid request method"));
        }
        for body in ["", "no JSON", "[]", r#"{"count": 1}"#] {
            let answer = operator.send(Method::POST, KNOCK, &[], body).await?;
            assert_eq!(told(&answer), (400, "Invalid request body"), "to {body:?}");
        }
        let huge = format!(
            r#"{{"count": 1, "svc": "{}", "namespace": "x"}}"#,
            "a".repeat(1 << 20)
        );
        let refused = operator.send(Method::POST, KNOCK, &[], huge).await;
        // It may hang up while the body is still on its way.
        ensure!(
            refused.is_err() || refused.is_ok_and(|answer| answer.status().is_client_error()),
            "a body without end is refused"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn the_directory_lists_every_service_with_spec_and_status() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        let mut shop = workload("shop", "Deployment", 0, &stage.image);
        let probe = &mut shop["spec"]["template"]["spec"]["containers"][0]["readinessProbe"];
        probe["httpGet"]["httpHeaders"] = json!([{"name": "Authorization", "value": "secret"}]);
        stage.serve("shop", shop).await?;
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"});
        stage
            .declare(json!({"service": "shop", "scaleTargetRef": target}))
            .await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let key = format!("{}/shop", place.namespace.name());
        let is_proxied = |text: &str| text.contains(r#""mode":"proxy""#);
        let text = operator.until("/crd-cache", "proxy", is_proxied).await?;
        let directory: Value = serde_json::from_str(&text)?;
        let entry = &directory["services"][&key];
        assert_eq!(entry["name"], "web");
        assert_eq!(entry["spec"]["service"], "shop");
        assert_eq!(entry["spec"]["scaleTargetRef"]["name"], "shop");
        let asked = |status: &ElastiServiceStatus| status.readiness.is_some();
        stage.until_status("web", "what is asked", asked).await?;
        let text = operator.until("/crd-cache", "proxy", is_proxied).await?;
        ensure!(!text.contains("secret"), "headers of probes are not for it");
        stage.delete::<ElastiService>("web").await?;
        let is_empty = |text: &str| text == r#"{"services":{}}"#;
        operator.until("/crd-cache", "nothing", is_empty).await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn every_metric_of_the_contract_is_there_after_a_night() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        let meter = Meter::idle(place).await?;
        stage.deploy("Deployment", 1).await?;
        stage.declare(json!({"triggers": meter.triggers()})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let name = format!("{}/web", place.namespace.name());
        let crd = [("crd_name", &*name)];
        let mode = |text: &str| metric(text, "elasti_operator_mode", &crd);
        let is_proxy = |text: &str| mode(text) == Some(1.0);
        operator.until("/metrics", "proxy", is_proxy).await?;

        stage.sleep_no_more().await?;
        operator.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        let is_serve = |text: &str| mode(text) == Some(0.0);
        operator.until("/metrics", "serve", is_serve).await?;
        let scaled = [
            ("service_name", "web"),
            ("namespace", place.namespace.name()),
            ("target", "Deployment-web"),
            ("error", "success"),
        ];
        assert_eq!(
            read(&operator, "elasti_operator_scale_counter", &scaled).await?,
            2.0
        );
        for counted in [
            "elasti_operator_reconcile_count",
            "elasti_operator_CRD_finalizer_counter",
            "elasti_operator_CRD_update_counter",
            "elasti_operator_informer_handler_counter",
        ] {
            ensure!(read(&operator, counted, &crd).await? > 0.0, "{counted}");
        }
        for counted in [
            "elasti_operator_informer_count",
            "elasti_operator_informer_counter",
        ] {
            ensure!(read(&operator, counted, &[]).await? > 0.0, "{counted}");
        }
        let text = operator.metrics().await?;
        for bucket in ["0.1", "0.5", "1", "2", "5", "10"] {
            let of = [("crd_name", &*name), ("le", bucket)];
            ensure!(
                metric(&text, "elasti_operator_reconcile_bucket", &of).is_some(),
                "no bucket {bucket}"
            );
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn it_is_healthy_at_once_and_ready_when_it_knows_the_world() -> Result<()> {
    elasti_e2e::test(async |place| {
        let _stage = Stage::set(place).await?;
        let gate = Gate::open(place)?;
        let listed = gate.hold(Rule::new("GET", "/services"));
        let mut operator = Operator::start(place, Setting::default().through(&gate))?;
        listed.await?;
        assert_eq!(operator.get("/healthz").await?.status(), 200);
        let waiting = operator.get("/readyz").await?;
        assert_eq!(waiting.status(), 503);
        ensure!(waiting.body().contains("Service"), "{}", waiting.body());
        gate.release();
        operator.ready().await?;
        operator.end().context("and it ends when asked to")
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_watch_that_every_decision_needs_is_missed_aloud() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        let gate = Gate::open(place)?;
        let refused = gate.refuse(Rule::new("GET", "/endpointslices"));
        let operator = Operator::start(place, Setting::default().through(&gate))?;
        refused.await?;
        let ready = stage
            .condition("web", "Ready", "False", "WatchFailing")
            .await?;
        let says = ["EndpointSlice", "the gate is closed"];
        let complete = says.iter().all(|word| ready.message.contains(word));
        ensure!(complete, "{}", ready.message);
        let slices = [("kind", "EndpointSlice")];
        let healthy = read(&operator, "elasti_operator_watch_healthy", &slices).await?;
        assert_eq!(healthy, 0.0);
        gate.let_pass();
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage
            .condition("web", "Ready", "True", "AllInPlace")
            .await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_hundred_more_add_no_watch() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.sleeping().await?;
        let open = || read(&operator, "elasti_operator_informer_count", &[]);
        let before = open().await?;
        let names: Vec<String> = (0..100).map(|number| format!("more-{number}")).collect();
        for name in &names {
            stage.declare_as(name, json!({})).await?;
        }
        for name in &names {
            stage
                .condition(name, "ServiceFound", "False", "ServiceMissing")
                .await?;
        }
        assert_eq!(open().await?, before);
        Ok(())
    })
}

fn told(answer: &hyper::Response<String>) -> (u16, &str) {
    (answer.status().as_u16(), answer.body().trim_end())
}

async fn read(operator: &Operator, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
    let text = operator.metrics().await?;
    metric(&text, name, labels).with_context(|| format!("no {name}{labels:?} in\n{text}"))
}
