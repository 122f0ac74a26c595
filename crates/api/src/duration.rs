use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

/// A positive duration in Go's notation, such as `1h30m`, that prints as it was written. One that was
/// stored before it was validated may be wrong, which shows when its value is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GoDuration(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a positive duration such as '30s', '5m' or '1h30m'")]
pub struct InvalidDuration(String);

/// In CEL. Whatever asks for the duration's value has to ask this first, or a typing error is
/// answered with an evaluation error beside the message.
pub(crate) const WELL_FORMED: &str =
    "self.matches('^[+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+$')";

/// Go's units, the longer spelling first where one begins with the other.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

// === impl GoDuration ===

impl GoDuration {
    pub fn get(&self) -> Result<Duration, InvalidDuration> {
        parse(&self.0).ok_or_else(|| InvalidDuration(self.0.clone()))
    }

    pub(crate) fn from_hours(hours: u32) -> Self {
        Self(format!("{hours}h"))
    }
}

impl FromStr for GoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let duration = Self(text.into());
        duration.get().map(|_| duration)
    }
}

/// `None` for anything that Go would not parse or cannot hold (about 292 years).
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut nanos: i64 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(end);
        let (unit, size) = UNITS.iter().find(|(unit, _)| tail.starts_with(unit))?;
        nanos = nanos.checked_add(scaled(number, *size)?)?;
        rest = &tail[unit.len()..];
    }
    (nanos > 0).then(|| Duration::from_nanos(nanos.unsigned_abs()))
}

/// A decimal number of units, in nanoseconds; what lies below a nanosecond is cut, as in Go.
fn scaled(number: &str, size: u64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut nanos = whole.checked_mul(size)?;
    let mut digit_size = size;
    for digit in fraction.bytes() {
        digit_size /= 10;
        nanos = nanos.checked_add(u64::from(digit - b'0') * digit_size)?;
    }
    i64::try_from(nanos).ok()
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 32,
            "x-kubernetes-validations": [{
                "rule": format!("{WELL_FORMED} && duration(self) > duration('0s')"),
                "message": "must be a positive duration, such as '30s', '5m' or '1h30m'",
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("24h", 86_400_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("+2m", 120_000_000_000),
            ("1m0.25s", 60_250_000_000),
            ("100ms", 100_000_000),
            ("7µs", 7_000),
            ("7us", 7_000),
            ("3ns", 3),
        ] {
            let duration: GoDuration = text.parse().unwrap();
            assert_eq!(duration.get(), Ok(Duration::from_nanos(nanos)), "{text}");
            assert_eq!(duration.to_string(), text, "printed as written");
        }
    }

    #[test]
    fn refuses_what_is_no_positive_duration() {
        for text in [
            "",
            "5",
            "0s",
            "0.0h",
            "-5m",
            "h",
            "1d",
            "1 h",
            "1h ",
            "..s",
            "1.2.3s",
            "5minutes",
            "99999999999999999999h",
            "3000000h",
        ] {
            let error = text.parse::<GoDuration>().unwrap_err();
            assert!(
                error.to_string().contains("30s"),
                "{text}: the message shows a right one"
            );
        }
    }
}
