use super::{PATIENCE, Stage};
use anyhow::{Context, Result};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Event;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::time;

// === impl Stage ===

impl Stage<'_> {
    /// The first event with this reason about this kind, past or to come.
    pub async fn said(&self, reason: &str, kind: &str) -> Result<Event> {
        let events = watcher(self.api::<Event>(), watcher::Config::default()).applied_objects();
        pin_mut!(events);
        let heard = async {
            while let Some(event) = events.next().await {
                let event = event?;
                if event.reason.as_deref() == Some(reason)
                    && event.involved_object.kind.as_deref() == Some(kind)
                {
                    return Ok(event);
                }
            }
            anyhow::bail!("the watch of the events ended")
        };
        time::timeout(PATIENCE, heard)
            .await
            .with_context(|| format!("waiting for the event {reason} on the {kind}"))?
    }
}
