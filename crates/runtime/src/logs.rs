//! Structured logs on stderr.

use crate::sentry;
use std::{
    io::{self, IsTerminal},
    str::FromStr,
};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter, layer::SubscriberExt};

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{0:?} is no log level: right would be error, warn, info, debug, trace or off, or a list \
         such as info,kube=debug"
    )]
    Level(String),
    #[error("{0:?} is no log format: right would be text or json")]
    Format(String),
    #[error("logs were set up before")]
    Again,
}

/// `level` is one for all (`info`), or a list of directives (`info,kube=debug`). What is logged is
/// also shown to `reports`.
pub fn init(level: &str, format: Format, reports: Option<sentry::Layer>) -> Result<(), Error> {
    let filter = filter(level)?;
    let colours = io::stderr().is_terminal();
    let subscriber = subscriber(filter, format, io::stderr, colours, reports);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| Error::Again)
}

fn filter(level: &str) -> Result<EnvFilter, Error> {
    let directives: Vec<_> = level.split(',').map(str::trim).collect();
    if directives.iter().any(|directive| is_mistaken(directive)) {
        return Err(Error::Level(level.to_owned()));
    }
    let filter = EnvFilter::builder().parse(directives.join(","));
    filter.map_err(|_| Error::Level(level.to_owned()))
}

/// A bare word that is no level would be taken for the name of a module, and silence all others.
fn is_mistaken(directive: &str) -> bool {
    let bare = !directive.contains(['=', '[']);
    directive.is_empty() || bare && directive.parse::<LevelFilter>().is_err()
}

fn subscriber<W>(
    filter: EnvFilter,
    format: Format,
    writer: W,
    colours: bool,
    reports: Option<sentry::Layer>,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(colours);
    match format {
        Format::Text => Box::new(lines.finish().with(reports)),
        Format::Json => Box::new(lines.json().flatten_event(true).finish().with(reports)),
    }
}

// === impl Format ===

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(Error::Format(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::{io::Write, sync::Arc};

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(level: &str, format: Format, work: impl FnOnce()) -> String {
        let page = Page::default();
        let writer = page.clone();
        let lines = subscriber(
            filter(level).unwrap(),
            format,
            move || writer.clone(),
            false,
            None,
        );
        tracing::subscriber::with_default(lines, work);
        String::from_utf8(page.0.lock().clone()).unwrap()
    }

    #[test]
    fn a_wrong_level_is_named_with_what_would_be_right() {
        for level in [
            "inof",
            "",
            "info,kube",
            "kube=loud",
            "info,",
            "verbose,kube=debug",
        ] {
            let error = filter(level).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{level:?}")), "{error}");
            assert!(error.contains("error, warn, info, debug"), "{error}");
        }
    }

    #[test]
    fn levels_and_directives_are_taken() {
        for level in [
            "info",
            "WARN",
            "off",
            "info,kube=debug",
            "info, elasti_runtime::lease=trace",
        ] {
            assert!(filter(level).is_ok(), "{level}");
        }
    }

    #[test]
    fn text_has_a_time_and_fields_and_no_colours() {
        let text = written("info", Format::Text, || {
            tracing::info!(lease = "elasti", "Leading");
            tracing::debug!("Unseen");
        });
        assert!(text.ends_with("Leading lease=\"elasti\"\n"), "{text}");
        assert!(
            text.starts_with("20") && text.contains("Z  INFO "),
            "{text}"
        );
        assert!(
            !text.contains('\u{1b}') && !text.contains("Unseen"),
            "{text}"
        );
    }

    #[test]
    fn json_has_its_fields_at_the_top() {
        let text = written("info", Format::Json, || {
            tracing::warn!(port = 8013, "Refused")
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "Refused");
        assert_eq!(line["port"], 8013);
        assert_eq!(line["level"], "WARN");
        assert!(line["timestamp"].is_string());
    }

    #[test]
    fn formats_have_names() {
        assert_eq!("json".parse::<Format>().unwrap(), Format::Json);
        let error = "xml".parse::<Format>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"xml\" is no log format: right would be text or json"
        );
    }
}
