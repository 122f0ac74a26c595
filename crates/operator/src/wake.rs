//! The wake server: resolvers knock here, and read the directory of services.

use crate::{
    apply::{self, Done},
    clock,
    facts::Declared,
    index::{Index, Kind},
    operator::Operator,
};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use elasti_api::{
    ElastiService,
    wire::{
        DIRECTORY_PATH, Directory, DirectoryEntry, INCOMING_REQUEST_PATH, IncomingRequest, Received,
    },
};
use elasti_core::plan::Target;
use elasti_runtime::watch::Key;
use kube::api::ApiResource;
use std::{collections::BTreeSet, sync::Arc};

const MAX_BODY: usize = 16 * 1024;

pub(crate) fn router(operator: Arc<Operator>) -> Router {
    Router::new()
        .route(INCOMING_REQUEST_PATH, any(incoming_request))
        .route(DIRECTORY_PATH, get(directory))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(operator)
}

async fn incoming_request(
    State(operator): State<Arc<Operator>>,
    method: Method,
    body: Result<Bytes, axum::extract::rejection::BytesRejection>,
) -> Response {
    if method != Method::POST {
        return (StatusCode::METHOD_NOT_ALLOWED, "Invalid request method").into_response();
    }
    let parsed = body
        .ok()
        .and_then(|body| serde_json::from_slice::<IncomingRequest>(&body).ok());
    let Some(request) = parsed else {
        return (StatusCode::BAD_REQUEST, "Invalid request body").into_response();
    };
    knock(&operator, &Key::new(&request.namespace, &request.svc));
    Json(Received::default()).into_response()
}

/// Wakes the service's target and those that wake with it.
fn knock(operator: &Operator, service: &Key) {
    let now = clock::now();
    let mut woken = BTreeSet::new();
    operator.learn(|index| {
        match index.owner_of_service(service).cloned() {
            Some(first) => woken = together(index, first),
            None => tracing::debug!(%service, "Knock for a service that no ElastiService names"),
        }
        for key in &woken {
            index.remember(key, |memory| memory.last_knock = Some(now));
        }
        woken.clone()
    });
    operator.wakes.push_all(woken);
}

/// Follows `wakeWith`; cycles are fine.
fn together(index: &Index, first: Key) -> BTreeSet<Key> {
    let mut found = BTreeSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(key) = open.pop() {
        let Some(Declared::Understood(object)) = index.declared(&key) else {
            continue;
        };
        for name in &object.spec.wake_with {
            let other = key.beside(name);
            if found.insert(other.clone()) {
                open.push(other);
            }
        }
    }
    found
}

/// Scales up at once, on any replica and without waiting for a reconcile; many knocks for one
/// service make one call. Works until it is dropped.
pub(crate) async fn work(operator: &Operator) {
    loop {
        let key = operator.wakes.next().await;
        if let Some((object, resource)) = operator.read(|index| asleep(index, &key)) {
            wake(operator, &key, &object, &resource).await;
        }
        operator.wakes.done(&key);
    }
}

fn asleep(index: &Index, key: &Key) -> Option<(Arc<ElastiService>, ApiResource)> {
    let Some(Declared::Understood(object)) = index.declared(key) else {
        return None;
    };
    let target = &object.spec.scale_target_ref;
    let kind = Kind::from(target);
    let is_asleep = index.target(&kind, &key.beside(&target.name)) == Target::Found { replicas: 0 };
    (is_asleep && !object.spec.dry_run && index.rival_of(key, object).is_none())
        .then(|| (object.clone(), index.resource_of(&kind)))
}

async fn wake(operator: &Operator, key: &Key, object: &ElastiService, resource: &ApiResource) {
    let done = apply::wake(&operator.client, key, object, resource).await;
    let now = clock::now();
    match &done {
        Ok(Done::Scaled(scaled)) => {
            tracing::info!(elasti_service = %key, from = scaled.from, to = scaled.to, "Woke the target");
            operator.learn(|index| {
                index.remember(key, |memory| memory.last_active = Some(now));
                BTreeSet::from([key.clone()])
            });
        }
        Ok(Done::Quietly) => {}
        Err(error) => tracing::warn!(elasti_service = %key, %error, "Could not wake the target"),
    }
    operator.metrics.scaled(key, object, &done);
    crate::say::scaled(operator, object, &done).await;
}

async fn directory(State(operator): State<Arc<Operator>>) -> Json<Directory> {
    Json(operator.read(|index| {
        Directory {
            services: index
                .understood()
                .filter(|(key, object)| {
                    index.owner_of_service(&key.beside(&object.spec.service)) == Some(*key)
                })
                .map(|(key, object)| {
                    let entry = DirectoryEntry {
                        name: key.name.to_string(),
                        spec: object.spec.clone(),
                        status: object.status.clone().unwrap_or_default(),
                    };
                    (key.beside(&object.spec.service).to_string(), entry)
                })
                .collect(),
        }
    }))
}
