//! KubeElasti's routes for people and dashboards.

use crate::directory::Directory;
use axum::{
    Json, Router,
    extract::{Query, State},
    routing::get,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
struct Wanted {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    service: String,
}

pub fn router(directory: Arc<Directory>) -> Router {
    Router::new()
        .route("/queue-status", get(queue_status))
        .route("/crd-cache-status", get(crd_cache_status))
        .with_state(directory)
}

/// Whether anybody waits for a service.
async fn queue_status(
    State(directory): State<Arc<Directory>>,
    Query(wanted): Query<Wanted>,
) -> Json<Value> {
    let room = directory.room(&wanted.namespace, &wanted.service);
    let waits = room.is_some_and(|room| room.waiting() > 0);
    Json(json!({"queueStatus": u8::from(waits)}))
}

async fn crd_cache_status(State(directory): State<Arc<Directory>>) -> Json<Value> {
    let services: Vec<Value> = directory
        .rooms()
        .into_iter()
        .map(|(service, declared)| {
            let object = &declared.object;
            json!({
                "namespacedName": service.to_string(),
                "name": object.metadata.name,
                "spec": object.spec,
                "status": object.status.clone().unwrap_or_default(),
            })
        })
        .collect();
    Json(json!({"count": services.len(), "services": services}))
}

#[cfg(test)]
mod tests;
