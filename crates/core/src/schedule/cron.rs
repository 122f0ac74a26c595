use super::ScheduleError;
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};

const MONTHS: &str = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC";
const WEEKDAYS: &str = "SUN MON TUE WED THU FRI SAT";

/// A line that fires now and then.
pub(super) fn parse(line: &str) -> Result<Cron, ScheduleError> {
    let cron = read(line).ok_or_else(|| ScheduleError::Cron(line.into()))?;
    if !comes(&cron) {
        return Err(ScheduleError::Never(line.into()));
    }
    Ok(cron)
}

/// A line of the kind that Kubernetes reads in a CronJob, without descriptors such as `@daily`.
fn read(line: &str) -> Option<Cron> {
    let fields: [&str; 5] = line
        .split_whitespace()
        .collect::<Vec<_>>()
        .try_into()
        .ok()?;
    let names = ["", "", "", MONTHS, WEEKDAYS];
    if !fields
        .iter()
        .zip(names)
        .all(|(field, names)| is_plain(field, names))
    {
        return None;
    }
    CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .sloppy_ranges(true)
        .build()
        .parse(&fields.map(with_stars).join(" "))
        .ok()
}

/// The parser would take names in any field, and operators that no other reader knows.
fn is_plain(field: &str, names: &str) -> bool {
    field.split([',', '-', '/']).all(|word| {
        matches!(word, "*" | "?")
            || !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
            || names
                .split_whitespace()
                .any(|name| name.eq_ignore_ascii_case(word))
    })
}

/// A field that restricts nothing is written `*`, for only then does the parser know: two
/// restricted day fields are ORed.
fn with_stars(field: &str) -> String {
    let field = field.replace('?', "*");
    if field.split(',').any(|part| matches!(part, "*" | "*/1")) {
        return "*".into();
    }
    field
}

/// The search itself would look through millennia for a 30 February.
fn comes(cron: &Cron) -> bool {
    let pattern = &cron.pattern;
    let first_day = pattern.days.values().into_iter().min().unwrap_or(u16::MAX);
    let longest = pattern.months.values().into_iter().map(days_at_most).max();
    !pattern.is_dow_wildcard() || longest.is_some_and(|days| first_day <= days)
}

fn days_at_most(month: u16) -> u16 {
    match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_kubernetes_reads_are_read() {
        for line in [
            "* * * * *",
            "  0\t18 * *  1-5 ",
            "? ? ? ? ?",
            "*/15 0-23/2 1,15 JAN-mar Sun,MON-FRI",
            "5/10 * * * *",
            "00 08 01 01 07",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_schedule_that_never_comes_is_an_error() {
        for line in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 FEB ?"] {
            assert_eq!(parse(line), Err(ScheduleError::Never(line.into())));
        }
        assert!(parse("0 0 30 2 MON").is_ok(), "Mondays come");
        assert!(parse("0 0 29 2 *").is_ok(), "leap days come");
    }

    #[test]
    fn a_wrong_line_is_named_with_a_right_one() {
        for line in [
            "",
            "0 0 * *",
            "0 0 0 * * *",
            "0 0 * * * 2026",
            "@daily",
            "@every 1h",
            "60 0 * * *",
            "0 24 * * *",
            "0 0 0 * *",
            "0 0 * 13 *",
            "0 0 * * 8",
            "5-1 * * * *",
            "*/0 * * * *",
            "/5 * * * *",
            ", * * * *",
            "0 0 L * *",
            "0 0 15W * *",
            "0 0 * * 5#2",
            "0 0 13 * +5",
            "JAN 0 * * *",
            "0 0 * MON *",
            "0 0 * * JAN",
            "-1 0 * * *",
            "99999999999999999999 0 * * *",
        ] {
            let error = parse(line).expect_err(line).to_string();
            assert!(
                error.contains(&format!("enabledPeriod.schedule '{line}'"))
                    && error.contains("0 18 * * 1-5"),
                "{error}"
            );
        }
    }
}
