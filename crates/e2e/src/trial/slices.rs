use super::ledger::now;
use crate::stage::Stage;
use futures::{StreamExt, pin_mut};
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::{
    ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use std::{cell::RefCell, collections::VecDeque, fmt};

/// Longer than a pod takes to end.
const SECONDS: i64 = 15;
/// More than there are in that time.
const KEPT: usize = 400;

/// What clients were told of where to go, for whoever asks why one was lost.
#[derive(Default)]
pub(super) struct Slices(RefCell<VecDeque<Change>>);

#[derive(Clone)]
pub(super) struct Change {
    at: Timestamp,
    service: String,
    what: String,
}

// === impl Slices ===

impl Slices {
    /// Never ends.
    pub(super) async fn follow(&self, stage: &Stage<'_>) {
        let slices = watcher(stage.api::<EndpointSlice>(), watcher::Config::default());
        let slices = slices.default_backoff();
        pin_mut!(slices);
        while let Some(event) = slices.next().await {
            match event {
                Ok(watcher::Event::Apply(slice)) => self.note(&slice, &endpoints(&slice)),
                Ok(watcher::Event::Delete(slice)) => self.note(&slice, "is removed"),
                _ => {}
            }
        }
    }

    fn note(&self, slice: &EndpointSlice, what: &str) {
        let service = slice.labels().get("kubernetes.io/service-name");
        let mut changes = self.0.borrow_mut();
        changes.push_back(Change {
            at: now(),
            service: service.cloned().unwrap_or_default(),
            what: format!("{} {what}", slice.name_any()),
        });
        while changes.len() > KEPT {
            changes.pop_front();
        }
    }

    /// To the endpoints of a service, in the last moments.
    pub(super) fn of(&self, service: &str) -> Vec<Change> {
        let since = now() - jiff::SignedDuration::from_secs(SECONDS);
        let changes = self.0.borrow();
        let lately = |change: &&Change| change.service == service && change.at > since;
        changes.iter().filter(lately).cloned().collect()
    }
}

fn endpoints(slice: &EndpointSlice) -> String {
    let all: Vec<String> = slice.endpoints.iter().map(endpoint).collect();
    format!("lists [{}]", all.join(", "))
}

fn endpoint(endpoint: &Endpoint) -> String {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let is = [
        (conditions.ready, "ready"),
        (conditions.serving, "serving"),
        (conditions.terminating, "ending"),
    ];
    let is = is.iter().filter(|(is, _)| *is == Some(true));
    let is: Vec<&str> = is.map(|(_, word)| *word).collect();
    format!("{} {}", endpoint.addresses.join(" "), is.join(" "))
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} {}", self.at, self.what)
    }
}
