//! When the API server tells of the target's endpoint, to any watch of it.

use crate::{clock::Moment, stage::Stage};
use anyhow::{Context, Result};
use elasti_api::names::PRIVATE_LABEL;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api,
    runtime::watcher::{self, Event, watcher},
};
use tokio::{sync::mpsc, task::JoinSet};

pub(crate) struct Witness {
    seen: mpsc::UnboundedReceiver<Told>,
    _watch: JoinSet<()>,
}

enum Told {
    Listed,
    Endpoint(Moment),
}

// === impl Witness ===

impl Witness {
    /// Returns when the watch is warm.
    pub(crate) async fn watch(stage: &Stage<'_>) -> Result<Self> {
        let (tell, seen) = mpsc::unbounded_channel();
        let slices: Api<EndpointSlice> = Api::namespaced(stage.client.clone(), stage.namespace());
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            let events = watcher(slices, watcher::Config::default().labels(PRIVATE_LABEL));
            pin_mut!(events);
            while let Some(event) = events.next().await {
                let told = match event {
                    Ok(Event::InitDone) => Told::Listed,
                    Ok(Event::Apply(_)) => Told::Endpoint(Moment::now()),
                    Ok(_) => continue,
                    Err(error) => {
                        eprintln!("watching: {error}");
                        continue;
                    }
                };
                let _ = tell.send(told);
            }
        });
        let mut witness = Self {
            seen,
            _watch: watch,
        };
        while !matches!(witness.next().await?, Told::Listed) {}
        Ok(witness)
    }

    pub(crate) async fn endpoint(&mut self) -> Result<Moment> {
        loop {
            if let Told::Endpoint(moment) = self.next().await? {
                return Ok(moment);
            }
        }
    }

    async fn next(&mut self) -> Result<Told> {
        self.seen.recv().await.context("the watch ended")
    }
}
