//! Five-field cron expressions as robfig/cron v3's `ParseStandard` reads them, on wall-clock time.
//!
//! The crate `cron` has another dialect (seconds first, 1 = Sunday, day of month AND day of week) and, in 0.17.0, is
//! wrong around clock changes. So every field is expanded here by robfig's rules, handed over as plain lists of
//! numbers, and evaluated where no zone exists: `Utc` below is only the label that chrono wants.
//! [`super::time_zone`] says which instant a wall-clock time is.

use chrono::{Datelike, NaiveDate, TimeZone as _, Timelike, Utc};
use jiff::civil::DateTime;

/// An expression that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Nothing there.
    #[error("the cron expression is empty; write five fields, such as \"0 22 * * 2\" (Tuesdays at 22:00)")]
    Empty,
    /// `CRON_TZ=Europe/Zurich` and nothing else.
    #[error("cron {0:?} has a time zone but no fields after it")]
    OnlyZone(String),
    /// Not five fields.
    #[error(
        "cron {text:?} has {found} fields instead of 5 (minute, hour, day of month, month, day of week); seconds and \
         years do not exist here"
    )]
    Fields {
        /// The expression.
        text: String,
        /// How many fields it has.
        found: usize,
    },
    /// `@every`.
    #[error("cron {0:?}: @every counts from the operator's start, which moves; write the five fields")]
    Every(String),
    /// `@something`.
    #[error(
        "cron {0:?} does not exist; @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly do"
    )]
    Descriptor(String),
    /// A field is wrong.
    #[error("cron {text:?}: {field} {part:?}: {problem}")]
    Field {
        /// The expression.
        text: String,
        /// Which field.
        field: &'static str,
        /// The part of the field.
        part: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A cron expression.
#[derive(Clone, Debug)]
pub struct Cron {
    /// One, or two where day of month and day of week are both restricted: a day then has to match one of them.
    alternatives: Vec<cron::Schedule>,
}

/// An expression as read.
#[derive(Clone, Debug)]
pub struct ParsedCron {
    /// The expression.
    pub cron: Cron,
    /// Zone of a `CRON_TZ=` or `TZ=` prefix, as written.
    pub zone: Option<String>,
    /// What a person should know, such as parts that are read in a surprising way.
    pub warnings: Vec<String>,
}

impl Cron {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<ParsedCron, CronError> {
        if text.is_empty() {
            return Err(CronError::Empty);
        }
        let (zone, expression) = split_zone(text)?;
        let fields = match expression.strip_prefix('@') {
            Some(_) => descriptor(expression)?,
            None => expression,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(CronError::Fields {
                text: text.to_owned(),
                found: fields.len(),
            });
        };
        let mut warnings = Vec::new();
        let mut read = |field: &str, bounds: &'static Bounds| {
            read_field(field, bounds, &mut warnings).map_err(|(part, problem)| CronError::Field {
                text: text.to_owned(),
                field: bounds.name,
                part,
                problem,
            })
        };
        let (minute, hour) = (read(minute, &MINUTE)?, read(hour, &HOUR)?);
        let (day, month) = (read(day, &DAY)?, read(month, &MONTH)?);
        let weekday = read(weekday, &WEEKDAY)?;
        let schedule = |day: &str, weekday: &str| {
            let source = format!(
                "0 {} {} {day} {} {weekday}",
                minute.list(0),
                hour.list(0),
                month.list(0)
            );
            // Cannot fail: the lists are numbers within the bounds of the crate. If it does, it is said.
            source.parse::<cron::Schedule>().map_err(|e| CronError::Field {
                text: text.to_owned(),
                field: "expression",
                part: source.clone(),
                problem: e.to_string(),
            })
        };
        // The crate counts weekdays from 1 = Sunday.
        let alternatives = match (day.unrestricted, weekday.unrestricted) {
            (true, true) => vec![schedule("*", "*")?],
            (true, false) => vec![schedule("*", &weekday.list(1))?],
            (false, true) => vec![schedule(&day.list(0), "*")?],
            (false, false) => vec![schedule(&day.list(0), "*")?, schedule("*", &weekday.list(1))?],
        };
        Ok(ParsedCron {
            cron: Self { alternatives },
            zone: zone.map(ToOwned::to_owned),
            warnings,
        })
    }

    /// The first matching minute after `wall`. `None` where there is none until the end of the year 2100, where the
    /// crate's calendar ends.
    pub fn next_after(&self, wall: DateTime) -> Option<DateTime> {
        let after = NaiveDate::from_ymd_opt(
            wall.year().into(),
            wall.month().unsigned_abs().into(),
            wall.day().unsigned_abs().into(),
        )?
        .and_hms_opt(
            wall.hour().unsigned_abs().into(),
            wall.minute().unsigned_abs().into(),
            wall.second().unsigned_abs().into(),
        )?;
        let after = Utc.from_utc_datetime(&after);
        let next = self
            .alternatives
            .iter()
            .filter_map(|schedule| schedule.after(&after).next())
            .min()?;
        DateTime::new(
            next.year().try_into().ok()?,
            next.month().try_into().ok()?,
            next.day().try_into().ok()?,
            next.hour().try_into().ok()?,
            next.minute().try_into().ok()?,
            0,
            0,
        )
        .ok()
    }
}

/// Splits `CRON_TZ=Europe/Zurich 0 22 * * 2` into zone and expression.
fn split_zone(text: &str) -> Result<(Option<&str>, &str), CronError> {
    let Some(rest) = text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ=")) else {
        return Ok((None, text));
    };
    match rest.split_once(char::is_whitespace) {
        Some((zone, expression)) if !expression.trim().is_empty() => Ok((Some(zone), expression.trim())),
        Some(_) | None => Err(CronError::OnlyZone(text.to_owned())),
    }
}

fn descriptor(text: &str) -> Result<&'static str, CronError> {
    match text {
        "@yearly" | "@annually" => Ok("0 0 1 1 *"),
        "@monthly" => Ok("0 0 1 * *"),
        "@weekly" => Ok("0 0 * * 0"),
        "@daily" | "@midnight" => Ok("0 0 * * *"),
        "@hourly" => Ok("0 * * * *"),
        every if every.starts_with("@every") => Err(CronError::Every(every.to_owned())),
        other => Err(CronError::Descriptor(other.to_owned())),
    }
}

/// What a field may hold.
struct Bounds {
    name: &'static str,
    min: u32,
    max: u32,
    /// Names from `min` on.
    names: &'static [&'static str],
}

const MINUTE: Bounds = Bounds {
    name: "minute",
    min: 0,
    max: 59,
    names: &[],
};
const HOUR: Bounds = Bounds {
    name: "hour",
    min: 0,
    max: 23,
    names: &[],
};
const DAY: Bounds = Bounds {
    name: "day of month",
    min: 1,
    max: 31,
    names: &[],
};
const MONTH: Bounds = Bounds {
    name: "month",
    min: 1,
    max: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
const WEEKDAY: Bounds = Bounds {
    name: "day of week",
    min: 0,
    max: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

/// A field, expanded.
struct Field {
    /// Bit n = the value n.
    values: u64,
    /// Whether it holds `*`, `?` or `*/1`: it then does not count as a restriction.
    unrestricted: bool,
}

impl Field {
    /// The values, each plus `shift`, as a list.
    fn list(&self, shift: u32) -> String {
        let values = (0..u64::BITS).filter(|n| self.values & (1 << n) != 0);
        values
            .map(|n| (n + shift).to_string())
            .collect::<Vec<_>>()
            .join(",")
    }
}

/// What is wrong, and in which part.
type Problem = (String, String);

fn read_field(field: &str, bounds: &Bounds, warnings: &mut Vec<String>) -> Result<Field, Problem> {
    let mut all = Field {
        values: 0,
        unrestricted: false,
    };
    // robfig passes over empty parts of a list.
    for part in field.split(',').filter(|part| !part.is_empty()) {
        let read = read_part(part, bounds, warnings).map_err(|problem| (part.to_owned(), problem))?;
        all.values |= read.values;
        all.unrestricted |= read.unrestricted;
    }
    if all.values == 0 {
        return Err((field.to_owned(), "the list is empty".to_owned()));
    }
    Ok(all)
}

/// Reads `*`, `?`, `5`, `mon`, `1-5`, each also with a step, such as `*/2`; `5/15` runs from 5 to the end.
fn read_part(part: &str, bounds: &Bounds, warnings: &mut Vec<String>) -> Result<Field, String> {
    let (range, step) = match part.split_once('/') {
        None => (part, None),
        Some((_, step)) if step.contains('/') => return Err("more than one slash".to_owned()),
        Some((range, step)) => (range, Some(read_number(step)?)),
    };
    let (low, high) = match range.split_once('-') {
        None => (range, None),
        Some((low, high)) => (low, Some(high)),
    };
    let star = matches!(low, "*" | "?");
    let (start, end) = match high {
        _ if star => {
            if high.is_some() {
                warnings.push(format!(
                    "{} {part:?} is read as {low:?}: a range cannot begin with it",
                    bounds.name
                ));
            }
            (bounds.min, bounds.max)
        }
        Some(high) if high.contains('-') => return Err("more than one hyphen".to_owned()),
        Some(high) => (read_value(low, bounds)?, read_value(high, bounds)?),
        None => {
            let start = read_value(low, bounds)?;
            (start, if step.is_some() { bounds.max } else { start })
        }
    };
    if start < bounds.min || end > bounds.max {
        return Err(format!("outside of {} to {}", bounds.min, bounds.max));
    }
    if start > end {
        return Err("the range ends before it begins".to_owned());
    }
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err("a step of 0 never gets anywhere".to_owned());
    }
    let values = (start..=end)
        .filter(|n| (n - start) % step == 0)
        .fold(0, |bits, n| bits | 1 << n);
    Ok(Field {
        values,
        unrestricted: star && step == 1,
    })
}

fn read_value(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let lower = text.to_ascii_lowercase();
    match (bounds.min..).zip(bounds.names).find(|(_, name)| **name == lower) {
        Some((value, _)) => Ok(value),
        None => read_number(text),
    }
}

fn read_number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use rstest::rstest;

    use super::*;

    fn next(text: &str, after: &str) -> Option<String> {
        let cron = Cron::parse(text).unwrap().cron;
        cron.next_after(after.parse().unwrap()).map(|t| t.to_string())
    }

    // The facts of robfig/cron's own tests (spec_test.go, TestActivation): does the expression match that minute?
    #[rstest]
    #[case("2012-07-09T15:00:00", "0/15 * * * *", true)]
    #[case("2012-07-09T15:40:00", "0/15 * * * *", false)]
    #[case("2012-07-09T15:05:00", "5/15 * * * *", true)]
    #[case("2012-07-09T15:50:00", "5/15 * * * *", true)]
    #[case("2012-07-15T15:00:00", "0/15 * * Jul *", true)]
    #[case("2012-07-15T15:00:00", "0/15 * * Jun *", false)]
    #[case("2012-07-15T08:30:00", "30 08 ? Jul Sun", true)]
    #[case("2012-07-15T08:30:00", "30 08 15 Jul ?", true)]
    #[case("2012-07-16T08:30:00", "30 08 ? Jul Sun", false)]
    #[case("2012-07-16T08:30:00", "30 08 15 Jul ?", false)]
    #[case("2012-07-09T15:00:00", "@hourly", true)]
    #[case("2012-07-09T15:04:00", "@hourly", false)]
    #[case("2012-07-09T00:00:00", "@daily", true)]
    #[case("2012-07-09T00:00:00", "@midnight", true)]
    #[case("2012-07-09T15:00:00", "@daily", false)]
    #[case("2012-07-09T00:00:00", "@weekly", false)]
    #[case("2012-07-08T00:00:00", "@weekly", true)]
    #[case("2012-07-08T01:00:00", "@weekly", false)]
    #[case("2012-07-01T00:00:00", "@monthly", true)]
    #[case("2012-07-08T00:00:00", "@monthly", false)]
    #[case("2013-01-01T00:00:00", "@yearly", true)]
    #[case("2013-01-01T00:00:00", "@annually", true)]
    #[case::both_restricted_is_or("2012-07-15T00:00:00", "* * 1,15 * Sun", true)]
    #[case::by_day("2012-06-15T00:00:00", "* * 1,15 * Sun", true)]
    #[case::by_day("2012-08-01T00:00:00", "* * 1,15 * Sun", true)]
    #[case::star_with_step_restricts("2012-07-15T00:00:00", "* * */10 * Sun", true)]
    #[case("2012-07-15T00:00:00", "* * * * Mon", false)]
    #[case("2012-07-09T00:00:00", "* * 1,15 * *", false)]
    #[case("2012-07-15T00:00:00", "* * 1,15 * *", true)]
    #[case("2012-07-15T00:00:00", "* * */2 * Sun", true)]
    // Ours, each by robfig's code.
    #[case::even_day_that_is_no_sunday("2012-07-17T00:00:00", "* * */2 * Sun", true)]
    #[case::step_of_one_is_unrestricted("2012-07-16T00:00:00", "* * */1 * Sun", false)]
    #[case::star_in_a_list_is_unrestricted("2012-07-16T00:00:00", "* * 3,* * Sun", false)]
    #[case::question_mark_with_step_restricts("2012-07-17T00:00:00", "* * ?/2 * Sun", true)]
    #[case::full_range_is_restricted("2012-07-16T00:00:00", "* * 1-31 * Sun", true)]
    #[case::saturday_is_six("2012-07-14T00:00:00", "0 0 * * 6", true)]
    #[case::names_in_ranges("2012-07-10T00:00:00", "0 0 * * MON-fri/2", false)]
    #[case::names_in_ranges("2012-07-11T00:00:00", "0 0 * * MON-fri/2", true)]
    #[case::name_with_step_runs_to_the_end("2012-07-13T00:00:00", "0 0 * * wed/2", true)]
    #[case::empty_parts_are_passed_over("2012-07-13T00:00:00", "0,,30 0 * * ,5", true)]
    #[case::plus_sign("2012-07-13T00:00:00", "0 0 +13 * *", true)]
    #[case::step_beyond_the_end("2012-07-13T00:00:00", "0/4000000000 0 * * *", true)]
    fn matches_like_robfig(#[case] minute: &str, #[case] text: &str, #[case] expected: bool) {
        let wall: DateTime = minute.parse().unwrap();
        let before = wall.checked_sub(jiff::SignedDuration::from_secs(1)).unwrap();
        let found = Cron::parse(text).unwrap().cron.next_after(before);
        assert_eq!(found == Some(wall), expected, "{found:?}");
    }

    #[rstest]
    #[case("0 22 * * 2", "2026-11-24T22:00:00", "2026-12-01T22:00:00")]
    #[case("20-35/15 * * * *", "2012-07-09T15:45:00", "2012-07-09T16:20:00")]
    #[case("0 0 */5 Apr,Aug,Oct Mon", "2012-07-09T23:35:00", "2012-08-01T00:00:00")]
    #[case("0 0 * Feb Mon/2", "2012-07-09T23:35:00", "2013-02-01T00:00:00")]
    #[case("* * * * *", "2012-12-31T23:59:45", "2013-01-01T00:00:00")]
    #[case("0 0 29 2 ?", "2096-03-01T00:00:00", "")]
    #[case("0 0 29 2 ?", "2026-01-01T00:00:00", "2028-02-29T00:00:00")]
    #[case("0 12 31 * *", "2026-01-31T12:00:00", "2026-03-31T12:00:00")]
    #[case("30 2 31 2 *", "2026-01-01T00:00:00", "")]
    #[case("0 0 31 4,6,9,11 *", "2026-01-01T00:00:00", "")]
    fn finds_the_next_minute(#[case] text: &str, #[case] after: &str, #[case] expected: &str) {
        assert_eq!(next(text, after).unwrap_or_default(), expected);
    }

    #[rstest]
    #[case("", "is empty")]
    #[case("   ", "0 fields instead of 5")]
    #[case("0 22 * *", "4 fields instead of 5")]
    #[case("0 0 22 * * 2", "6 fields instead of 5")]
    #[case("xyz", "1 fields")]
    #[case("60 0 * * *", r#"minute "60": outside of 0 to 59"#)]
    #[case("0 24 * * *", "outside of 0 to 23")]
    #[case("0 0 0 * *", "day of month \"0\": outside of 1 to 31")]
    #[case("0 0 32 * *", "outside of 1 to 31")]
    #[case("0 0 * 13 *", "outside of 1 to 12")]
    #[case("0 0 * * 7", "day of week \"7\": outside of 0 to 6")]
    #[case("0 0 * * 5-7", "outside of 0 to 6")]
    #[case("0 0 * * fri-mon", "ends before it begins")]
    #[case("0 0 * * XYZ", "is not a number")]
    #[case("0 0 * * monday", "is not a number")]
    #[case("0 0 L * *", "is not a number")]
    #[case("0 0 * * 1#2", "is not a number")]
    #[case("*/0 * * * *", "step of 0")]
    #[case("*/-12 * * * *", "is not a number")]
    #[case("5--5 * * * *", "more than one hyphen")]
    #[case("*//2 * * * *", "more than one slash")]
    #[case("5/ * * * *", "is not a number")]
    #[case(", * * * *", "the list is empty")]
    #[case("-5 * * * *", "is not a number")]
    #[case("@every 1h", "@every counts from")]
    #[case("@Weekly", "does not exist")]
    #[case("@reboot", "does not exist")]
    #[case("TZ=Europe/Zurich", "no fields after it")]
    #[case("CRON_TZ=Europe/Zurich  ", "no fields after it")]
    #[case("TZ=Europe/Zurich @every 1h", "@every counts from")]
    fn bad_expressions_say_what_is_wrong(#[case] text: &str, #[case] expected: &str) {
        let error = Cron::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_prefix_names_the_zone() {
        for text in ["TZ=Asia/Tokyo 0 22 * * 2", "CRON_TZ=Asia/Tokyo   0 22 * * 2"] {
            assert_eq!(Cron::parse(text).unwrap().zone.as_deref(), Some("Asia/Tokyo"));
        }
        assert_eq!(Cron::parse("TZ= @daily").unwrap().zone.as_deref(), Some(""));
        assert_eq!(Cron::parse("@daily").unwrap().zone, None);
    }

    #[test]
    fn a_range_that_begins_with_a_star_is_pointed_out() {
        let parsed = Cron::parse("0 0 *-5 * *").unwrap();
        assert_eq!(
            parsed.warnings,
            [r#"day of month "*-5" is read as "*": a range cannot begin with it"#]
        );
        assert_eq!(
            parsed
                .cron
                .next_after(date(2026, 1, 10).at(0, 0, 0, 0))
                .unwrap()
                .day(),
            11
        );
    }
}
