//! What a visitor says to each of them, and hears. It is in the cluster: who is not does not reach its services.

use crate::apps::{NAMESPACE, VISITOR};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{AttachParams, AttachedProcess, ListParams},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Somebody who is about to ask: what it takes to get there is no part of the time that the answer takes.
pub(crate) struct Visitor(AttachedProcess);

// === impl Visitor ===

impl Visitor {
    pub(crate) async fn comes(client: &Client, question: &[&str]) -> Result<Self> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let them = ListParams::default().labels(&format!("app={VISITOR}"));
        let pods_now = pods.list(&them).await?;
        let mut staying = pods_now
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let pod = staying.next().context("nobody visits")?.name_any();
        let command = ["/elasti-echo", "wait"]
            .into_iter()
            .chain(question.to_vec());
        let streams = AttachParams::default().stdin(true);
        let process = pods.exec(&pod, command, &streams).await;
        Ok(Self(process.context("asking from within the cluster")?))
    }

    pub(crate) async fn asks(mut self) -> Result<String> {
        let streams = (self.0.stdin(), self.0.stdout(), self.0.stderr());
        let (Some(mut go), Some(mut answer), Some(mut complaint)) = streams else {
            anyhow::bail!("a visitor hears and speaks");
        };
        go.write_all(b"\n").await?;
        let (mut heard, mut lost) = (String::new(), String::new());
        tokio::try_join!(
            answer.read_to_string(&mut heard),
            complaint.read_to_string(&mut lost)
        )?;
        ensure!(lost.is_empty(), "the visitor got no answer: {lost}");
        Ok(heard.trim().to_owned())
    }
}
