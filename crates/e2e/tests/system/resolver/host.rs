use anyhow::{Result, ensure};
use elasti_e2e::{
    exchange,
    stage::{Cast, Whole},
};
use http_body_util::Full;
use hyper::{Request, StatusCode, header::HOST};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn with_host_routing_the_name_in_a_request_tells_whose_it_is() -> Result<()> {
    elasti_e2e::test(async |place| {
        let by_host = Cast::default().operator_flag("routing", "host");
        let whole = Whole::with(place, by_host).await?;
        whole.stage.sleeping().await?;
        let address = whole.stage.reach("web", 80).await?;
        let namespace = place.namespace.name();
        let ask = async |at: String, host: String| {
            let request = Request::get(format!("http://{at}/named")).header(HOST, host);
            exchange(request.body(Full::default())?).await
        };
        let resolver = &whole.resolvers[0];
        let stranger = ask(
            format!("{}:8012", resolver.address),
            format!("stranger.{namespace}"),
        )
        .await?;
        ensure!(stranger.status() == StatusCode::NOT_FOUND, "{stranger:?}");
        let host = format!("web.{namespace}.svc.cluster.local");
        let answer = ask(address.to_string(), host).await?;
        ensure!(answer.body() == "GET /named\n", "{answer:?}");
        Ok(())
    })
}
