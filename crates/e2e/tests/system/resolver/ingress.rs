//! What proxies in front of a service send.

use anyhow::{Context, Result, ensure};
use elasti_e2e::{
    client::{get, http1, text},
    exchange,
    stage::{Cast, Whole},
};
use http_body_util::Full;
use hyper::{
    Request,
    header::{HOST, LOCATION},
};

/// Headers of requests that reached services behind these.
const BEHIND: [(&str, &[(&str, &str)]); 6] = [
    (
        "nginx that keeps an outside Host",
        &[("host", "shop.example.com")],
    ),
    (
        "nginx that names its upstream",
        &[("host", "upstream_balancer")],
    ),
    (
        "Traefik",
        &[
            ("host", "shop.example.com"),
            ("x-forwarded-host", "shop.example.com"),
            ("x-forwarded-server", "traefik-7d5f"),
        ],
    ),
    (
        "Envoy with tracing",
        &[
            ("host", "shop.example.com"),
            (
                "x-envoy-decorator-operation",
                "web.elsewhere.svc.cluster.local:80/*",
            ),
        ],
    ),
    (
        "Envoy Gateway without tracing",
        &[("host", "10.1.2.3:8080")],
    ),
    (
        "a proxy that sends a number of a port",
        &[("host", "shop.example.com:8443")],
    ),
];

#[test]
#[ignore = "needs a cluster: make e2e"]
fn whatever_a_proxy_writes_into_the_head_the_port_tells_whose_it_is() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let address = whole.stage.reach("web", 80).await?;
        let requests = BEHIND.map(async |(whom, headers)| {
            let mut request = Request::get(format!("http://{address}/behind"));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = exchange(request.body(Full::default())?)
                .await
                .context(whom)?;
            ensure!(answer.body() == "GET /behind\n", "{whom}: {answer:?}");
            ensure!(answer.headers().contains_key("x-elasti-held"), "{whom}");
            Ok(())
        });
        futures::future::try_join_all(requests).await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn with_host_routing_envoys_own_header_goes_before_the_host() -> Result<()> {
    elasti_e2e::test(async |place| {
        let by_host = Cast::default().operator_flag("routing", "host");
        let whole = Whole::with(place, by_host).await?;
        whole.stage.sleeping().await?;
        let address = whole.stage.reach("web", 80).await?;
        let operation = format!("web.{}.svc.cluster.local:80/*", place.namespace.name());
        let request = Request::get(format!("http://{address}/behind"))
            .header(HOST, "shop.example.com")
            .header("x-envoy-decorator-operation", operation);
        let answer = exchange(request.body(Full::default())?).await?;
        ensure!(answer.body() == "GET /behind\n", "{answer:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_redirect_of_the_target_names_the_host_that_the_client_asked_for() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let mut client = http1(whole.stage.reach("web", 80).await?).await?;
        let mut request = get("/moved")?;
        request
            .headers_mut()
            .insert(HOST, "shop.example.com".parse()?);
        let answer = client.send_request(request).await?;
        ensure!(answer.headers().contains_key("x-elasti-held"), "it waited");
        ensure!(answer.headers()[LOCATION] == "http://shop.example.com/hello");
        text(answer).await?;
        Ok(())
    })
}
