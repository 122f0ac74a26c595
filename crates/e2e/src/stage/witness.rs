use super::Stage;
use anyhow::{Result, anyhow};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    ResourceExt,
    runtime::watcher::{self, watcher},
};
use std::collections::{HashMap, HashSet};

// === impl Stage ===

impl Stage<'_> {
    /// Plays, and fails at the first instant in which `web`, once it was served, has nobody of an address family.
    pub async fn witnessed(&self, play: impl Future<Output = Result<()>>) -> Result<()> {
        tokio::select! {
            outcome = play => outcome,
            gap = self.first_gap() => Err(gap),
        }
    }

    async fn first_gap(&self) -> anyhow::Error {
        let config = watcher::Config::default().labels("kubernetes.io/service-name=web");
        let events = watcher(self.api::<EndpointSlice>(), config);
        pin_mut!(events);
        let mut ready: HashMap<String, (String, usize)> = HashMap::new();
        let mut served = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(slice) | watcher::Event::InitApply(slice)) => {
                    let count = count_ready(&slice);
                    ready.insert(slice.name_any(), (slice.address_type, count));
                }
                Ok(watcher::Event::Delete(slice)) => {
                    ready.remove(&slice.name_any());
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                Err(error) => return error.into(),
            }
            let some = ready.values().filter(|(_, count)| *count > 0);
            let some: HashSet<String> = some.map(|(family, _)| family.clone()).collect();
            if !served.is_subset(&some) {
                return anyhow!("the public service had no endpoint: {ready:?}");
            }
            served = some;
        }
        anyhow!("the watch of the endpoints ended")
    }
}

fn count_ready(slice: &EndpointSlice) -> usize {
    let readiness = slice
        .endpoints
        .iter()
        .map(|endpoint| endpoint.conditions.as_ref()?.ready);
    readiness.filter(|ready| ready.unwrap_or(true)).count()
}
