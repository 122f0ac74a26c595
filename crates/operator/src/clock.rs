use jiff::Timestamp;

/// The one place that reads the wall clock; everything below is handed the time.
#[expect(clippy::disallowed_methods, reason = "the edge at which time enters")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
