//! Who may knock: resolvers, by the service-account tokens that they present.

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{
    sync::OnceCell,
    time::{self, Instant},
};

const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
const TRUSTED_FOR: Duration = Duration::from_secs(60);
const REFUSED_FOR: Duration = Duration::from_secs(10);
const MOST_KNOWN: usize = 1024;

pub(crate) struct Tokens {
    reviews: Api<TokenReview>,
    audience: &'static str,
    /// What the user names of resolvers begin with.
    resolvers: String,
    known: Known,
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("no token: right would be Authorization: Bearer <service-account token of a resolver>")]
    Missing,
    #[error("wrong token, {0}: right would be a service-account token of a resolver")]
    Wrong(String),
    #[error("{0} is no resolver: right would be a service account in the resolvers' namespace")]
    Stranger(String),
    #[error("the API server does not review tokens now: right would be to knock again")]
    Unavailable,
}

type Verdict = Result<(), Refusal>;

/// Verdicts by the digests of tokens.
#[derive(Default)]
struct Known(Mutex<HashMap<[u8; 32], Entry>>);

#[derive(Clone)]
struct Entry {
    since: Instant,
    /// With its end. Empty while the review runs, which all who ask in the meantime wait for.
    verdict: Arc<OnceCell<(Verdict, Instant)>>,
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn judge(status: TokenReviewStatus, audience: &str, resolvers: &str) -> Verdict {
    if status.authenticated != Some(true) {
        let unknown = || "which the API server does not know".into();
        return Err(Refusal::Wrong(status.error.unwrap_or_else(unknown)));
    }
    // Without audiences, it is one for the API server itself.
    if !status
        .audiences
        .iter()
        .flatten()
        .any(|name| name == audience)
    {
        return Err(Refusal::Wrong(format!("its audience is not {audience}")));
    }
    let user = status
        .user
        .and_then(|user| user.username)
        .unwrap_or_default();
    match user.strip_prefix(resolvers) {
        Some(name) if !name.is_empty() => Ok(()),
        _ => Err(Refusal::Stranger(user)),
    }
}

// === impl Tokens ===

impl Tokens {
    pub(crate) fn new(client: Client, audience: &'static str, resolver_namespace: &str) -> Self {
        Self {
            reviews: Api::all(client),
            audience,
            resolvers: format!("system:serviceaccount:{resolver_namespace}:"),
            known: Known::default(),
        }
    }

    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let token = bearer(headers).ok_or(Refusal::Missing)?;
        self.known
            .verdict(token, async || self.review(token).await)
            .await
    }

    async fn review(&self, token: &str) -> Verdict {
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(vec![self.audience.into()]),
                token: Some(token.into()),
            },
            ..TokenReview::default()
        };
        let parameters = PostParams::default();
        let answer = self.reviews.create(&parameters, &review);
        let status = match time::timeout(REVIEW_TIMEOUT, answer).await {
            Ok(Ok(review)) => review.status.unwrap_or_default(),
            Ok(Err(error)) => {
                tracing::warn!(%error, "Could not have a token reviewed");
                return Err(Refusal::Unavailable);
            }
            Err(_) => {
                tracing::warn!(timeout = ?REVIEW_TIMEOUT, "Nobody reviewed a token in time");
                return Err(Refusal::Unavailable);
            }
        };
        judge(status, self.audience, &self.resolvers)
    }
}

// === impl Refusal ===

impl Refusal {
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Wrong(_) => "wrong",
            Self::Stranger(_) => "stranger",
            Self::Unavailable => "unavailable",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Missing | Self::Wrong(_) => StatusCode::UNAUTHORIZED,
            Self::Stranger(_) => StatusCode::FORBIDDEN,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.status();
        let text = format!("{self}\n");
        if status == StatusCode::UNAUTHORIZED {
            return (status, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response();
        }
        (status, text).into_response()
    }
}

// === impl Known ===

impl Known {
    async fn verdict(&self, token: &str, review: impl AsyncFnOnce() -> Verdict) -> Verdict {
        let entry = self.entry(Sha256::digest(token).into(), Instant::now());
        let reviewed = async || {
            let verdict = review().await;
            let lasts = match verdict {
                Ok(()) => TRUSTED_FOR,
                Err(Refusal::Unavailable) => Duration::ZERO,
                Err(_) => REFUSED_FOR,
            };
            (verdict, Instant::now() + lasts)
        };
        entry.verdict.get_or_init(reviewed).await.0.clone()
    }

    fn entry(&self, digest: [u8; 32], now: Instant) -> Entry {
        let mut known = self.0.lock();
        if let Some(entry) = known.get(&digest).filter(|entry| !entry.is_over(now)) {
            return entry.clone();
        }
        if known.len() >= MOST_KNOWN {
            known.retain(|_, entry| !entry.is_over(now));
        }
        if known.len() >= MOST_KNOWN {
            let oldest = known.iter().min_by_key(|(_, entry)| entry.since);
            if let Some(digest) = oldest.map(|(digest, _)| *digest) {
                known.remove(&digest);
            }
        }
        let entry = Entry {
            since: now,
            verdict: Arc::default(),
        };
        known.insert(digest, entry.clone());
        entry
    }
}

// === impl Entry ===

impl Entry {
    fn is_over(&self, now: Instant) -> bool {
        self.verdict.get().is_some_and(|(_, end)| *end <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future;
    use k8s_openapi::api::authentication::v1::UserInfo;
    use std::cell::Cell;

    /// A second of review, which counts itself.
    #[derive(Default)]
    struct Reviews(Cell<usize>);

    impl Reviews {
        async fn one(&self, verdict: Verdict) -> Verdict {
            self.0.set(self.0.get() + 1);
            time::sleep(Duration::from_secs(1)).await;
            verdict
        }
    }

    /// How many reviews so many knocks make at once.
    async fn knocks(known: &Known, token: &str, count: usize, verdict: Verdict) -> usize {
        let reviews = Reviews::default();
        let all =
            (0..count).map(|_| known.verdict(token, async || reviews.one(verdict.clone()).await));
        let all = future::join_all(all).await;
        assert!(all.iter().all(|one| *one == verdict), "{all:?}");
        reviews.0.get()
    }

    fn wrong() -> Verdict {
        Err(Refusal::Wrong("expired".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn many_knocks_with_one_new_token_make_one_review() {
        let known = Known::default();
        assert_eq!(knocks(&known, "a", 100, Ok(())).await, 1);
        assert_eq!(knocks(&known, "b", 100, wrong()).await, 1);
        assert_eq!(knocks(&known, "c", 100, Err(Refusal::Unavailable)).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_trusted_for_a_minute_and_refused_for_ten_seconds() {
        for (verdict, lasts) in [(Ok(()), 60), (wrong(), 10)] {
            let known = Known::default();
            assert_eq!(knocks(&known, "a", 1, verdict.clone()).await, 1);
            time::advance(Duration::from_millis(lasts * 1000 - 1)).await;
            assert_eq!(knocks(&known, "a", 1, verdict.clone()).await, 0);
            time::advance(Duration::from_millis(1)).await;
            assert_eq!(knocks(&known, "a", 1, verdict).await, 1, "asked again");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_asked_again_at_once() {
        let known = Known::default();
        assert_eq!(knocks(&known, "a", 1, Err(Refusal::Unavailable)).await, 1);
        assert_eq!(knocks(&known, "a", 1, Ok(())).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_knock_that_goes_away_leaves_the_review_to_the_next() {
        let known = Known::default();
        let gone = known.verdict("a", async || future::pending().await);
        assert!(time::timeout(Duration::from_secs(1), gone).await.is_err());
        assert_eq!(knocks(&known, "a", 1, Ok(())).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_makes_room_before_what_is_oldest() {
        let known = Known::default();
        assert_eq!(knocks(&known, "oldest", 1, Ok(())).await, 1);
        assert_eq!(knocks(&known, "over", 1, wrong()).await, 1);
        time::advance(REFUSED_FOR).await;
        let fill = |range: std::ops::Range<usize>| {
            let known = &known;
            let all = range.map(|number| async move {
                known.verdict(&number.to_string(), async || Ok(())).await
            });
            future::join_all(all)
        };
        fill(2..MOST_KNOWN + 1).await;
        assert_eq!(known.0.lock().len(), MOST_KNOWN);
        assert_eq!(knocks(&known, "oldest", 1, Ok(())).await, 0, "still known");
        fill(0..1).await;
        assert_eq!(known.0.lock().len(), MOST_KNOWN);
        assert_eq!(knocks(&known, "oldest", 1, Ok(())).await, 1, "forgotten");
    }

    #[test]
    fn resolvers_with_a_token_for_us_are_admitted_and_no_others() {
        let verdict = |authenticated, audience: &str, user: &str| {
            let status = TokenReviewStatus {
                authenticated: Some(authenticated),
                audiences: (!audience.is_empty()).then(|| vec![audience.into()]),
                user: Some(UserInfo {
                    username: Some(user.into()),
                    ..UserInfo::default()
                }),
                error: None,
            };
            let verdict = judge(status, "elasti-operator", "system:serviceaccount:elasti:");
            verdict.map_err(|refusal| refusal.category())
        };
        let resolver = "system:serviceaccount:elasti:elasti-resolver";
        assert_eq!(verdict(true, "elasti-operator", resolver), Ok(()));
        assert_eq!(verdict(false, "elasti-operator", resolver), Err("wrong"));
        assert_eq!(verdict(true, "kubernetes", resolver), Err("wrong"));
        assert_eq!(verdict(true, "", resolver), Err("wrong"));
        for user in [
            "system:serviceaccount:elasti2:a",
            "system:serviceaccount:elasti:",
            "admin",
            "",
        ] {
            assert_eq!(
                verdict(true, "elasti-operator", user),
                Err("stranger"),
                "{user}"
            );
        }
    }

    #[test]
    fn a_token_is_found_whatever_the_case_of_its_scheme() {
        let found = |value: &str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(found("Bearer a.b.c").as_deref(), Some("a.b.c"));
        assert_eq!(found("bearer  a.b.c").as_deref(), Some("a.b.c"));
        for value in ["Bearer", "Bearer ", "Basic a.b.c", "a.b.c", ""] {
            assert_eq!(found(value), None, "{value:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn a_refusal_has_a_status_and_asks_for_a_token_only_where_one_would_help() {
        for (refusal, status, asks) in [
            (Refusal::Missing, 401, true),
            (Refusal::Wrong("expired".into()), 401, true),
            (Refusal::Stranger("admin".into()), 403, false),
            (Refusal::Unavailable, 503, false),
        ] {
            let response = refusal.into_response();
            assert_eq!(response.status(), status);
            let asked = response.headers().get(header::WWW_AUTHENTICATE);
            assert_eq!(asked.is_some(), asks);
        }
    }
}
