use super::{ScheduleError, cron};
use croner::Cron;
use elasti_api::EnabledPeriod;
use jiff::{
    SignedDuration, Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};

/// The instants at which periods begin: whenever the clock on the wall shows a time that the
/// schedule names, and when it jumps over one. A time that it shows twice begins two periods.
///
/// Only wall clocks are given to the parser's search. Its own search by zone takes every jump at
/// midnight for a fire.
pub(super) struct Fires {
    cron: Cron,
    zone: TimeZone,
}

const INSTANT: SignedDuration = SignedDuration::from_nanos(1);

// === impl Fires ===

impl Fires {
    pub(super) fn new(period: &EnabledPeriod) -> Result<Self, ScheduleError> {
        let name = period.timezone.as_deref().unwrap_or("UTC");
        // The bundled database: no file decides, and an image needs none.
        let zone = TimeZoneDatabase::bundled()
            .get(name)
            .map_err(|_| ScheduleError::TimeZone(name.into()))?;
        let cron = cron::parse(&period.schedule)?;
        Ok(Self { cron, zone })
    }

    /// The last fire at or before `at`, looked for from one change of clocks to the one before.
    pub(super) fn last(&self, at: Timestamp) -> Option<Timestamp> {
        let mut at = at;
        loop {
            let offset = self.zone.to_offset(at);
            let wall = offset.to_datetime(at);
            let fire = self.cron.find_previous_occurrence(&wall, true).ok()?;
            let instant = offset.to_timestamp(fire).ok()?;
            let Some(change) = self.change_by(at).filter(|change| instant < *change) else {
                return Some(instant);
            };
            let before = change.checked_sub(INSTANT).ok()?;
            if fire >= self.zone.to_offset(before).to_datetime(change) {
                return Some(change);
            }
            at = before;
        }
    }

    /// The next fire after `at`, looked for from one change of clocks to the one after.
    pub(super) fn next(&self, at: Timestamp) -> Option<Timestamp> {
        let mut at = at;
        let mut inclusive = false;
        loop {
            let offset = self.zone.to_offset(at);
            let wall = offset.to_datetime(at);
            let fire = self.cron.find_next_occurrence(&wall, inclusive).ok()?;
            let instant = offset.to_timestamp(fire).ok()?;
            let Some(change) = self.change_after(at).filter(|change| instant >= *change) else {
                return Some(instant);
            };
            if fire < self.zone.to_datetime(change) {
                return Some(change);
            }
            (at, inclusive) = (change, true);
        }
    }

    /// Whether every week is the same.
    pub(super) fn is_weekly(&self) -> bool {
        let pattern = &self.cron.pattern;
        pattern.is_dom_wildcard()
            && pattern.months.values().len() == 12
            && self.zone.to_fixed_offset().is_ok()
    }

    fn change_by(&self, at: Timestamp) -> Option<Timestamp> {
        let after = at.checked_add(INSTANT).unwrap_or(at);
        let change = self.zone.preceding(after).next();
        change.map(|change| change.timestamp())
    }

    fn change_after(&self, at: Timestamp) -> Option<Timestamp> {
        let change = self.zone.following(at).next();
        change.map(|change| change.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::samples::{moment, named, schedule},
        *,
    };
    use jiff::{ToSpan, civil::DateTime};
    use proptest::prelude::*;

    const HORIZON: i64 = 8 * 60;

    /// Whether a period begins in this very minute.
    fn begins(cron: &Cron, zone: &TimeZone, minute: Timestamp) -> bool {
        let shown = zone.to_datetime(minute);
        let expected = zone.to_datetime(minute - 1.minute()) + 1.minute();
        wall_minutes(expected.min(shown), shown)
            .chain([shown])
            .any(|wall| cron.is_time_matching(&wall).unwrap())
    }

    fn wall_minutes(from: DateTime, to: DateTime) -> impl Iterator<Item = DateTime> {
        from.series(1.minute()).take_while(move |wall| *wall < to)
    }

    proptest! {
        #[test]
        fn fires_are_what_a_clock_on_the_wall_shows_or_jumps_over(
            schedule in schedule(),
            (zone, now) in moment(),
        ) {
            let (cron, zone) = (cron::parse(&schedule).unwrap(), named(zone));
            let minute = Timestamp::from_second(now.as_second().div_euclid(60) * 60).unwrap();
            let begins = |minute: &Timestamp| begins(&cron, &zone, *minute);
            let last = (0..HORIZON).map(|ago| minute - ago.minutes()).find(begins);
            let next = (1..HORIZON).map(|ahead| minute + ahead.minutes()).find(begins);
            let fires = Fires { cron: cron.clone(), zone: zone.clone() };
            let seen = |fire: &Timestamp| fire.duration_since(minute).abs().as_mins() < HORIZON;
            prop_assert_eq!(fires.last(now).filter(seen), last);
            prop_assert_eq!(fires.next(now).filter(seen), next);
        }
    }
}
