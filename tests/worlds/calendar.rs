//! When the drawn schedules run: a second opinion that shares nothing with the operator's. It goes through the days of a
//! calendar and knows only the forms of cron that worlds are drawn with.

use jiff::{
    Timestamp, ToSpan,
    civil::{DateTime, Weekday},
    tz::{AmbiguousOffset, TimeZone},
};
use serde_json::Value;

/// A schedule of the form `<minute> <hour> * * <days of week, or *>`.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    hour: i8,
    minute: i8,
    /// 0 = Sunday.
    days: Vec<i8>,
    parity: Option<i8>,
    zone: TimeZone,
    pub suspend: bool,
}

impl Schedule {
    /// Of `spec.schedule` of an UpgradeConfig.
    pub fn of(spec: &Value) -> Self {
        let cron = spec["cron"].as_str().unwrap();
        let fields: Vec<&str> = cron.split(' ').collect();
        let [minute, hour, "*", "*", days] = fields[..] else {
            panic!("worlds have no such cron: {cron}");
        };
        let days = match days {
            "*" => (0..7).collect(),
            days => days.split(',').map(|d| d.parse().unwrap()).collect(),
        };
        let parity = match spec["isoWeek"].as_str() {
            None => None,
            Some("@even") => Some(0),
            Some("@odd") => Some(1),
            Some(other) => panic!("worlds have no such week: {other}"),
        };
        Self {
            hour: hour.parse().unwrap(),
            minute: minute.parse().unwrap(),
            days,
            parity,
            // `Local`, the default, is the operator's own zone: UTC here.
            zone: match spec["location"].as_str() {
                None | Some("Local") => TimeZone::UTC,
                Some(name) => TimeZone::get(name).unwrap(),
            },
            suspend: spec["suspend"].as_bool().unwrap_or_default(),
        }
    }

    /// The runs after `from`, until `to`.
    pub fn runs(&self, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
        let mut day = self.zone.to_datetime(from).date().yesterday().unwrap();
        let last = self.zone.to_datetime(to).date().tomorrow().unwrap();
        let mut runs = Vec::new();
        while day <= last {
            let week = day.iso_week_date().week();
            let is_day = self.days.contains(&day.weekday().to_sunday_zero_offset());
            if is_day && self.parity.is_none_or(|p| week % 2 == p) {
                runs.push(first_instant(&self.zone, day.at(self.hour, self.minute, 0, 0)));
            }
            day = day.tomorrow().unwrap();
        }
        runs.retain(|run| *run > from && *run <= to);
        runs.dedup();
        runs
    }
}

/// When a clock on the wall first shows this time, or has jumped over it.
fn first_instant(zone: &TimeZone, wall: DateTime) -> Timestamp {
    let mut wall = wall;
    loop {
        let ambiguous = zone.to_ambiguous_timestamp(wall);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => return offset.to_timestamp(wall).unwrap(),
            AmbiguousOffset::Fold { before, .. } => return before.to_timestamp(wall).unwrap(),
            AmbiguousOffset::Gap { .. } => wall = wall.checked_add(1.minute()).unwrap(),
        }
    }
}

#[test]
fn the_calendar_knows_gaps_folds_and_weeks() {
    let schedule = |cron: &str, rest: Value| {
        let mut spec = rest;
        spec["cron"] = cron.into();
        Schedule::of(&spec)
    };
    let runs = |schedule: &Schedule, from: &str, to: &str| -> Vec<String> {
        let runs = schedule.runs(from.parse().unwrap(), to.parse().unwrap());
        runs.iter().map(ToString::to_string).collect()
    };
    let zurich = serde_json::json!({"location": "Europe/Zurich"});
    let daily = schedule("30 2 * * *", zurich.clone());
    assert_eq!(
        runs(&daily, "2027-03-27T12:00:00Z", "2027-03-29T12:00:00Z"),
        ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"],
        "02:30 is jumped over"
    );
    assert_eq!(
        runs(&daily, "2027-10-30T12:00:00Z", "2027-11-01T12:00:00Z"),
        ["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"],
        "the first 02:30"
    );
    let mut odd = zurich;
    odd["isoWeek"] = "@odd".into();
    assert_eq!(Weekday::Tuesday.to_sunday_zero_offset(), 2);
    assert_eq!(
        runs(
            &schedule("0 22 * * 2", odd),
            "2026-12-20T00:00:00Z",
            "2027-01-10T00:00:00Z"
        ),
        ["2026-12-29T21:00:00Z", "2027-01-05T21:00:00Z"],
        "week 53 and week 1 are odd"
    );
}
