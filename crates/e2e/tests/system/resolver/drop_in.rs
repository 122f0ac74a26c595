use anyhow::{Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    exchange,
    stage::{Cast, Meter, Setting, Whole, courteous, metric, workload},
};
use http_body_util::Full;
use hyper::{Request, header::HOST};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use serde_json::{Value, json};

/// What KubeElasti's chart sets for both.
const COMMON: [(&str, &str); 6] = [
    ("KUBERNETES_CLUSTER_DOMAIN", "cluster.local"),
    (
        "ELASTI_OPERATOR_DEPLOYMENT_NAME",
        "elasti-operator-controller-manager",
    ),
    ("ELASTI_RESOLVER_DEPLOYMENT_NAME", "elasti-resolver"),
    ("ELASTI_RESOLVER_SERVICE_NAME", "elasti-resolver-service"),
    ("ELASTI_RESOLVER_PORT", "8013"),
    ("ELASTI_RESOLVER_PROXY_PORT", "8012"),
];
/// And for the resolver alone.
const RESOLVER: [(&str, &str); 12] = [
    ("HEADER_FOR_HOST", "X-Envoy-Decorator-Operation"),
    ("INITIAL_CAPACITY", "500"),
    ("MAX_IDLE_PROXY_CONNS", "1000"),
    ("MAX_IDLE_PROXY_CONNS_PER_HOST", "100"),
    ("MAX_QUEUE_CONCURRENCY", "100"),
    ("OPERATOR_RETRY_DURATION", "30"),
    ("QUEUE_RETRY_DURATION", "3"),
    ("QUEUE_SIZE", "50000"),
    ("REQ_TIMEOUT", "120"),
    ("TRAFFIC_RE_ENABLE_DURATION", "5"),
    ("CRD_CACHE_POLL_INTERVAL_MINUTES", "5"),
    ("ENABLE_H2C", "true"),
];

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_was_written_for_kubeelasti_works_unchanged() -> Result<()> {
    elasti_e2e::test(async |place| {
        let mut operator = Setting::bare()
            .flag("leader-elect", true)
            .flag("metrics-secure", false)
            .flag("enable-http2", false)
            .variable("POLLING_INTERVAL", "1s");
        let mut cast = Cast::default().without_resolver_flag("request-timeout");
        for (name, value) in COMMON {
            operator = operator.variable(name, value);
            cast = cast.resolver_variable(name, value);
        }
        for (name, value) in RESOLVER {
            cast = cast.resolver_variable(name, value);
        }
        let whole = Whole::with(place, cast.operator(operator)).await?;
        let (stage, meter) = (&whole.stage, Meter::idle(place).await?);
        let web = workload("web", "Deployment", 1, &stage.image);
        stage.serve("web", courteous(web, 3)).await?;
        place.put(elasti_service(&meter)).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage.pods_end("of=web").await?;
        let hash = "4b5e57f6eb";
        stage
            .api::<Service>()
            .get(&format!("elasti-web-pvt-{hash}"))
            .await?;
        stage
            .api::<EndpointSlice>()
            .get(&format!("elasti-web-endpointslice-to-resolver-{hash}"))
            .await?;

        let address = stage.reach("web", 80).await?;
        let host = format!("web.{}.svc.cluster.local", place.namespace.name());
        let request = Request::get(format!("http://{address}/hello")).header(HOST, host);
        let answer = exchange(request.body(Full::default())?).await?;
        ensure!(answer.body() == "GET /hello\n", "{answer:?}");
        let status = stage.status("web").await?;
        ensure!(status.last_scaled_up_time.is_some(), "{status:?}");
        let operator = whole.operator.as_ref().map(|operator| operator.metrics());
        let metrics = operator.expect("it runs").await?;
        let scaled = [("target", "Deployment-web"), ("error", "success")];
        ensure!(metric(&metrics, "elasti_operator_scale_counter", &scaled) >= Some(2.0));
        Ok(())
    })
}

fn elasti_service(meter: &Meter) -> Value {
    json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": "web"},
        "spec": {
            "minTargetReplicas": 1,
            "service": "web",
            "cooldownPeriod": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "deployments", "name": "web"},
            "triggers": [{"type": "prometheus", "metadata": {
                "query": "requests",
                "serverAddress": meter.url(),
                "threshold": "0.5",
                "uptimeFilter": "job=\"web\"",
            }}],
            "autoscaler": {"type": "hpa", "name": "web"},
            "enabledPeriod": {"schedule": "0 0 * * *", "duration": "24h"},
        },
    })
}
