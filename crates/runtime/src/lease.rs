//! Leader election on a `coordination.k8s.io/v1` Lease.

mod ballot;
mod claim;
mod record;
mod terms;

pub use self::{
    claim::Claim,
    terms::{Terms, WrongTerms},
};

use self::{
    ballot::{Ballot, Outcome},
    claim::Reign,
    record::Standing,
};
use futures::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, runtime::watcher};
use std::{convert::Infallible, pin::pin};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span, warn};

/// A candidate for a lease, and its leader while the lease is its own.
#[derive(Debug)]
pub struct Leadership {
    ballot: Ballot,
    terms: Terms,
    reign: Reign,
}

// === impl Leadership ===

impl Leadership {
    /// `identity` is of this process alone: whoever bears it takes the lease for its own.
    pub fn new(
        client: Client,
        namespace: &str,
        name: impl Into<String>,
        identity: impl Into<String>,
        terms: Terms,
    ) -> Self {
        let api = Api::namespaced(client, namespace);
        Self {
            ballot: Ballot::new(api, name.into(), identity.into(), terms),
            terms,
            reign: Reign::new(terms.renew()),
        }
    }

    pub fn claim(&self) -> Claim {
        self.reign.claim()
    }

    /// Campaigns and leads until `shutdown`, then ends the claim and gives the lease back. To be
    /// shut down after the last writer: the next leader begins at that moment.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let span = info_span!(
            "lease",
            name = self.ballot.name(),
            identity = self.ballot.identity()
        );
        async {
            if let Some(never) = shutdown.run_until_cancelled(self.campaign()).await {
                match never {}
            }
            self.reign.end();
            self.give_back().await;
        }
        .instrument(span)
        .await;
    }

    async fn campaign(&mut self) -> Infallible {
        loop {
            self.follow().await;
            info!("Leading");
            self.lead().await;
            warn!("Leading no longer");
        }
    }

    /// Until the lease is ours. It is watched so that a change is known at once, and looked at
    /// every retry period all the same, for where watching is forbidden or has silently died.
    async fn follow(&mut self) {
        let mut news = pin!(self.ballot.news());
        loop {
            let expiry = self.try_once().await;
            if self.reign.until().is_some() {
                return;
            }
            let next = Instant::now() + self.terms.pause();
            self.wait_for_chance(&mut news, expiry, next).await;
        }
    }

    async fn wait_for_chance(
        &mut self,
        news: &mut (impl Stream<Item = watcher::Result<Option<Lease>>> + Unpin),
        mut expiry: Option<Instant>,
        latest: Instant,
    ) {
        loop {
            let next = expiry.map_or(latest, |expiry| expiry.min(latest));
            let seen = tokio::select! {
                () = sleep_until(next) => return,
                Some(seen) = news.next() => seen,
            };
            match seen.map(|lease| lease.map(|lease| self.ballot.standing(&lease))) {
                Ok(Some(Standing::Held { until })) => expiry = Some(until),
                Ok(_) => return,
                Err(error) => debug!(%error, "Could not watch the lease"),
            }
        }
    }

    /// Until the claim has lapsed, or the lease is seen to be another's.
    async fn lead(&mut self) {
        while let Some(until) = self.reign.until() {
            let next = Instant::now() + self.terms.pause();
            sleep_until(next.min(until)).await;
            // Past the deadline nothing is sent: that is for a follower to do.
            if self.reign.until().is_some() {
                let _ = timeout_at(until, self.try_once()).await;
            }
        }
        self.reign.end();
    }

    /// When the lease is another's: until when, if nothing more is heard.
    async fn try_once(&mut self) -> Option<Instant> {
        let sent = Instant::now();
        let answer = timeout(self.terms.patience(), self.ballot.cast()).await;
        match answer {
            Ok(Ok(Outcome::Ours)) => self.reign.extend(sent),
            Ok(Ok(Outcome::Theirs { until })) => {
                self.reign.end();
                return Some(until);
            }
            Ok(Err(error)) => warn!(%error, "Could not reach the lease"),
            Err(_) => warn!("Could not reach the lease in time"),
        }
        None
    }

    async fn give_back(&mut self) {
        match timeout(self.terms.patience(), self.ballot.withdraw()).await {
            Ok(Ok(true)) => info!("Gave the lease back"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => warn!(%error, "Could not give the lease back"),
            Err(_) => warn!("Could not give the lease back in time"),
        }
    }
}
