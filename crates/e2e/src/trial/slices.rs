use super::ledger::now;
use crate::stage::Stage;
use anyhow::{Error, anyhow};
use futures::{StreamExt, pin_mut};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::{
    ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use std::{cell::RefCell, collections::VecDeque, fmt};

/// Before a visit began that came to nothing: longer than a pod takes to end.
const BEFORE: SignedDuration = SignedDuration::from_secs(30);
/// More than there are in that time.
const KEPT: usize = 1_000;

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
    pub(super) async fn follow(&self, stage: &Stage<'_>) -> Error {
        let slices = watcher(stage.api::<EndpointSlice>(), watcher::Config::default());
        let slices = slices.default_backoff();
        pin_mut!(slices);
        while let Some(event) = slices.next().await {
            match event {
                Ok(watcher::Event::Apply(slice) | watcher::Event::InitApply(slice)) => {
                    self.note(&slice, &endpoints(&slice));
                }
                Ok(watcher::Event::Delete(slice)) => self.note(&slice, "is removed"),
                _ => {}
            }
        }
        anyhow!("the watch of the slices ended")
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

    /// To the endpoints of a service, since a while before that moment.
    pub(super) fn of(&self, service: &str, began: Timestamp) -> Vec<Change> {
        let since = began - BEFORE;
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
