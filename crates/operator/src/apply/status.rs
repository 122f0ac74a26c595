use super::{
    Error, as_stored, gone_is_fine,
    request::{self, Write},
};
use elasti_api::ElastiServiceStatus;
use elasti_runtime::watch::Key;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use serde_json::{Value, json};

/// What a status may no longer say.
const OPTIONAL: [&str; 7] = [
    "mode",
    "phase",
    "replicas",
    "ports",
    "attached",
    "lastWake",
    "readiness",
];

/// Writes the whole status; what another version of this operator left there and we do not know
/// stays, and so does what other replicas tell.
pub(crate) async fn write(
    client: &Client,
    key: &Key,
    status: &ElastiServiceStatus,
) -> Result<(), Error> {
    let mut status = json!(status);
    if let Some(fields) = status.as_object_mut() {
        fields.remove("lastKnockTime");
        for name in OPTIONAL {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    patch(client, key, &json!({"status": status})).await
}

/// Tells the replica that leads of a knock, through the one place that all of them see. A later
/// moment beats an earlier one, so any replica may write it.
pub(crate) async fn write_knock(client: &Client, key: &Key, at: Timestamp) -> Result<(), Error> {
    patch(client, key, &json!({"status": {"lastKnockTime": Time(at)}})).await
}

async fn patch(client: &Client, key: &Key, patch: &Value) -> Result<(), Error> {
    let path = request::path(&as_stored(client, key), &format!("{}/status", key.name));
    gone_is_fine(request::write(client, &path, Write::Merge, patch).await)
}
