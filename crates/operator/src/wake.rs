//! The wake server: resolvers knock here, and read the directory of services.

use crate::{
    apply::{self, Done},
    clock,
    facts::{Declared, Understood},
    index::{Index, Kind, scaled_object_key},
    operator::Operator,
    say,
    token::Tokens,
};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Request, State},
    http::{Method, StatusCode},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use elasti_api::{
    Attached, ElastiService, Mode,
    wire::{
        DIRECTORY_PATH, Directory, DirectoryEntry, INCOMING_REQUEST_PATH, IncomingRequest, Received,
    },
};
use elasti_core::plan::{Autoscaler, Target};
use elasti_runtime::watch::Key;
use jiff::{SignedDuration, Timestamp};
use kube::api::ApiResource;
use parking_lot::Mutex;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// For whom the tokens of resolvers are made out.
const AUDIENCE: &str = "elasti-operator";

const MAX_BODY: usize = 16 * 1024;
/// How often a replica that does not lead tells of the same service.
const TELL_AGAIN: SignedDuration = SignedDuration::from_secs(1);
/// For one attempt to wake a target.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(250);
/// By then the watch has told of a wake, or it fails.
const TOLD: Duration = Duration::from_secs(1);
/// For as long after a knock somebody may wait.
const AWAITED: SignedDuration = SignedDuration::from_secs(60);
const WARN_AGAIN: Duration = Duration::from_secs(10);

/// Services that somebody knocks for and no ElastiService names: counted, and told now and then.
#[derive(Default)]
pub(crate) struct Strangers(Mutex<Option<Instant>>);

pub(crate) fn router(operator: Arc<Operator>) -> Router {
    let routes = Router::new()
        .route(INCOMING_REQUEST_PATH, any(incoming_request))
        .route(DIRECTORY_PATH, get(directory))
        .layer(DefaultBodyLimit::max(MAX_BODY));
    let routes = if operator.settings.authenticate_knocks {
        let guard = Guard {
            tokens: Arc::new(Tokens::new(
                operator.client.clone(),
                AUDIENCE,
                &operator.settings.resolver_namespace,
            )),
            operator: operator.clone(),
        };
        routes.layer(from_fn_with_state(guard, admit))
    } else {
        routes
    };
    routes.with_state(operator)
}

#[derive(Clone)]
struct Guard {
    tokens: Arc<Tokens>,
    operator: Arc<Operator>,
}

async fn admit(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.tokens.admit(request.headers()).await {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            guard.operator.metrics.knocked(refusal.category());
            refusal.into_response()
        }
    }
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
        operator.metrics.knocked("malformed");
        return (StatusCode::BAD_REQUEST, "Invalid request body").into_response();
    };
    knock(&operator, &Key::new(&request.namespace, &request.svc));
    Json(Received::default()).into_response()
}

/// Wakes the service's target and those that wake with it.
fn knock(operator: &Operator, service: &Key) {
    let now = clock::now();
    let (woken, awake) = operator.note(|index| {
        let first = index.owner_of_service(service).cloned();
        let woken = first.map_or_else(BTreeSet::new, |first| together(index, first));
        for key in &woken {
            index.remember(key, |memory| {
                memory.last_knock = Some(now);
                memory.first_knock = memory.first_knock.or(Some(now));
            });
        }
        // One that is up may be falling asleep: whoever plans that has to look again.
        let is_up = |key: &&Key| Sleeper::find(index, key, now).is_none();
        let awake: Vec<Key> = woken.iter().filter(is_up).cloned().collect();
        (woken, awake)
    });
    operator.work.push_all(awake);
    if woken.is_empty() {
        operator.metrics.knocked("unknown_service");
        operator.strangers.tell(service);
        return;
    }
    operator.metrics.knocked("accepted");
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
        let attempt = timeout(PATIENCE, answer(operator, &key)).await;
        if attempt != Ok(true) && operator.read(|index| is_awaited(index, &key, clock::now())) {
            operator.wakes.push(key.clone(), Instant::now() + RETRY);
        }
        operator.wakes.done(&key);
        operator.resume_work();
    }
}

/// Whether a knock is so recent that somebody may wait for what it asked for.
fn is_awaited(index: &Index, key: &Key, now: Timestamp) -> bool {
    let knock = index.memory(key).last_knock;
    knock.is_some_and(|knock| now.duration_since(knock) < AWAITED)
}

/// `false` if something failed that may succeed later.
async fn answer(operator: &Operator, key: &Key) -> bool {
    let woken = rouse(operator, key).await;
    tell_leader(operator, key).await && woken
}

/// Wakes the target if it sleeps, or may. `false` if that failed.
pub(crate) async fn rouse(operator: &Operator, key: &Key) -> bool {
    let sleeper = operator.read(|index| Sleeper::find(index, key, clock::now()));
    match sleeper {
        Some(sleeper) => wake(operator, key, &sleeper).await,
        None => true,
    }
}

/// Whoever leads may be about to put the target to sleep.
async fn tell_leader(operator: &Operator, key: &Key) -> bool {
    if operator.claim.holds() {
        return true;
    }
    let Some(knock) = operator.read(|index| untold(index, key)) else {
        return true;
    };
    if let Err(error) = apply::write_knock(&operator.client, key, knock).await {
        tracing::warn!(elasti_service = %key, %error, "Could not tell the leader of a knock");
        return false;
    }
    operator.note(|index| index.remember(key, |memory| memory.told = Some(knock)));
    true
}

/// The last knock for a service that is not plainly awake.
fn untold(index: &Index, key: &Key) -> Option<Timestamp> {
    let Some(Declared::Understood(object)) = index.declared(key) else {
        return None;
    };
    let mode = object.status.as_ref().and_then(|status| status.mode);
    let plainly_awake = mode == Some(Mode::Serve) && !is_proxied(index, key, object);
    let memory = index.memory(key);
    let knock = memory.last_knock?;
    let told = memory
        .told
        .is_some_and(|told| knock.duration_since(told) < TELL_AGAIN);
    (!plainly_awake && !told).then_some(knock)
}

fn is_proxied(index: &Index, key: &Key, object: &ElastiService) -> bool {
    let service = key.beside(&object.spec.service);
    index.slices_of(&service).any(|(_, slice)| slice.ours)
}

/// A target at zero, and what it takes to wake it.
struct Sleeper {
    object: Understood,
    resource: ApiResource,
    /// Its autoscaler may be: a pause that cannot be seen is one that may be there.
    paused: bool,
}

impl Sleeper {
    /// One that cannot be seen may sleep, too: asking costs one call.
    fn find(index: &Index, key: &Key, now: Timestamp) -> Option<Self> {
        let Some(Declared::Understood(object)) = index.declared(key) else {
            return None;
        };
        let target = &object.spec.scale_target_ref;
        let kind = Kind::from(target);
        let may_sleep = match index.target_of(key, object, now) {
            Target::Found { replicas: 0 } => true,
            Target::Found { .. } => !index.sees_target(&kind, &key.beside(&target.name)),
            Target::Unknown(_) => true,
            Target::Missing => false,
        };
        let may_wake = may_sleep
            && (!object.spec.dry_run || is_proxied(index, key, object))
            && index.rival_of(key, object).is_none();
        let autoscaler = scaled_object_key(key, object).map(|key| index.scaled_object(&key));
        may_wake.then(|| Self {
            object: object.clone(),
            resource: index.resource_of(&kind),
            paused: matches!(
                autoscaler,
                Some(Autoscaler::Paused | Autoscaler::Missing | Autoscaler::Unknown)
            ),
        })
    }
}

async fn wake(operator: &Operator, key: &Key, sleeper: &Sleeper) -> bool {
    let Sleeper {
        object,
        resource,
        paused,
    } = sleeper;
    let woken = apply::wake(&operator.client, key, object, resource, *paused).await;
    let now = clock::now();
    match &woken.scaled {
        Ok(Done::Scaled(scaled)) => {
            tracing::info!(elasti_service = %key, from = scaled.from, to = scaled.to, "Woke the target");
            operator.note(|index| {
                index.remember(key, |memory| {
                    memory.last_active = Some(now);
                    memory.zeroed = None;
                });
            });
            // The watch tells of it in a moment, and then there is more to say.
            operator.work.push(key.clone(), Instant::now() + TOLD);
        }
        Ok(Done::Quietly) => {}
        Err(error) => {
            tracing::warn!(elasti_service = %key, %error, "Could not wake the target");
        }
    }
    if let Err(error) = &woken.resumed {
        tracing::warn!(elasti_service = %key, %error, "Could not resume its autoscaler");
    }
    let about = Attached::from(&object.spec);
    operator.metrics.scaled(key, &about, &woken.scaled);
    say::scaled(operator, object, &about.target, &woken.scaled);
    let failures = [woken.resumed.err(), woken.scaled.err()];
    let mut failures = failures.iter().flatten().peekable();
    if failures.peek().is_some() {
        // Whoever leads goes on trying, though nobody knocks again.
        operator.work.push_all([key.clone()]);
    }
    // What is not there or not allowed is no better in a moment.
    failures.all(|error| matches!(error.category(), "not_found" | "forbidden" | "invalid"))
}

async fn directory(State(operator): State<Arc<Operator>>) -> Json<Directory> {
    let owners: Vec<(Key, Understood)> = operator.read(|index| {
        let owns = |(key, object): &(&Key, &Understood)| {
            index.owner_of_service(&key.beside(&object.spec.service)) == Some(*key)
        };
        index
            .understood()
            .filter(owns)
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect()
    });
    let entry = |(key, object): (Key, Understood)| {
        let object = object.whole();
        let mut status = object.status.clone().unwrap_or_default();
        // Headers of probes may hold credentials.
        status.readiness = None;
        let entry = DirectoryEntry {
            name: key.name.to_string(),
            spec: object.spec.clone(),
            status,
        };
        (key.beside(&object.spec.service).to_string(), entry)
    };
    Json(Directory {
        services: owners.into_iter().map(entry).collect(),
    })
}

// === impl Strangers ===

impl Strangers {
    fn tell(&self, service: &Key) {
        let now = Instant::now();
        let mut told = self.0.lock();
        if told.is_none_or(|told| now.duration_since(told) >= WARN_AGAIN) {
            *told = Some(now);
            tracing::warn!(%service, "Knocks for a service that no ElastiService names");
        }
    }
}
