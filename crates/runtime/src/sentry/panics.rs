//! The last words of a process.

use sentry_core::{
    Hub, Level,
    protocol::{Event, Exception, Frame, Mechanism, Stacktrace},
};
use std::{
    panic::{self, Location, PanicHookInfo},
    sync::Arc,
};

/// Beside what is done already; and waits until it is sent, for the process may be about to abort.
pub(super) fn report(hub: Arc<Hub>) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        before(panic);
        hub.capture_event(event(panic));
        if let Some(client) = hub.client() {
            client.flush(None);
        }
    }));
}

fn event(panic: &PanicHookInfo<'_>) -> Event<'static> {
    let exception = Exception {
        ty: "panic".into(),
        value: Some(panic.payload_as_str().unwrap_or("of no words").to_owned()),
        mechanism: Some(Mechanism {
            ty: "panic".into(),
            handled: Some(false),
            ..Mechanism::default()
        }),
        stacktrace: panic.location().map(place),
        ..Exception::default()
    };
    Event {
        level: Level::Fatal,
        exception: vec![exception].into(),
        ..Event::default()
    }
}

/// Panics of one place are one issue. The binaries are stripped: there is no more to tell.
fn place(location: &Location<'_>) -> Stacktrace {
    let frame = Frame {
        filename: Some(location.file().to_owned()),
        lineno: Some(location.line().into()),
        colno: Some(location.column().into()),
        in_app: Some(true),
        ..Frame::default()
    };
    Stacktrace {
        frames: vec![frame],
        ..Stacktrace::default()
    }
}
