//! A second opinion on [`super::Schedule`], for tests: no cron parser, no search, no rule about clock changes.
//!
//! It watches a clock on the wall, minute by minute, and notes the first instant at which the clock has reached or passed
//! each minute of the calendar. That is what "the first pass" and "the first instant after the gap" mean, and nothing
//! here knows where a zone's clock changes are.

use jiff::{
    Timestamp, ToSpan,
    civil::{DateTime, date},
    tz::TimeZone,
};
use rstest::rstest;

use super::{Schedule, Zones};
use crate::api::upgrade_config;

/// A date on the wall.
pub struct WallDate {
    month: i8,
    day: i8,
    /// 0 = Sunday.
    weekday: i8,
    week: i16,
}

impl From<DateTime> for WallDate {
    fn from(t: DateTime) -> Self {
        Self {
            month: t.month(),
            day: t.day(),
            weekday: t.weekday().to_sunday_zero_offset(),
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

/// A schedule, and what it means in words of Rust.
pub struct Row {
    pub cron: &'static str,
    pub iso_week: &'static str,
    /// Hour and minute.
    time: fn(i8, i8) -> bool,
    day: fn(&WallDate) -> bool,
}

const fn row(
    cron: &'static str,
    iso_week: &'static str,
    time: fn(i8, i8) -> bool,
    day: fn(&WallDate) -> bool,
) -> Row {
    Row {
        cron,
        iso_week,
        time,
        day,
    }
}

/// Runs of many times a day.
const OFTEN: [Row; 3] = [
    row("0 * * * *", "", |_, m| m == 0, |_| true),
    row(
        "*/20 1-3 * * *",
        "",
        |h, m| (1..=3).contains(&h) && m % 20 == 0,
        |_| true,
    ),
    row(
        "*/15 0,2 * * *",
        "@even",
        |h, m| [0, 2].contains(&h) && m % 15 == 0,
        |d| d.week % 2 == 0,
    ),
];

/// Runs as people write them for upgrades, and some that nobody should write.
#[rustfmt::skip]
pub const ROWS: [Row; 40] = [
    // Every day, around the hours in which clocks change.
    row("30 2 * * *", "", |h, m| h == 2 && m == 30, |_| true),
    row("15 0 * * *", "", |h, m| h == 0 && m == 15, |_| true),
    row("@daily", "", |h, m| h == 0 && m == 0, |_| true),
    row("0 3 * * *", "", |h, m| h == 3 && m == 0, |_| true),
    row("59 23 * * *", "@odd", |h, m| h == 23 && m == 59, |d| d.week % 2 == 1),
    row("45 1 ? * ?", "@even", |h, m| h == 1 && m == 45, |d| d.week % 2 == 0),
    // Every week.
    row("0 22 * * 2", "", |h, m| h == 22 && m == 0, |d| d.weekday == 2),
    row("0 22 * * 2", "@odd", |h, m| h == 22 && m == 0, |d| d.weekday == 2 && d.week % 2 == 1),
    row("0 22 * * TUE", "@even", |h, m| h == 22 && m == 0, |d| d.weekday == 2 && d.week % 2 == 0),
    row("45 1 * * sun", "", |h, m| h == 1 && m == 45, |d| d.weekday == 0),
    row("30 2 * * 0", "", |h, m| h == 2 && m == 30, |d| d.weekday == 0),
    row("0 0 * * 5", "", |h, m| h == 0 && m == 0, |d| d.weekday == 5),
    row("@weekly", "", |h, m| h == 0 && m == 0, |d| d.weekday == 0),
    row("30 0 * * 6", "", |h, m| h == 0 && m == 30, |d| d.weekday == 6),
    row("0 2,3 * * 0,6", "", |h, m| [2, 3].contains(&h) && m == 0, |d| [0, 6].contains(&d.weekday)),
    row("15 2 * * mon-fri/2", "", |h, m| h == 2 && m == 15, |d| [1, 3, 5].contains(&d.weekday)),
    row("0 4 * * wed/2", "@odd", |h, m| h == 4 && m == 0, |d| [3, 5].contains(&d.weekday) && d.week % 2 == 1),
    row("0 3 */1 * 1", "", |h, m| h == 3 && m == 0, |d| d.weekday == 1),
    row("0 3 3,* * 1", "", |h, m| h == 3 && m == 0, |d| d.weekday == 1),
    // WallDate of month or day of week.
    row("0 3 */10 * 1", "", |h, m| h == 3 && m == 0, |d| [1, 11, 21, 31].contains(&d.day) || d.weekday == 1),
    row("0 1 1,15 * 0", "", |h, m| h == 1 && m == 0, |d| [1, 15].contains(&d.day) || d.weekday == 0),
    row("30 3 1-7 * 2", "@even", |h, m| h == 3 && m == 30, |d| (d.day <= 7 || d.weekday == 2) && d.week % 2 == 0),
    row("0 0 1-31 * 0", "", |h, m| h == 0 && m == 0, |_| true),
    // Every month.
    row("@monthly", "", |h, m| h == 0 && m == 0, |d| d.day == 1),
    row("59 23 31 * ?", "", |h, m| h == 23 && m == 59, |d| d.day == 31),
    row("0 2 30 * *", "", |h, m| h == 2 && m == 0, |d| d.day == 30),
    row("30 1 29 * *", "", |h, m| h == 1 && m == 30, |d| d.day == 29),
    row("5 0 1-7 Mar,Oct *", "@even", |h, m| h == 0 && m == 5, |d| d.day <= 7 && [3, 10].contains(&d.month) && d.week % 2 == 0),
    row("0 3 25-31 3,10 *", "", |h, m| h == 3 && m == 0, |d| d.day >= 25 && [3, 10].contains(&d.month)),
    row("0 12 ?/9 */3 *", "", |h, m| h == 12 && m == 0, |d| [1, 10, 19, 28].contains(&d.day) && [1, 4, 7, 10].contains(&d.month)),
    // Every year, and rarer.
    row("@yearly", "", |h, m| h == 0 && m == 0, |d| d.day == 1 && d.month == 1),
    row("30 2 29 3 *", "", |h, m| h == 2 && m == 30, |d| d.day == 29 && d.month == 3),
    row("0 0 30 12 *", "", |h, m| h == 0 && m == 0, |d| d.day == 30 && d.month == 12),
    row("0 22 * * 4", "53", |h, m| h == 22 && m == 0, |d| d.weekday == 4 && d.week == 53),
    row("0 0 1 1 *", "53", |h, m| h == 0 && m == 0, |d| d.day == 1 && d.month == 1 && d.week == 53),
    row("0 22 * * 1", "1", |h, m| h == 22 && m == 0, |d| d.weekday == 1 && d.week == 1),
    row("5 4 29 2 *", "", |h, m| h == 4 && m == 5, |d| d.day == 29 && d.month == 2),
    row("5 4 29 2 *", "9", |h, m| h == 4 && m == 5, |d| d.day == 29 && d.month == 2 && d.week == 9),
    // Never.
    row("30 2 31 2 *", "", |_, _| false, |_| false),
    row("0 0 1 7 *", "1", |_, _| false, |_| false),
];

/// Zones, and the first of ten years in which their clocks do something remarkable.
#[rustfmt::skip]
pub const ZONES: [(&str, i16); 50] = [
    ("UTC", 2024), ("Europe/Zurich", 2024), ("Europe/London", 2024), ("Europe/Dublin", 2024), ("Europe/Lisbon", 1990),
    ("Europe/Moscow", 2008), ("Europe/Istanbul", 2010), ("Europe/Chisinau", 2024), ("Europe/Kyiv", 2024),
    ("Atlantic/Azores", 2024), ("Atlantic/Reykjavik", 2024), ("America/New_York", 2024), ("America/Chicago", 2024),
    ("America/Phoenix", 2024), ("America/Los_Angeles", 2003), ("America/Anchorage", 2024), ("America/Halifax", 2024),
    ("America/St_Johns", 2005), ("America/Sao_Paulo", 2010), ("America/Asuncion", 2017), ("America/Santiago", 2014),
    ("America/Caracas", 2007), ("America/Havana", 2024), ("America/Mexico_City", 2018), ("America/Nuuk", 2019),
    ("America/Vancouver", 2024), ("Africa/Cairo", 2020), ("Africa/Casablanca", 2024), ("Africa/El_Aaiun", 2015),
    ("Africa/Johannesburg", 2024), ("Africa/Juba", 2016), ("Asia/Jerusalem", 2024), ("Asia/Gaza", 2020),
    ("Asia/Beirut", 2024), ("Asia/Tehran", 2015), ("Asia/Kabul", 2024), ("Asia/Kolkata", 2024),
    ("Asia/Kathmandu", 1983), ("Asia/Dhaka", 2005), ("Asia/Tokyo", 2024), ("Asia/Pyongyang", 2012),
    ("Australia/Lord_Howe", 2024), ("Australia/Sydney", 2024), ("Australia/Eucla", 2004), ("Pacific/Auckland", 2024),
    ("Pacific/Chatham", 2024), ("Pacific/Apia", 2006), ("Pacific/Kwajalein", 1988), ("Pacific/Kiritimati", 1990),
    ("Antarctica/Troll", 2024),
];

/// Noon of the first of January, UTC.
pub fn new_year(year: i16) -> Timestamp {
    let noon = date(year, 1, 1).at(12, 0, 0, 0);
    noon.to_zoned(TimeZone::UTC).unwrap().timestamp()
}

pub fn schedule(row: &Row, zones: &Zones) -> Schedule {
    let spec = upgrade_config::Schedule {
        cron: row.cron.to_owned(),
        iso_week: Some(row.iso_week.to_owned()),
        ..Default::default()
    };
    Schedule::parse(&spec, zones).unwrap().schedule
}

const MINUTES: usize = 24 * 60;

fn minute_of_day(t: DateTime) -> usize {
    usize::try_from(i16::from(t.hour()) * 60 + i16::from(t.minute())).unwrap()
}

/// What a minute on the wall means for each row.
struct Watch<'a> {
    rows: Vec<&'a Row>,
    /// The rows that run at each minute of a day, if at all.
    at: Vec<Vec<usize>>,
    /// The date of `today`, and which rows run on it.
    date: Option<jiff::civil::Date>,
    today: Vec<bool>,
    runs: Vec<Vec<Timestamp>>,
}

impl<'a> Watch<'a> {
    fn new(rows: &[&'a Row]) -> Self {
        let at = (0..24i8)
            .flat_map(|h| (0..60i8).map(move |m| (h, m)))
            .map(|(h, m)| (0..rows.len()).filter(|n| (rows[*n].time)(h, m)).collect())
            .collect();
        Self {
            rows: rows.to_vec(),
            at,
            date: None,
            today: Vec::new(),
            runs: vec![Vec::new(); rows.len()],
        }
    }

    /// An hour without a clock change, after `shown` at `t`.
    fn passes_hour(&mut self, shown: DateTime, t: Timestamp) {
        let first = minute_of_day(shown);
        for n in 1..=60 {
            if self.at[(first + n) % MINUTES].is_empty() {
                continue;
            }
            let later = i64::try_from(n).unwrap().minutes();
            self.passes(shown.checked_add(later).unwrap(), t.checked_add(later).unwrap());
        }
    }

    /// The clock shows this minute, or has jumped over it, for the first time at `t`.
    fn passes(&mut self, shown: DateTime, t: Timestamp) {
        let minute = minute_of_day(shown);
        if self.at[minute].is_empty() {
            return;
        }
        if self.date != Some(shown.date()) {
            let day = WallDate::from(shown);
            self.date = Some(shown.date());
            self.today = self.rows.iter().map(|row| (row.day)(&day)).collect();
        }
        for n in &self.at[minute] {
            if self.today[*n] && self.runs[*n].last() != Some(&t) {
                self.runs[*n].push(t);
            }
        }
    }
}

/// The runs of each row after `begin`, until `end`.
///
/// An hour whose ends have the same offset is taken to have it throughout, which saves looking at the clock in it; with
/// `every_minute` it is looked at all the same.
pub fn runs(
    rows: &[&Row],
    zone: &TimeZone,
    begin: Timestamp,
    end: Timestamp,
    every_minute: bool,
) -> Vec<Vec<Timestamp>> {
    let mut watch = Watch::new(rows);
    let mut shown = zone.to_datetime(begin);
    let mut hour = begin;
    while hour < end {
        let next = hour.checked_add(1.hours()).unwrap();
        let is_still = zone.to_offset(hour) == zone.to_offset(next) && zone.to_datetime(hour) == shown;
        if is_still && !every_minute {
            watch.passes_hour(shown, hour);
            shown = shown.checked_add(1.hours()).unwrap();
            hour = next;
            continue;
        }
        for minute in 1..=60 {
            let t = hour.checked_add(minute.minutes()).unwrap();
            let now = zone.to_datetime(t);
            while shown < now {
                shown = shown.checked_add(1.minute()).unwrap();
                watch.passes(shown, t);
            }
        }
        hour = next;
    }
    for runs in &mut watch.runs {
        runs.retain(|t| *t <= end);
    }
    watch.runs
}

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
    let (begin, end) = (new_year(year), new_year(year + 1));
    let rows: Vec<&Row> = OFTEN.iter().chain(&ROWS).collect();
    let expected = runs(&rows, zones.default_zone(), begin, end, true);
    assert_eq!(
        runs(&rows, zones.default_zone(), begin, end, false),
        expected,
        "the short cut makes no difference"
    );
    for (row, expected) in rows.into_iter().zip(expected) {
        let schedule = schedule(row, &zones);
        assert_same(
            row,
            &schedule,
            begin,
            end,
            &expected,
            &format!("{location} {year}"),
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
                        "{} in {location} after {t}",
                        row.cron
                    );
                }
            }
        }
    }
}

fn assert_same(
    Row { cron, iso_week, .. }: &Row,
    schedule: &Schedule,
    begin: Timestamp,
    end: Timestamp,
    expected: &[Timestamp],
    of: &str,
) {
    let mut got = schedule.upcoming(begin, expected.len() + 1);
    let beyond = got.split_off(expected.len().min(got.len()));
    let differs = got.iter().zip(expected).find(|(a, b)| a != b);
    assert_eq!(differs, None, "{cron} {iso_week} in {of}");
    assert_eq!(got.len(), expected.len(), "{cron} {iso_week} in {of}");
    assert!(
        beyond.iter().all(|run| *run > end),
        "{cron} in {of}: one run too many"
    );
}

/// A fifth of the zones; all of them are in the rehearsal of [`crate::pinning`].
#[test]
fn ten_years_of_runs_are_what_the_clock_on_the_wall_says() {
    for (location, year) in ZONES.iter().skip(1).step_by(5) {
        let zones = Zones::bundled(location).unwrap();
        let (begin, end) = (new_year(*year), new_year(year + 10));
        let rows: Vec<&Row> = ROWS.iter().collect();
        let expected = runs(&rows, zones.default_zone(), begin, end, false);
        for (row, expected) in rows.into_iter().zip(expected) {
            let schedule = schedule(row, &zones);
            assert_same(
                row,
                &schedule,
                begin,
                end,
                &expected,
                &format!("{location} from {year}"),
            );
        }
    }
}
