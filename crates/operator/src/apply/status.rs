use super::Error;
use elasti_api::{ElastiService, ElastiServiceStatus};
use elasti_runtime::watch::Key;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

/// Writes the whole status; what another version of this operator left there and we do not know
/// stays.
pub(crate) async fn write(
    client: &Client,
    key: &Key,
    status: &ElastiServiceStatus,
) -> Result<(), Error> {
    let api: Api<ElastiService> = Api::namespaced(client.clone(), &key.namespace);
    let patch = json!({"status": status});
    let written = api
        .patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    super::gone_is_fine(written.map(drop))
}
