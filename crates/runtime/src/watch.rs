//! One watch over a kind, feeding an index. A re-list is a normal event: it replaces all that was
//! known, so it can leave no ghosts. A watch that fails is retried for ever and harms no other.

use crate::pool::shared;
use futures::{StreamExt, pin_mut};
use kube::{
    Api, Resource, ResourceExt,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use std::{fmt, mem, sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// Namespace and name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// What a watch tells its index.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<F> {
    Applied(Key, F),
    Deleted(Key),
    /// Everything that there is in a scope, in place of all that was known of it.
    Listed(Scope, Vec<(Key, F)>),
}

/// What a watch covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    All,
    Namespace(Arc<str>),
}

/// How a watch is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Starting,
    Synced,
    /// The API server knows no such kind.
    Absent(String),
    /// We may not.
    Forbidden(String),
    /// In the words of the last error.
    Failing(String),
}

/// How long no error must follow an error for a watch to be well again: a watch that is resumed says
/// nothing. Longer than the longest pause between two attempts.
const CALM: Duration = Duration::from_secs(15);
/// Between two attempts, or up to twice as long.
const FIRST: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);

/// Watches until it is dropped. `strip` keeps of an object what the index needs, so that a list is
/// never held whole.
pub async fn watch<K, F>(
    api: Api<K>,
    scope: Scope,
    config: watcher::Config,
    strip: impl Fn(K) -> F,
    mut tell: impl FnMut(Change<F>),
    mut report: impl FnMut(Health),
) where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    let events = watcher::watcher(api, config);
    pin_mut!(events);
    let mut listed = Vec::new();
    let mut health = Health::Starting;
    let mut known = false;
    let mut attempts = 0;
    loop {
        let patience = match (&health, known) {
            (Health::Starting | Health::Synced, _) | (_, false) => Duration::MAX,
            _ => CALM,
        };
        let event = match timeout(patience, events.next()).await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(_) => {
                health = Health::Synced;
                report(health.clone());
                continue;
            }
        };
        let failed = event.is_err();
        let now = match event {
            Ok(Event::Init) => {
                known = false;
                listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.push((Key::of(&object), strip(object)));
                continue;
            }
            Ok(Event::InitDone) => {
                known = true;
                tell(Change::Listed(scope.clone(), mem::take(&mut listed)));
                Health::Synced
            }
            Ok(Event::Apply(object)) => {
                tell(Change::Applied(Key::of(&object), strip(object)));
                Health::Synced
            }
            Ok(Event::Delete(object)) => {
                tell(Change::Deleted(Key::of(&object)));
                Health::Synced
            }
            Err(error) => Health::from(&error),
        };
        let same = mem::discriminant(&health) == mem::discriminant(&now);
        attempts = if failed && same { attempts + 1 } else { 0 };
        if health != now {
            health = now;
            report(health.clone());
        }
        if failed {
            sleep(pause(&health, attempts)).await;
        }
    }
}

/// Before the next attempt, after so many of this kind. Others act on what they see as soon as an API server is
/// back, and we have to see it no later; but what does not exist, or is not for us, seldom changes.
fn pause(health: &Health, attempts: u32) -> Duration {
    let longest = match health {
        Health::Absent(_) | Health::Forbidden(_) => LONGEST,
        _ => LONG,
    };
    let doubled = FIRST.saturating_mul(2_u32.saturating_pow(attempts));
    doubled.min(longest).mul_f64(1.0 + fastrand::f64())
}

// === impl Health ===

impl From<&watcher::Error> for Health {
    fn from(error: &watcher::Error) -> Self {
        let status = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => status,
            other => return Self::Failing(other.to_string()),
        };
        let message = status.message.clone();
        match status.code {
            404 => Self::Absent(message),
            403 => Self::Forbidden(message),
            _ => Self::Failing(message),
        }
    }
}

impl Health {
    /// In words, if it is not well.
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Self::Starting | Self::Synced => None,
            Self::Absent(error) | Self::Forbidden(error) | Self::Failing(error) => Some(error),
        }
    }
}

// === impl Scope ===

impl Scope {
    pub fn covers(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => *namespace == key.namespace,
        }
    }
}

impl Health {
    /// Of one watch for each scope: nothing more is to be expected. A namespace that we may not see is no
    /// reason to wait, but whoever sees nothing at all is not ready for anything.
    pub fn are_settled(healths: &[Self]) -> bool {
        let is_final =
            |health: &Self| matches!(health, Self::Synced | Self::Absent(_) | Self::Forbidden(_));
        healths.iter().all(is_final) && healths.contains(&Self::Synced)
    }
}

// === impl Key ===

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: shared(namespace),
            name: shared(name),
        }
    }

    pub fn of<K: Resource>(object: &K) -> Self {
        Self::new(&object.namespace().unwrap_or_default(), &object.name_any())
    }

    /// Another object of the same namespace.
    pub fn beside(&self, name: &str) -> Self {
        Self {
            namespace: self.namespace.clone(),
            name: shared(name),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response, StatusCode};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, client::Body};
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::service_fn;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// How often somebody asks in an hour who always gets the same answer.
    async fn asked(code: StatusCode) -> usize {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let service = service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let text = json!({"status": "Failure", "code": code.as_u16(), "message": "no"});
            let answer = Response::builder().status(code);
            std::future::ready(answer.body(Body::from(text.to_string().into_bytes())))
        });
        let api: Api<ConfigMap> = Api::all(Client::new(service, "default"));
        let watching = watch(
            api,
            Scope::All,
            watcher::Config::default(),
            |_| (),
            |_| (),
            |_| (),
        );
        let _ = timeout(HOUR, watching).await;
        asked.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_fails_is_asked_every_other_second_and_one_that_forbids_less_often()
    {
        let failing = asked(StatusCode::SERVICE_UNAVAILABLE).await;
        assert!((1_800..3_700).contains(&failing), "{failing}");
        let forbidding = asked(StatusCode::FORBIDDEN).await;
        assert!((360..750).contains(&forbidding), "{forbidding}");
    }
}
