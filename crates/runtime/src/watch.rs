//! One watch over a kind, feeding an index. A re-list is a normal event: it replaces all that was
//! known, so it can leave no ghosts. A watch that fails is retried for ever and harms no other.

use crate::pool::shared;
use backon::ExponentialBuilder;
use futures::{StreamExt, pin_mut};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        utils::ResetTimerBackoff,
        watcher::{self, Event, ExponentialBackoff},
    },
};
use serde::de::DeserializeOwned;
use std::{fmt, mem, sync::Arc, time::Duration};
use tokio::time::timeout;

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
    let events = watcher::watcher(api, config).backoff(backoff());
    pin_mut!(events);
    let mut listed = Vec::new();
    let mut health = Health::Starting;
    let mut known = false;
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
        if health != now {
            health = now;
            report(health.clone());
        }
    }
}

/// Short enough that an API server that comes back is noticed in seconds.
fn backoff() -> ResetTimerBackoff<ExponentialBackoff> {
    let growing = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times();
    ResetTimerBackoff::new(growing.into(), Duration::from_secs(60))
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
