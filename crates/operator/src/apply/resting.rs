//! Resolver ports at rest, in a ConfigMap: the next leader must know of them, too.

use super::{Error, FIELD_MANAGER};
use crate::clock;
use elasti_core::ports::REST;
use elasti_runtime::watch::Key;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{collections::BTreeMap, mem};
use tokio::sync::Mutex as Turn;

/// Writes many at once: whoever waits for its turn finds its ports written by the one before.
pub(crate) struct Resting {
    map: Key,
    waiting: Mutex<Vec<u16>>,
    /// Written, by number.
    written: Turn<BTreeMap<u16, Timestamp>>,
}

/// What an earlier leader wrote down.
pub(crate) async fn read(client: &Client, map: &Key) -> Result<BTreeMap<u16, Timestamp>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &map.namespace);
    let found = api.get_opt(&map.name).await?;
    let data = found.and_then(|map| map.data).unwrap_or_default();
    let parsed = data
        .iter()
        .filter_map(|(port, since)| Some((port.parse().ok()?, since.parse().ok()?)));
    Ok(parsed.collect())
}

// === impl Resting ===

impl Resting {
    pub(crate) fn new(map: Key) -> Self {
        Self {
            map,
            waiting: Mutex::default(),
            written: Turn::default(),
        }
    }

    pub(crate) async fn learn(&self, written: BTreeMap<u16, Timestamp>) {
        *self.written.lock().await = written;
    }

    pub(super) async fn write(&self, client: &Client, ports: &[u16]) -> Result<(), Error> {
        self.waiting.lock().extend(ports);
        let mut written = self.written.lock().await;
        let waiting = mem::take(&mut *self.waiting.lock());
        if waiting.is_empty() {
            return Ok(());
        }
        let now = clock::now();
        let over = |since: &Timestamp| now.duration_since(*since) > REST;
        let rested: Vec<u16> = written
            .extract_if(.., |_, since| over(since))
            .map(|(port, _)| port)
            .collect();
        let mut data: BTreeMap<String, Value> = BTreeMap::new();
        data.extend(rested.iter().map(|port| (port.to_string(), Value::Null)));
        data.extend(waiting.iter().map(|port| (port.to_string(), json!(now))));
        match self.patch(client, data).await {
            // Nobody may wait for ever for a permission.
            Err(error) if error.category() == "forbidden" => {
                tracing::error!(%error, "Cannot write down which resolver ports rest");
                Ok(())
            }
            Ok(()) => {
                written.extend(waiting.into_iter().map(|port| (port, now)));
                Ok(())
            }
            Err(error) => {
                self.waiting.lock().extend(waiting);
                Err(error)
            }
        }
    }

    async fn patch(&self, client: &Client, data: BTreeMap<String, Value>) -> Result<(), Error> {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &self.map.namespace);
        let patch = Patch::Merge(json!({"data": data}));
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            ..PatchParams::default()
        };
        match api.patch(&self.map.name, &params, &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            outcome => return Ok(outcome.map(drop)?),
        }
        let texts = data
            .into_iter()
            .filter_map(|(port, since)| Some((port, since.as_str()?.to_owned())));
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.map.name.to_string()),
                ..ObjectMeta::default()
            },
            data: Some(texts.collect()),
            ..ConfigMap::default()
        };
        api.create(&PostParams::default(), &map).await?;
        Ok(())
    }
}
