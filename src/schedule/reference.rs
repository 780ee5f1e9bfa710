//! A second opinion on [`super::Schedule`], for tests: no cron parser, no search, no rule about clock changes.
//!
//! It watches a clock on the wall for a year, minute by minute, and notes the first instant at which the clock has
//! reached or passed each minute of the calendar. That is what "the first pass" and "the first instant after the
//! gap" mean, and nothing here knows where a zone's clock changes are.

use jiff::{
    Timestamp, ToSpan,
    civil::{DateTime, Weekday, date},
};
use rstest::rstest;

use super::{Schedule, Zones};
use crate::api::upgrade_config;

/// A minute on the wall.
struct Minute {
    month: i8,
    day: i8,
    hour: i8,
    min: i8,
    weekday: Weekday,
    week: i16,
}

impl From<DateTime> for Minute {
    fn from(t: DateTime) -> Self {
        Self {
            month: t.month(),
            day: t.day(),
            hour: t.hour(),
            min: t.minute(),
            weekday: t.weekday(),
            week: iso_week(t),
        }
    }
}

/// ISO 8601 by its definition: the week of a date is the week of its Thursday, counted in the Thursday's year.
fn iso_week(t: DateTime) -> i16 {
    let thursday = t
        .date()
        .checked_add((4 - t.weekday().to_monday_one_offset()).days())
        .unwrap();
    (thursday.day_of_year() - 1) / 7 + 1
}

type Matches = fn(&Minute) -> bool;

/// Expression, ISO week, and what they mean in words of Rust.
const CASES: [(&str, &str, Matches); 12] = [
    ("0 22 * * 2", "@odd", |m| {
        m.hour == 22 && m.min == 0 && m.weekday == Weekday::Tuesday && m.week % 2 == 1
    }),
    ("30 2 * * *", "", |m| m.hour == 2 && m.min == 30),
    ("15 0 * * *", "", |m| m.hour == 0 && m.min == 15),
    ("45 1 * * sun", "", |m| {
        m.hour == 1 && m.min == 45 && m.weekday == Weekday::Sunday
    }),
    ("0 * * * *", "", |m| m.min == 0),
    ("*/20 1-3 * * *", "", |m| {
        (1..=3).contains(&m.hour) && m.min % 20 == 0
    }),
    ("0 3 */10 * 1", "", |m| {
        m.hour == 3 && m.min == 0 && ([1, 11, 21, 31].contains(&m.day) || m.weekday == Weekday::Monday)
    }),
    ("0 3 */1 * 1", "", |m| {
        m.hour == 3 && m.min == 0 && m.weekday == Weekday::Monday
    }),
    ("59 23 31 * ?", "", |m| m.hour == 23 && m.min == 59 && m.day == 31),
    ("0 0 1-7 Mar,Oct *", "@even", |m| {
        m.hour == 0 && m.min == 0 && m.day <= 7 && [3, 10].contains(&m.month) && m.week % 2 == 0
    }),
    ("@weekly", "", |m| {
        m.hour == 0 && m.min == 0 && m.weekday == Weekday::Sunday
    }),
    ("5 4 29 2 *", "9", |m| {
        m.hour == 4 && m.min == 5 && m.day == 29 && m.month == 2 && m.week == 9
    }),
];

#[rstest]
#[case("UTC", 2028)]
#[case("Europe/Zurich", 2026)]
#[case("America/New_York", 2028)]
#[case("Australia/Lord_Howe", 2026)]
#[case("Africa/Cairo", 2026)]
#[case("Africa/Casablanca", 2025)]
#[case("America/Asuncion", 2024)]
#[case("Antarctica/Troll", 2027)]
#[case::no_30_december("Pacific/Apia", 2011)]
#[case::no_21_august("Pacific/Kwajalein", 1993)]
fn a_year_of_runs_is_what_the_clock_on_the_wall_says(#[case] location: &str, #[case] year: i16) {
    let zones = Zones::bundled(location).unwrap();
    let zone = zones.default_zone();
    let begin: Timestamp = date(year, 1, 1)
        .at(12, 0, 0, 0)
        .to_zoned(jiff::tz::TimeZone::UTC)
        .unwrap()
        .timestamp();

    let mut runs = vec![Vec::new(); CASES.len()];
    let mut shown = zone.to_datetime(begin);
    for minute in 1..365 * 24 * 60 {
        let t = begin.checked_add(minute.minutes()).unwrap();
        let now = zone.to_datetime(t);
        while shown < now {
            shown = shown.checked_add(1.minute()).unwrap();
            let passed = Minute::from(shown);
            for ((_, _, matches), runs) in CASES.iter().zip(&mut runs) {
                if matches(&passed) && runs.last() != Some(&t) {
                    runs.push(t);
                }
            }
        }
    }

    for ((cron, iso_week, _), expected) in CASES.iter().zip(runs) {
        let spec = upgrade_config::Schedule {
            cron: (*cron).to_owned(),
            iso_week: Some((*iso_week).to_owned()),
            ..Default::default()
        };
        let schedule = Schedule::parse(&spec, &zones).unwrap().schedule;
        let mut got = schedule.upcoming(begin, expected.len() + 1);
        let beyond = got.split_off(expected.len());
        assert_eq!(got, expected, "{cron} {iso_week} in {location} {year}");
        let end = begin.checked_add((365 * 24 * 60 - 1).minutes()).unwrap();
        assert!(
            beyond.iter().all(|run| *run > end),
            "{cron} in {location}: one run too many"
        );
        // From anywhere in between, the next run is the same: no search depends on where it begins.
        for pair in expected.windows(2) {
            for seconds in [1, 59, 1800, 3599, 5400] {
                let t = pair[0]
                    .checked_add(jiff::SignedDuration::from_secs(seconds))
                    .unwrap();
                if t < pair[1] {
                    assert_eq!(
                        schedule.next_after(t),
                        Some(pair[1]),
                        "{cron} in {location} after {t}"
                    );
                }
            }
        }
    }
}
