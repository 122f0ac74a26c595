//! Errors and panics, reported to Sentry.

mod budget;
mod panics;
mod post;

use self::{budget::Budget, post::Post};
use parking_lot::Mutex;
use sentry_core::{Client, ClientOptions, Hub, Level, types::Dsn};
use sentry_tracing::{BreadcrumbLayer, ErrorLayer};
use std::{io, sync::Arc, time::Duration};
use tokio::time::Instant;
use tracing::{Event, Subscriber};
use tracing_subscriber::{layer::Context, registry::LookupSpan};

const LAST_WORDS: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// None, or an empty one, reports nothing.
    pub dsn: Option<&'a str>,
    pub environment: Option<&'a str>,
    /// Such as `elasti-operator@1.2.3`.
    pub release: &'a str,
    /// The pod.
    pub server: Option<&'a str>,
}

/// Reports until it is dropped, which may take two seconds: what is on its way is sent first.
#[must_use = "dropping it ends reporting"]
pub struct Sentry(Option<Reporter>);

struct Reporter {
    client: Arc<Client>,
    hub: Arc<Hub>,
}

/// Turns what is logged as error into reports, and what was logged before it into their history.
pub struct Layer {
    hub: Arc<Hub>,
    errors: ErrorLayer,
    history: BreadcrumbLayer,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    // Never the value: it may hold a secret.
    #[error(
        "SENTRY_DSN is no DSN ({0}): right would be https://<public key>@<host>/<project>, or \
         nothing"
    )]
    Dsn(String),
    #[error("starting to report to Sentry: {0}")]
    Start(#[from] io::Error),
}

/// Without a DSN nothing happens: no thread, no hook, no layer.
pub fn init(settings: Settings<'_>) -> Result<Sentry, Error> {
    let given = |text: &&str| !text.is_empty();
    let Some(dsn) = settings.dsn.map(str::trim).filter(given) else {
        return Ok(Sentry(None));
    };
    let dsn: Dsn = dsn.parse().map_err(Error::dsn)?;
    let budget = Mutex::new(Budget::new(Instant::now()));
    let mut options = ClientOptions::new()
        .release(settings.release.to_owned())
        .transport(Arc::new(Post::start(&dsn)?))
        .shutdown_timeout(LAST_WORDS)
        // A panic is the last thing that a process says.
        .before_send(move |event| {
            let may_go = event.level == Level::Fatal || budget.lock().spend(Instant::now());
            may_go.then_some(event)
        });
    let owned = |text: &str| text.to_owned().into();
    options.environment = settings.environment.filter(given).map(owned);
    options.server_name = settings.server.filter(given).map(owned);
    options.dsn = Some(dsn);
    let client = Arc::new(Client::with_options(options));
    // One for all threads: a task's history is not bound to a thread.
    let hub = Arc::new(Hub::new(Some(client.clone()), Arc::default()));
    panics::report(hub.clone());
    Ok(Sentry(Some(Reporter { client, hub })))
}

// === impl Sentry ===

impl Sentry {
    /// For [`logs::init`](crate::logs::init).
    pub fn layer(&self) -> Option<Layer> {
        self.0.as_ref().map(|reporter| Layer {
            hub: reporter.hub.clone(),
            errors: ErrorLayer::new(),
            history: BreadcrumbLayer::new(),
        })
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        if let Some(reporter) = &self.0 {
            reporter.client.close(None);
        }
    }
}

// === impl Layer ===

impl<S> tracing_subscriber::Layer<S> for Layer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let show = || match *event.metadata().level() {
            tracing::Level::ERROR => self.errors.on_event(event, context),
            tracing::Level::WARN | tracing::Level::INFO => self.history.on_event(event, context),
            _ => {}
        };
        Hub::run(self.hub.clone(), show);
    }
}

// === impl Error ===

impl Error {
    fn dsn(reason: impl ToString) -> Self {
        Self::Dsn(reason.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dsn: Option<&str>) -> Settings<'_> {
        Settings {
            dsn,
            environment: None,
            release: "elasti-test@1.2.3",
            server: None,
        }
    }

    #[test]
    fn nothing_is_reported_without_a_dsn() {
        for dsn in [None, Some(""), Some(" \n")] {
            assert!(init(settings(dsn)).unwrap().layer().is_none(), "{dsn:?}");
        }
    }

    #[test]
    fn a_wrong_dsn_is_refused_with_what_would_be_right_and_without_its_secret() {
        for dsn in [
            "hush",
            "hush://public@sentry.example/42",
            "https://sentry.example/hush",
            "https://public:hush@sentry.example/",
            "https://public:hush@/42",
            "https://public:hush@sentry example/42",
        ] {
            let error = init(settings(Some(dsn)))
                .err()
                .map(|error| error.to_string());
            let error = error.unwrap_or_default();
            assert!(
                error.starts_with("SENTRY_DSN is no DSN ("),
                "{dsn}: {error}"
            );
            assert!(
                error.contains("right would be https://<public key>@<host>/<project>"),
                "{error}"
            );
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
