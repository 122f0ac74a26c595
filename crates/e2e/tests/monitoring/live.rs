use crate::{
    alerts, ask, can_be_applied,
    dashboard::{self, Dashboard},
    of_kind, parsed, path,
    prometheus::Prometheus,
    read, rendered,
};
use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    LONGEST, Place, exchange, foreign,
    install::install_overlay,
    stage::{Stage, gated},
    test_alone,
};
use futures::future::try_join_all;
use http::{Request, StatusCode, header::HOST};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use serde_json::json;
use std::{collections::BTreeSet, net::SocketAddr};

const OVERLAY: &str = "config/monitoring";
const ALERTS: &str = "config/monitoring/alerts.yaml";
/// Whose definitions the API server checks our objects by.
const PROMETHEUS_OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator";
const VERSION: &str = "v0.85.0";

#[test]
#[ignore = "needs a local cluster: make monitoring"]
fn every_query_has_an_answer_and_alerts_tell_the_well_from_the_ill() -> Result<()> {
    let sources = foreign::sources(PROMETHEUS_OPERATOR, VERSION)?;
    let kinds = sources.join("example/prometheus-operator-crd");
    test_alone("monitoring", 2 * LONGEST, async |place| {
        for kind in ["servicemonitors", "prometheusrules"] {
            let file = kinds.join(format!("monitoring.coreos.com_{kind}.yaml"));
            let file = format!("--filename={}", file.display());
            place.kubectl_text(&["apply", "--server-side", &file])?;
        }
        let kustomization = format!("resources:\n  - ../../{OVERLAY}\n");
        install_overlay(place.cluster, "installation-monitoring", &kustomization)?;
        can_be_applied(place, OVERLAY)?;

        let objects = rendered(place, OVERLAY)?;
        let dashboards = of_kind(&objects, "ConfigMap");
        let dashboard = dashboards.first().context("it has a dashboard")?;
        ensure!(dashboard["data"]["elasti.json"] == read(dashboard::FILE)?);
        let monitors = of_kind(&objects, "ServiceMonitor");
        let prometheus = Prometheus::start(place, &monitors, &path(ALERTS)).await?;

        let stage = Stage::empty(place).await?;
        let spec = json!({"triggers": prometheus.triggers(), "pollingInterval": "1s"});
        stage.deploy("Deployment", 0).await?;
        stage.declare(spec).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let web = stage.reach("web", 80).await?;
        ask(web).await?;
        let rules = parsed(ALERTS)?;
        let names = alerts(&rules).into_iter();
        let names: Vec<&str> = names.filter_map(|alert| alert["alert"].as_str()).collect();
        prometheus.all_are(&names, "inactive").await?;

        let slow = slow(&stage).await?;
        let proxy = proxy(place).await?;
        let life = async {
            loop {
                stage.reaches(Phase::Asleep, Mode::Proxy).await?;
                // Its pods cease to listen before the data plane knows, and are not asked to do better here.
                let _ = ask(web).await;
                too_many_in_vain(slow).await?;
                nobody_s(proxy).await?;
            }
        };
        let queries = Dashboard::read()?.queries()?;
        let seen = async {
            prometheus.answers_all(queries).await?;
            prometheus.is("ElastiRefusedFull", "firing").await?;
            prometheus.is("ElastiRefusedLate", "firing").await
        };
        tokio::select! {
            failed = life => failed,
            seen = seen => seen,
        }?;

        // They run, and are scraped, and nobody can use them.
        let none = json!({"spec": {"selector": {"app": "nobody"}}}).to_string();
        place.kubectl_text(&[
            "--namespace=elasti",
            "patch",
            "service/elasti-resolver-service",
            "--patch",
            &none,
        ])?;
        prometheus.is("ElastiNoResolver", "pending").await
    })
}

/// `slow`, which never becomes ready; one may wait for it at each resolver, and not for long.
async fn slow(stage: &Stage<'_>) -> Result<SocketAddr> {
    let slow = gated("slow", 0, &stage.image);
    let hold = json!({"timeout": "2s", "maxPending": 1});
    stage.asleep_as("slow", slow, json!({"hold": hold})).await
}

/// One more than there are resolvers.
async fn too_many_in_vain(slow: SocketAddr) -> Result<()> {
    let statuses = (0..3).map(async |_| status(slow, "slow").await);
    let statuses: BTreeSet<StatusCode> = try_join_all(statuses).await?.into_iter().collect();
    let refused = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
    ensure!(statuses == BTreeSet::from(refused), "{statuses:?}");
    Ok(())
}

async fn nobody_s(proxy: SocketAddr) -> Result<()> {
    let status = status(proxy, "nobody.example").await?;
    ensure!(status == StatusCode::NOT_FOUND, "{status}");
    Ok(())
}

async fn status(address: SocketAddr, host: &str) -> Result<StatusCode> {
    let request = Request::get(format!("http://{address}/")).header(HOST, host);
    let answer = exchange(request.body(Default::default())?).await?;
    Ok(answer.status())
}

/// Where requests say in their head whose they are.
async fn proxy(place: &Place) -> Result<SocketAddr> {
    let services: Api<Service> = Api::namespaced(place.client.clone(), "elasti");
    let service = services.get("elasti-resolver-service").await?;
    let address = service.spec.and_then(|spec| spec.cluster_ip);
    let address = address.context("it has an address")?;
    Ok(SocketAddr::new(address.parse()?, 8012))
}
