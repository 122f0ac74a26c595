//! Schedules and moments for property tests.

use jiff::{
    Timestamp, ToSpan,
    tz::{TimeZone, TimeZoneDatabase},
};
use proptest::{prelude::*, sample::select};

pub(super) fn schedule() -> impl Strategy<Value = String> {
    let days = (field(1, 28), field(1, 12), field(0, 6));
    (field(0, 59), field(0, 23), days).prop_map(|(minute, hour, (day, month, weekday))| {
        format!("{minute} {hour} {day} {month} {weekday}")
    })
}

fn field(low: u8, high: u8) -> impl Strategy<Value = String> {
    let two = (low..=high, low..=high);
    prop_oneof![
        3 => Just("*".to_owned()),
        3 => (low..=high).prop_map(|value| value.to_string()),
        1 => (2u8..=9).prop_map(|step| format!("*/{step}")),
        1 => two.clone().prop_map(|(a, b)| format!("{a},{b}")),
        1 => two.prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
    ]
}

/// A time zone and an instant between 2020 and 2037, half of the time near a change of its clocks.
pub(super) fn moment() -> impl Strategy<Value = (&'static str, Timestamp)> {
    let zones = vec![
        "UTC",
        "Europe/Vienna",
        "America/New_York",
        "America/Santiago",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Asia/Kolkata",
    ];
    let seconds = 1_577_836_800i64..2_114_380_800;
    let beside = prop::option::of(-10_800_000i64..10_800_000);
    (select(zones), seconds, beside).prop_map(|(zone, second, beside)| {
        let instant = Timestamp::from_second(second).unwrap();
        let rules = named(zone);
        match (beside, rules.following(instant).next()) {
            (Some(millis), Some(change)) => (zone, change.timestamp() + millis.milliseconds()),
            _ => (zone, instant),
        }
    })
}

pub(super) fn named(zone: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(zone).unwrap()
}
