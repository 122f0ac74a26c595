//! When a target may sleep.

mod cron;
mod fires;
#[cfg(test)]
mod samples;

use self::fires::Fires;
use elasti_api::{EnabledPeriod, InvalidDuration};
use jiff::{SignedDuration, Timestamp};

/// Whether a period is open, and for how long that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub open: bool,
    /// When this ends; never, if `None`. A period that hundreds of fires keep open is followed only
    /// so far: ask again then, and it may still be open.
    pub until: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error(
        "enabledPeriod.schedule '{0}' is not a cron line of five fields (minute 0-59, hour 0-23, \
         day of month 1-31, month 1-12 or JAN-DEC, day of week 0-7 or SUN-SAT), such as \
         '0 18 * * 1-5'"
    )]
    Cron(String),
    #[error(
        "enabledPeriod.schedule '{0}' never comes: none of its months has such a day; \
         '0 18 28 2 *' would come every year"
    )]
    Never(String),
    #[error(
        "enabledPeriod.timezone '{0}' is not a known time zone, such as 'Europe/Vienna' or 'UTC'"
    )]
    TimeZone(String),
    #[error("enabledPeriod.duration {0}")]
    Duration(#[from] InvalidDuration),
}

/// How many overlapping periods are followed to find where they end: a year of days.
const MAX_OVERLAPS: usize = 366;
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Whether `now` lies in a period: at or after a fire, and less than the duration after it.
pub fn window(period: &EnabledPeriod, now: Timestamp) -> Result<Window, ScheduleError> {
    let fires = Fires::new(period)?;
    let duration = SignedDuration::try_from(period.duration.get()?).unwrap_or(SignedDuration::MAX);
    let last = fires.last(now);
    let open = last.is_some_and(|last| now.duration_since(last) < duration);
    let until = match last {
        Some(last) if open => end(&fires, last, duration),
        _ => fires.next(now),
    };
    Ok(Window { open, until })
}

/// Where the period that begins at `first`, and those that overlap or touch it, end.
fn end(fires: &Fires, first: Timestamp, duration: SignedDuration) -> Option<Timestamp> {
    let mut fire = first;
    for _ in 0..MAX_OVERLAPS {
        let end = fire.checked_add(duration).ok()?;
        match fires.last(end) {
            Some(later) if later > fire => fire = later,
            _ => return Some(end),
        }
        // Open for one such week is open for all of them.
        if fires.is_weekly() && fire.duration_since(first) >= WEEK {
            return None;
        }
    }
    fire.checked_add(duration).ok()
}

#[cfg(test)]
mod tests {
    use super::{
        samples::{moment, schedule},
        *,
    };
    use jiff::ToSpan;
    use proptest::prelude::*;

    const VIENNA: Option<&str> = Some("Europe/Vienna");

    fn period(schedule: &str, duration: &str, zone: Option<&str>) -> EnabledPeriod {
        EnabledPeriod {
            schedule: schedule.into(),
            duration: duration.parse().unwrap(),
            timezone: zone.map(Into::into),
        }
    }

    #[track_caller]
    fn check(period: &EnabledPeriod, expected: &[(&str, &str)]) {
        for (now, expected) in expected {
            let Window { open, until } = window(period, now.parse().unwrap()).unwrap();
            let state = if open { "open" } else { "closed" };
            let until = until.map_or("for ever".into(), |until| format!("until {until}"));
            assert_eq!(format!("{state} {until}"), *expected, "at {now}");
        }
    }

    #[test]
    fn a_period_is_open_from_its_fire_until_the_duration_has_passed() {
        check(
            &period("0 18 * * 1-5", "12h", None),
            &[
                (
                    "2026-06-01T17:59:59.999Z",
                    "closed until 2026-06-01T18:00:00Z",
                ),
                ("2026-06-01T18:00:00Z", "open until 2026-06-02T06:00:00Z"),
                ("2026-06-01T18:00:00.5Z", "open until 2026-06-02T06:00:00Z"),
                (
                    "2026-06-02T05:59:59.999Z",
                    "open until 2026-06-02T06:00:00Z",
                ),
                ("2026-06-02T06:00:00Z", "closed until 2026-06-02T18:00:00Z"),
                ("2026-06-06T07:00:00Z", "closed until 2026-06-08T18:00:00Z"),
            ],
        );
    }

    #[test]
    fn the_default_period_never_ends() {
        let now = [("2026-06-01T12:34:56.789Z", "open for ever")];
        check(&EnabledPeriod::default(), &now);
        check(&period("*/5 * * * *", "1h", None), &now);
    }

    #[test]
    fn periods_that_touch_or_overlap_are_one() {
        let weekdays = period("0 0 * * MON-FRI", "24h", None);
        let now = [("2026-06-02T10:00:00Z", "open until 2026-06-06T00:00:00Z")];
        check(&weekdays, &now);
        check(
            &period("*/10 6-8 * * *", "15m", None),
            &[
                ("2026-06-01T06:00:00Z", "open until 2026-06-01T09:05:00Z"),
                ("2026-06-01T09:05:00Z", "closed until 2026-06-02T06:00:00Z"),
            ],
        );
    }

    #[test]
    fn the_schedule_is_read_in_its_time_zone() {
        check(
            &period("0 18 * * *", "2h", VIENNA),
            &[
                ("2026-01-15T17:00:00Z", "open until 2026-01-15T19:00:00Z"),
                ("2026-07-15T16:00:00Z", "open until 2026-07-15T18:00:00Z"),
                ("2026-07-15T18:00:00Z", "closed until 2026-07-16T16:00:00Z"),
            ],
        );
    }

    #[test]
    fn a_fire_in_a_skipped_hour_comes_when_the_clock_has_jumped() {
        check(
            &period("30 2 * * *", "1h", VIENNA),
            &[
                ("2026-03-29T00:59:59Z", "closed until 2026-03-29T01:00:00Z"),
                ("2026-03-29T01:00:00Z", "open until 2026-03-29T02:00:00Z"),
                ("2026-03-29T02:00:00Z", "closed until 2026-03-30T00:30:00Z"),
            ],
        );
    }

    #[test]
    fn a_fire_in_a_repeated_hour_comes_twice() {
        check(
            &period("30 2 * * *", "10m", VIENNA),
            &[
                ("2026-10-25T00:30:00Z", "open until 2026-10-25T00:40:00Z"),
                ("2026-10-25T00:40:00Z", "closed until 2026-10-25T01:30:00Z"),
                ("2026-10-25T01:35:00Z", "open until 2026-10-25T01:40:00Z"),
                ("2026-10-25T01:40:00Z", "closed until 2026-10-26T01:30:00Z"),
            ],
        );
    }

    #[test]
    fn a_jump_at_midnight_is_no_fire_of_its_own() {
        check(
            &period("0 2 * * *", "1m", Some("America/Santiago")),
            &[("2032-09-05T03:59:59Z", "closed until 2032-09-05T05:00:00Z")],
        );
    }

    #[test]
    fn a_duration_is_elapsed_time_even_when_the_day_is_longer() {
        check(
            &period("0 0 * * *", "24h", VIENNA),
            &[
                ("2026-06-01T12:00:00Z", "open until 2026-10-25T22:00:00Z"),
                ("2026-10-25T22:00:00Z", "closed until 2026-10-25T23:00:00Z"),
            ],
        );
    }

    #[test]
    fn two_restricted_day_fields_are_ored() {
        check(
            &period("0 0 13 * FRI", "24h", None),
            &[
                ("2026-06-12T00:00:00Z", "open until 2026-06-14T00:00:00Z"),
                ("2026-06-14T00:00:00Z", "closed until 2026-06-19T00:00:00Z"),
            ],
        );
    }

    #[test]
    fn a_day_field_that_restricts_nothing_leaves_the_other_alone() {
        for schedule in [
            "0 0 ? * FRI",
            "0 0 */1 * FRI",
            "0 0 1,* * 5",
            "0 ?/24 * ? 5",
        ] {
            let now = [("2026-06-13T00:00:00Z", "closed until 2026-06-19T00:00:00Z")];
            check(&period(schedule, "10h", None), &now);
        }
    }

    #[test]
    fn a_start_with_a_step_runs_to_the_end_of_its_field() {
        check(
            &period("40/10 5 * jan,Jun sun", "1m", None),
            &[
                ("2026-06-07T05:40:30Z", "open until 2026-06-07T05:41:00Z"),
                ("2026-06-07T05:45:00Z", "closed until 2026-06-07T05:50:00Z"),
                ("2026-06-07T05:55:00Z", "closed until 2026-06-14T05:40:00Z"),
            ],
        );
    }

    #[test]
    fn a_leap_day_is_waited_for() {
        let now = [("2026-06-01T00:00:00Z", "closed until 2028-02-29T00:00:00Z")];
        check(&period("0 0 29 2 *", "24h", None), &now);
    }

    #[test]
    fn an_unknown_time_zone_is_named_with_a_right_one() {
        for zone in ["Europe/Wien", "", "CEST", "local"] {
            let period = period("0 0 * * *", "1h", Some(zone));
            let error = window(&period, Timestamp::UNIX_EPOCH).expect_err(zone);
            let error = error.to_string();
            assert!(
                error.contains(&format!("enabledPeriod.timezone '{zone}'"))
                    && error.contains("Europe/Vienna"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_ends_of_time_are_no_trouble() {
        for now in [Timestamp::MIN, Timestamp::MAX] {
            for zone in ["UTC", "Asia/Kolkata"] {
                assert!(window(&period("0 0 * * *", "2000000h", Some(zone)), now).is_ok());
            }
        }
    }

    proptest! {
        #[test]
        fn an_answer_holds_until_it_says(
            schedule in schedule(),
            minutes in prop_oneof![1u32..180, 180u32..5000],
            (zone, now) in moment(),
            share in 0.0..1.0f64,
        ) {
            let period = period(&schedule, &format!("{minutes}m"), Some(zone));
            let asked = window(&period, now).unwrap();
            let Some(until) = asked.until else {
                prop_assert!(asked.open, "what comes is never out of sight");
                return Ok(());
            };
            prop_assert!(until > now);
            let between = now + until.duration_since(now).mul_f64(share);
            for before in [between.min(until - 1.nanosecond()), until - 1.nanosecond()] {
                prop_assert_eq!(window(&period, before).unwrap().open, asked.open, "at {}", before);
            }
            let followed_so_far = SignedDuration::from_mins(i64::from(minutes) * 180);
            prop_assert!(
                window(&period, until).unwrap().open != asked.open
                    || asked.open && until.duration_since(now) > followed_so_far,
                "the answer changes at {until}"
            );
        }

        #[test]
        fn no_line_and_no_zone_panics(
            schedule in "[0-9*?,/A-Z@ -]{0,24}",
            garbage: String,
            zone: Option<String>,
            millis: i32,
        ) {
            let now = Timestamp::from_millisecond(i64::from(millis)).unwrap();
            for line in [schedule, garbage] {
                let _ = window(&period(&line, "1h", zone.as_deref()), now);
                let _ = window(&period(&line, "1h", None), now);
            }
        }
    }
}
