//! Cron, ISO week and zone together: the instants at which a config runs.

use jiff::{Timestamp, ToSpan, civil::DateTime, tz::TimeZone};

use super::{
    cron::{Cron, CronError, ParsedCron},
    iso_week::{BadIsoWeek, IsoWeek},
    time_zone::{self, ZoneError, Zones},
};
use crate::api::upgrade_config;

/// How far ahead a next run is looked for, in years: past the longest wait that a calendar makes (29 February in a
/// given ISO week comes back within 40 years).
const HORIZON_YEARS: i16 = 40;
/// The last year of the calendar: see [`Cron::next_after`].
const LAST_YEAR: i16 = 2100;

/// A schedule that cannot be used; names the field below `spec.schedule`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The expression is wrong.
    #[error("{0}")]
    Cron(#[from] CronError),
    /// The zone in front of the expression is wrong.
    #[error("cron: {0}")]
    CronZone(ZoneError),
    /// The week is wrong.
    #[error("{0}")]
    IsoWeek(#[from] BadIsoWeek),
    /// The zone is wrong.
    #[error("location: {0}")]
    Location(ZoneError),
}

/// When runs happen. Does not know of `schedule.suspend`.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    iso_week: IsoWeek,
    zone: TimeZone,
}

/// A schedule as read.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The schedule.
    pub schedule: Schedule,
    /// What a person should know, such as two zones that contradict each other.
    pub warnings: Vec<String>,
}

impl Schedule {
    /// Reads `spec.schedule` of an UpgradeConfig.
    pub fn parse(spec: &upgrade_config::Schedule, zones: &Zones) -> Result<Parsed, ScheduleError> {
        let ParsedCron {
            cron,
            zone: prefix,
            mut warnings,
        } = Cron::parse(&spec.cron)?;
        let iso_week = IsoWeek::parse(spec.iso_week.as_deref().unwrap_or_default())?;
        let location = zones
            .get(spec.location.as_deref())
            .map_err(ScheduleError::Location)?;
        let zone = match prefix.as_deref() {
            // Go's name for "as the caller says": robfig/cron then takes the location.
            None | Some("Local") => location,
            Some(name) => {
                // Go's empty location is UTC.
                let name = if name.is_empty() { "UTC" } else { name };
                warnings.push(format!(
                    "the time zone {name} in spec.schedule.cron overrides spec.schedule.location; keep only the latter"
                ));
                zones.get(Some(name)).map_err(ScheduleError::CronZone)?
            }
        };
        Ok(Parsed {
            schedule: Self { cron, iso_week, zone },
            warnings,
        })
    }

    /// The zone that the expression is read in.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The first run strictly after `t`.
    ///
    /// `None` where there is none within 40 years (or until the end of 2100): the dates never come.
    pub fn next_after(&self, t: Timestamp) -> Option<Timestamp> {
        let mut wall = time_zone::wall_clock(t, &self.zone);
        let horizon = wall.year().saturating_add(HORIZON_YEARS);
        loop {
            // The date is judged as the clock would show it, also where the clock jumps over it.
            let candidate = self.cron.next_after(wall)?;
            if candidate.year() > horizon {
                return None;
            }
            if !self.iso_week.matches(candidate.date()) {
                wall = end_of_week(candidate)?;
                continue;
            }
            match time_zone::instant(candidate, &self.zone) {
                // A time that the clock shows a second time, or jumped over, can lie behind us: its run was before.
                Some(instant) if instant > t => return Some(instant),
                Some(_) | None => wall = candidate,
            }
        }
    }

    /// The first `n` runs strictly after `t`; fewer where there are no more.
    pub fn upcoming(&self, t: Timestamp, n: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next_after(t), |run| self.next_after(*run))
            .take(n)
            .collect()
    }

    /// That there is no run after `t`, and what to look at; `None` if there is one.
    pub fn never(&self, t: Timestamp) -> Option<String> {
        if self.next_after(t).is_some() {
            return None;
        }
        let wall = time_zone::wall_clock(t, &self.zone);
        let horizon = wall.year().saturating_add(HORIZON_YEARS);
        let has_dates = || {
            self.cron
                .next_after(wall)
                .is_some_and(|date| date.year() <= horizon)
        };
        Some(if horizon > LAST_YEAR {
            format!(
                "the schedule does not fire until the end of {LAST_YEAR}, and later dates are not looked at"
            )
        } else if has_dates() {
            format!(
                "the schedule never fires within {HORIZON_YEARS} years: none of the dates of cron is in a week of \
                 isoWeek; check isoWeek"
            )
        } else {
            format!("the schedule never fires within {HORIZON_YEARS} years; check day and month")
        })
    }

    /// Whether there is a run at exactly this instant.
    pub fn contains(&self, instant: Timestamp) -> bool {
        instant
            .checked_sub(1.nanosecond())
            .is_ok_and(|before| self.next_after(before) == Some(instant))
    }
}

/// The last second of the ISO week of this time.
fn end_of_week(wall: DateTime) -> Option<DateTime> {
    let to_sunday = 7 - wall.date().weekday().to_monday_one_offset();
    let sunday = wall.date().checked_add(to_sunday.days()).ok()?;
    Some(sunday.at(23, 59, 59, 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn spec(cron: &str, iso_week: &str, location: &str) -> upgrade_config::Schedule {
        upgrade_config::Schedule {
            cron: cron.to_owned(),
            iso_week: Some(iso_week.to_owned()),
            location: Some(location.to_owned()),
            suspend: false,
        }
    }

    fn schedule(cron: &str, iso_week: &str, location: &str) -> Schedule {
        let zones = Zones::bundled("").unwrap();
        Schedule::parse(&spec(cron, iso_week, location), &zones)
            .unwrap()
            .schedule
    }

    fn runs(schedule: &Schedule, after: &str, n: usize) -> Vec<String> {
        let runs = schedule.upcoming(after.parse().unwrap(), n);
        runs.iter().map(ToString::to_string).collect()
    }

    #[rstest]
    #[case::fires("@weekly", "", "2026-01-01T00:00:00Z", None)]
    #[case::no_such_day(
        "30 2 31 2 *",
        "",
        "2026-01-01T00:00:00Z",
        Some("the schedule never fires within 40 years; check day and month")
    )]
    #[case::no_such_day_in_any_week(
        "30 2 31 2 *",
        "@odd",
        "2026-01-01T00:00:00Z",
        Some("the schedule never fires within 40 years; check day and month")
    )]
    #[case::no_such_week(
        "0 0 1 7 *",
        "1",
        "2026-01-01T00:00:00Z",
        Some(
            "the schedule never fires within 40 years: none of the dates of cron is in a week of isoWeek; check isoWeek"
        )
    )]
    #[case::after_the_calendar(
        "@weekly",
        "",
        "2101-01-01T00:00:00Z",
        Some("the schedule does not fire until the end of 2100, and later dates are not looked at")
    )]
    fn a_schedule_that_never_fires_says_what_to_look_at(
        #[case] cron: &str,
        #[case] iso_week: &str,
        #[case] after: &str,
        #[case] said: Option<&str>,
    ) {
        let never = schedule(cron, iso_week, "UTC").never(after.parse().unwrap());
        assert_eq!(never.as_deref(), said);
    }

    #[rstest]
    #[case::seed("0 22 * * 2", "@odd", "Europe/Zurich", "2026-11-20T00:00:00Z",
        &["2026-12-01T21:00:00Z", "2026-12-15T21:00:00Z", "2026-12-29T21:00:00Z", "2027-01-05T21:00:00Z"])]
    #[case::even_waits_three_weeks("0 22 * * 2", "@even", "Europe/Zurich", "2026-12-20T00:00:00Z",
        &["2026-12-22T21:00:00Z", "2027-01-12T21:00:00Z"])]
    #[case::gap_is_not_lost("30 2 * * *", "", "Europe/Zurich", "2026-03-28T00:00:00Z",
        &["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"])]
    #[case::gap_is_not_doubled("*/15 2,3 * * *", "", "Europe/Zurich", "2026-03-29T00:00:00Z",
        &["2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z"])]
    #[case::before_the_gap_once("30 1 * * *", "", "Europe/Zurich", "2026-03-28T12:00:00Z",
        &["2026-03-29T00:30:00Z", "2026-03-29T23:30:00Z"])]
    #[case::overlap_once("30 2 * * *", "", "Europe/Zurich", "2026-10-24T12:00:00Z",
        &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"])]
    #[case::overlap_after_the_second_pass("30 2 * * *", "", "Europe/Zurich", "2026-10-25T01:15:00Z",
        &["2026-10-26T01:30:00Z"])]
    #[case::overlap_hourly_once("0 * * * *", "", "Europe/Zurich", "2026-10-24T23:30:00Z",
        &["2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"])]
    #[case::half_hour_overlap("45 1 * * *", "", "Australia/Lord_Howe", "2026-04-04T00:00:00Z",
        &["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"])]
    #[case::half_hour_gap("10 2 * * *", "", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
        &["2026-10-03T15:30:00Z", "2026-10-04T15:10:00Z"])]
    #[case::midnight_gap("0 0 * * 5", "", "Africa/Cairo", "2026-04-20T00:00:00Z",
        &["2026-04-23T22:00:00Z", "2026-04-30T21:00:00Z"])]
    #[case::midnight_gap_once("0 12 * * *", "", "Africa/Cairo", "2026-04-23T12:00:00Z",
        &["2026-04-24T09:00:00Z", "2026-04-25T09:00:00Z"])]
    #[case::missing_day_is_its_own_weekday("0 22 * * 5", "", "Pacific/Apia", "2011-12-25T00:00:00Z",
        &["2011-12-30T10:00:00Z", "2012-01-06T08:00:00Z"])]
    #[case::missing_day_once("0 22 * * *", "", "Pacific/Apia", "2011-12-29T00:00:00Z",
        &["2011-12-29T08:00:00Z", "2011-12-30T08:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T08:00:00Z"])]
    #[case::week_of_the_skipped_time("30 0 * * 0", "40", "America/Asuncion", "2024-10-01T00:00:00Z",
        &["2024-10-06T04:00:00Z"])]
    #[case::new_year_in_week_53("0 0 1 1 *", "53", "UTC", "2026-01-01T00:00:00Z",
        &["2027-01-01T00:00:00Z", "2033-01-01T00:00:00Z"])]
    #[case::week_53("* * * * *", "53", "UTC", "2027-01-04T00:00:00Z", &["2032-12-27T00:00:00Z"])]
    #[case::leap_day_in_week_9("0 0 29 2 *", "9", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z"])]
    #[case::never("30 2 31 2 *", "", "Europe/Zurich", "2026-01-01T00:00:00Z", &[])]
    #[case::never_in_that_week("0 0 1 7 *", "1", "Europe/Zurich", "2026-01-01T00:00:00Z", &[])]
    #[case::never_in_that_week_by_the_minute("* * * 7 *", "@odd", "UTC", "2100-12-31T23:59:00Z", &[])]
    fn runs_are_neither_lost_nor_doubled(
        #[case] cron: &str,
        #[case] iso_week: &str,
        #[case] location: &str,
        #[case] after: &str,
        #[case] expected: &[&str],
    ) {
        let schedule = schedule(cron, iso_week, location);
        let n = expected.len().max(1);
        assert_eq!(runs(&schedule, after, n), expected);
    }

    #[test]
    fn only_runs_are_contained() {
        let schedule = schedule("0 22 * * 2", "", "Europe/Zurich");
        for (t, expected) in [
            ("2026-11-24T21:00:00Z", true),
            ("2026-11-24T21:00:00.000000001Z", false),
            ("2026-11-24T20:59:59Z", false),
            ("2026-11-24T22:00:00Z", false),
        ] {
            assert_eq!(schedule.contains(t.parse().unwrap()), expected, "{t}");
        }
    }

    #[test]
    fn a_zone_in_the_expression_overrides_the_location_and_is_pointed_out() {
        let zones = Zones::bundled("").unwrap();
        let parsed = Schedule::parse(
            &spec("CRON_TZ=Asia/Tokyo 0 22 * * 2", "", "Europe/Zurich"),
            &zones,
        )
        .unwrap();
        assert_eq!(parsed.schedule.zone().iana_name(), Some("Asia/Tokyo"));
        assert_eq!(parsed.warnings.len(), 1);
        let parsed = Schedule::parse(&spec("TZ=Local 0 22 * * 2", "", "Europe/Zurich"), &zones).unwrap();
        assert_eq!(parsed.schedule.zone().iana_name(), Some("Europe/Zurich"));
        let parsed = Schedule::parse(&spec("TZ= 0 22 * * 2", "", "Europe/Zurich"), &zones).unwrap();
        assert_eq!(parsed.schedule.zone(), &TimeZone::UTC);
    }

    #[rstest]
    #[case("0 22 * * 7", "", "", "cron \"0 22 * * 7\": day of week \"7\"")]
    #[case("0 22 * * 2", "@every", "", "isoWeek \"@every\" is not")]
    #[case("0 22 * * 2", "", "UTC+2", "location: \"UTC+2\" is an offset")]
    #[case("TZ=+02:00 0 22 * * 2", "", "", "cron: \"+02:00\" is an offset")]
    fn errors_name_the_field(
        #[case] cron: &str,
        #[case] week: &str,
        #[case] zone: &str,
        #[case] expected: &str,
    ) {
        let zones = Zones::bundled("").unwrap();
        let error = Schedule::parse(&spec(cron, week, zone), &zones)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn rare_dates_are_found_and_impossible_ones_end_in_bounded_time() {
        let begin = std::time::Instant::now();
        // 29 February in ISO week 8 never comes; by the minute this is the most that can be asked.
        for (cron, week) in [
            ("* * 29 2 *", "8"),
            ("* * 30 2 *", "53"),
            ("* * * 7 *", "1"),
            ("* * 31 6 *", ""),
        ] {
            let schedule = schedule(cron, week, "Africa/Casablanca");
            assert_eq!(
                schedule.next_after("2026-01-01T00:00:00Z".parse().unwrap()),
                None,
                "{cron} {week}"
            );
        }
        // Far beyond what it takes (milliseconds), so that only an endless loop fails here.
        assert!(begin.elapsed().as_secs() < 20);
        assert_eq!(
            runs(&schedule("0 0 29 2 *", "10", "UTC"), "2026-01-01T00:00:00Z", 1).len(),
            0
        );
    }

    fn part(min: u8, max: u8) -> impl Strategy<Value = String> {
        prop_oneof![
            3 => Just("*".to_owned()),
            4 => (min..=max).prop_map(|n| n.to_string()),
            1 => (2..9u8).prop_map(|n| format!("*/{n}")),
            1 => (min..=max, 1..9u8).prop_map(|(n, s)| format!("{n}/{s}")),
            1 => (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
            1 => (min..=max, min..=max).prop_map(|(a, b)| format!("{a},{b}")),
        ]
    }

    prop_compose! {
        fn expression()(m in part(0, 59), h in part(0, 23), d in part(1, 31), mo in part(1, 12), w in part(0, 6)) -> String {
            format!("{m} {h} {d} {mo} {w}")
        }
    }

    const ZONES: [&str; 8] = [
        "UTC",
        "Europe/Zurich",
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "Pacific/Apia",
        "Africa/Casablanca",
        "Asia/Kathmandu",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn the_next_run_is_always_later_and_one_itself(
            cron in expression(), week in prop::sample::select(vec!["", "@odd", "@even", "7", "53"]),
            zone in prop::sample::select(&ZONES[..]), t in 946_684_800i64..2_500_000_000, nanos in 0..1_000_000_000i32,
        ) {
            let schedule = schedule(&cron, week, zone);
            let t = Timestamp::new(t, nanos).unwrap();
            if let Some(next) = schedule.next_after(t) {
                prop_assert!(next > t);
                prop_assert!(schedule.contains(next));
                prop_assert_eq!(schedule.next_after(next.checked_sub(1.second()).unwrap().max(t)), Some(next));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(cron in "\\PC{0,40}", week in "\\PC{0,6}", zone in "\\PC{0,20}") {
            let zones = Zones::bundled("").unwrap();
            let _ = Schedule::parse(&spec(&cron, &week, &zone), &zones);
        }

        #[test]
        fn texts_that_look_like_cron_are_read_or_refused(
            cron in "(TZ=[A-Z]{0,3} )?([0-9*?/,a-c-]{1,6} ){4}[0-9*?/,-]{1,6}",
        ) {
            let zones = Zones::bundled("").unwrap();
            if let Ok(parsed) = Schedule::parse(&spec(&cron, "", ""), &zones) {
                let t = "2026-01-01T00:00:00Z".parse().unwrap();
                prop_assert!(parsed.schedule.next_after(t).is_none_or(|next| next > t));
            }
        }
    }
}
