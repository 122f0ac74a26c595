use anyhow::{Error, Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    client::{self, get, http1, http2},
    exchange, fetch,
    stage::{PATIENCE, Whole},
};
use futures::future::try_join_all;
use http_body_util::Full;
use hyper::{Request, body::Bytes, header::CONNECTION};
use tokio::time::timeout;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_request_to_a_sleeping_service_gets_the_answer_of_its_target() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        stage.sleeping().await?;
        let address = stage.reach("web", 80).await?;
        let answer = fetch(&format!("http://{address}/hello")).await?;
        ensure!(answer == "GET /hello\n", "{answer}");
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.has_no_resolver_slice("web").await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_body_waits_with_its_request_and_arrives_whole() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let address = whole.stage.reach("web", 80).await?;
        let body = "a line of a body\n".repeat(100_000);
        let request = Request::post(format!("http://{address}/upload"));
        let answer = exchange(request.body(Full::from(body.clone()))?).await?;
        ensure!(answer.headers().contains_key("x-elasti-held"), "it waited");
        ensure!(*answer.body() == format!("POST /upload\n{body}"));
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn all_streams_of_an_http2_connection_are_answered() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        whole.stage.sleeping().await?;
        let client = http2(whole.stage.reach("web", 80).await?).await?;
        let answers = (0..20).map(|n| {
            let mut client = client.clone();
            async move {
                let mut request = get(&format!("http://web/{n}"))?;
                request.headers_mut().clear();
                let answer = client::text(client.send_request(request).await?).await?;
                ensure!(answer == format!("GET /{n}\n"), "{n} got {answer}");
                Ok(())
            }
        });
        try_join_all(answers).await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn clients_that_keep_their_connections_move_to_the_pods_once_these_serve() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        stage.sleeping().await?;
        let address = stage.reach("web", 80).await?;
        let mut plain = http1(address).await?;
        let held = plain.send_request(get("/held")?).await?;
        ensure!(held.headers().contains_key("x-elasti-held"), "{held:?}");
        client::text(held).await?;
        let mut many = http2::<Full<Bytes>>(address).await?;
        let question = || Ok::<_, Error>(Request::get("http://web/many").body(Full::default())?);
        client::text(many.send_request(question()?).await?).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        let until_closed = async {
            loop {
                let answer = plain.send_request(get("/kept")?).await?;
                let says = answer.headers().get(CONNECTION);
                let closes = says.is_some_and(|says| says == "close");
                client::text(answer).await?;
                if closes {
                    return Ok::<_, Error>(());
                }
            }
        };
        // Resolvers read the mode where we do, perhaps a moment later.
        timeout(PATIENCE, until_closed).await??;
        let until_told = async {
            while let Ok(answer) = many.send_request(question()?).await {
                client::text(answer).await?;
            }
            Ok(())
        };
        timeout(PATIENCE, until_told).await?
    })
}
