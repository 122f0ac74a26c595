//! Why there is no verdict.

use elasti_core::verdict::Opinion;
use http::StatusCode;
use std::fmt;

/// Texts may be a server's own, of any length: `short` is for people.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    InvalidTrigger(String),
    #[error("{0}")]
    Unhealthy(String),
    #[error("{0}")]
    Unanswered(String),
    /// The server did not like the query: another one may do.
    #[error("HTTP {0}{1}")]
    Rejected(StatusCode, Cause),
    #[error("HTTP {0}{1}")]
    Refused(StatusCode, Cause),
    #[error("the answer is incomplete{0}")]
    Partial(Cause),
    #[error("the query has no result")]
    Empty,
    #[error("the query has {0} results, not one")]
    Several(usize),
    #[error("the value is infinite")]
    Infinite,
}

/// What the server itself says, if it says anything.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Cause(Option<String>);

/// One line of at most 200 characters.
pub(super) fn short(text: &str) -> String {
    const LIMIT: usize = 200;
    let words: Vec<_> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let line = words.join(" ");
    match line.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

// === impl Failure ===

impl Failure {
    pub(super) fn opinion(&self) -> Opinion {
        Opinion::unknown(self.reason(), short(&self.to_string()))
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::InvalidTrigger(_) => "InvalidTrigger",
            Self::Unhealthy(_) => "PrometheusUnhealthy",
            Self::Unanswered(_) | Self::Rejected(..) | Self::Refused(..) => "QueryFailed",
            Self::Partial(_) => "PartialResult",
            Self::Empty => "EmptyResult",
            Self::Several(_) => "SeveralResults",
            Self::Infinite => "InfiniteValue",
        }
    }
}

// === impl Cause ===

impl Cause {
    pub(super) fn of(text: impl Into<String>) -> Self {
        Self(Some(text.into()))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_people_is_one_short_line() {
        assert_eq!(short("  one\r\n\ttwo\u{7}three "), "one two three");
        let long = short(&"ä".repeat(1_000));
        assert_eq!(long.chars().count(), 201, "200 characters and an ellipsis");
    }

    #[test]
    fn cause_of_the_server_follows_the_status() {
        let refused = |cause| Failure::Refused(StatusCode::BAD_GATEWAY, cause).to_string();
        assert_eq!(refused(Cause::default()), "HTTP 502 Bad Gateway");
        assert_eq!(refused(Cause::of("gone")), "HTTP 502 Bad Gateway: gone");
    }
}
