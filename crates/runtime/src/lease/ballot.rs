use super::{
    record::{self, Observed, Standing},
    terms::Terms,
};
use futures::Stream;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, watch_object},
    },
};
use tokio::time::Instant;

/// One candidate's dealings with the lease. What is written bears the version that was read, so of
/// two that write at once one is refused.
#[derive(Debug)]
pub(super) struct Ballot {
    api: Api<Lease>,
    name: String,
    identity: String,
    terms: Terms,
    observed: Observed,
    /// What we wrote last, to be written again without reading. Gone after any doubt.
    written: Option<Lease>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Ours,
    Theirs { until: Instant },
}

// === impl Ballot ===

impl Ballot {
    pub(super) fn new(api: Api<Lease>, name: String, identity: String, terms: Terms) -> Self {
        Self {
            api,
            name,
            identity,
            terms,
            observed: Observed::default(),
            written: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// The lease at each change, and nothing where there is none.
    pub(super) fn news(&self) -> impl Stream<Item = watcher::Result<Option<Lease>>> + Send + use<> {
        watch_object(self.api.clone(), &self.name).default_backoff()
    }

    pub(super) fn standing(&mut self, lease: &Lease) -> Standing {
        let now = Instant::now();
        self.observed
            .standing(lease, &self.identity, &self.terms, now)
    }

    /// Writes our name where the lease is free or ours.
    pub(super) async fn cast(&mut self) -> kube::Result<Outcome> {
        match self.cast_once().await {
            Err(error) if lost_race(&error) => self.cast_once().await,
            outcome => outcome,
        }
    }

    async fn cast_once(&mut self) -> kube::Result<Outcome> {
        let written = match self.current().await? {
            None => self.create().await?,
            Some(lease) => match self.standing(&lease) {
                Standing::Held { until } => return Ok(Outcome::Theirs { until }),
                Standing::Free | Standing::Ours => self.replace(self.claimed(lease)).await?,
            },
        };
        self.written = Some(written);
        Ok(Outcome::Ours)
    }

    /// Takes our name out of the lease, if it is there.
    pub(super) async fn withdraw(&mut self) -> kube::Result<bool> {
        match self.withdraw_once().await {
            Err(error) if lost_race(&error) => self.withdraw_once().await,
            outcome => outcome,
        }
    }

    async fn withdraw_once(&mut self) -> kube::Result<bool> {
        match self.current().await? {
            Some(lease) if record::holder(&lease) == self.identity => {
                self.replace(record::vacated(lease)).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn current(&mut self) -> kube::Result<Option<Lease>> {
        match self.written.take() {
            None => self.api.get_opt(&self.name).await,
            written => Ok(written),
        }
    }

    async fn create(&self) -> kube::Result<Lease> {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            ..ObjectMeta::default()
        };
        let lease = self.claimed(Lease {
            metadata,
            spec: None,
        });
        self.api.create(&PostParams::default(), &lease).await
    }

    async fn replace(&self, lease: Lease) -> kube::Result<Lease> {
        let params = PostParams::default();
        self.api.replace(&self.name, &params, &lease).await
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the times in the record are for people to read: no decision takes them"
    )]
    fn claimed(&self, lease: Lease) -> Lease {
        record::claimed(lease, &self.identity, &self.terms, Timestamp::now())
    }
}

/// The lease was written, made or removed by another since we knew it: to be read again.
fn lost_race(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    status.is_conflict() || status.is_already_exists() || status.is_not_found()
}
