use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::stage::{Operator, Setting, Stage};
use hyper::Method;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, api::PostParams};
use serde_json::json;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn only_resolvers_may_knock_and_read_the_directory() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let careful = Setting::default().flag("authenticate-knocks", true);
        let operator = stage.operator_with(careful).await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;

        let stranger = place.beside("stranger").await?;
        let strangers = token(&stage.at(&stranger), "elasti-operator").await?;
        let misled = token(&stage, "somebody-else").await?;
        let right = token(&stage, "elasti-operator").await?;
        for (who, token, answer) in [
            ("nobody", None, 401),
            ("a forger", Some("not.a.token"), 401),
            ("one for somebody else", Some(&*misled), 401),
            ("a stranger", Some(&*strangers), 403),
        ] {
            assert_eq!(knock(&operator, &stage, token).await?, answer, "to {who}");
            assert_eq!(read(&operator, token).await?, answer, "to {who}");
        }
        ensure!(stage.replicas("web").await? == 0, "nobody woke it");

        assert_eq!(read(&operator, Some(&right)).await?, 200);
        assert_eq!(knock(&operator, &stage, Some(&right)).await?, 200);
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        for open in ["/metrics", "/healthz", "/readyz"] {
            assert_eq!(operator.get(open).await?.status(), 200, "{open}");
        }
        stranger.leave().await
    })
}

/// Of the service account that every namespace has.
async fn token(stage: &Stage<'_>, audience: &str) -> Result<String> {
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![audience.into()],
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = stage.api();
    let made = accounts
        .create_token_request("default", &PostParams::default(), &request)
        .await?;
    Ok(made.status.context("a token was made")?.token)
}

async fn knock(operator: &Operator, stage: &Stage<'_>, token: Option<&str>) -> Result<u16> {
    let body = json!({"count": 1, "svc": "web", "namespace": stage.place.namespace.name()});
    call(
        operator,
        Method::POST,
        "/informer/incoming-request",
        token,
        body.to_string(),
    )
    .await
}

async fn read(operator: &Operator, token: Option<&str>) -> Result<u16> {
    call(operator, Method::GET, "/crd-cache", token, String::new()).await
}

async fn call(
    operator: &Operator,
    method: Method,
    path: &str,
    token: Option<&str>,
    body: String,
) -> Result<u16> {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer
        .iter()
        .map(|value| ("authorization", &**value))
        .collect();
    let answer = operator.send(method, path, &headers, body).await?;
    Ok(answer.status().as_u16())
}
