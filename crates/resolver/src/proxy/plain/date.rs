//! The time in the words of HTTP, found once in a second.

use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use std::cell::RefCell;

thread_local! {
    static NOW: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

pub fn with_date<T>(write: impl FnOnce(&str) -> T) -> T {
    #[expect(
        clippy::disallowed_methods,
        reason = "an answer tells when it was given, and nothing is decided by that"
    )]
    let now = Timestamp::now();
    NOW.with_borrow_mut(|(second, words)| {
        if *second != now.as_second() {
            *second = now.as_second();
            let written = DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
            *words = written.unwrap_or_default();
        }
        write(words)
    })
}
