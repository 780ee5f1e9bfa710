//! How times read in messages for people.

use jiff::{Timestamp, tz::TimeZone};

/// A time for people: local and in UTC, such as `Tue 2026-11-24 22:00 (Europe/Zurich) / 2026-11-24 21:00 UTC`.
///
/// Seconds are shown where there are any. In UTC itself it is said once.
pub fn time(t: Timestamp, zone: &TimeZone) -> String {
    let local = t.to_zoned(zone.clone());
    let (day, minutes) = if t.as_second() % 60 == 0 {
        ("%a %Y-%m-%d %H:%M", "%Y-%m-%d %H:%M UTC")
    } else {
        ("%a %Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S UTC")
    };
    let local_text = local.strftime(day);
    match zone.iana_name() {
        Some("UTC") => format!("{local_text} UTC"),
        Some(name) => format!("{local_text} ({name}) / {}", t.strftime(minutes)),
        None => format!("{local_text} ({}) / {}", local.offset(), t.strftime(minutes)),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::schedule::Zones;

    #[rstest]
    #[case(
        "Europe/Zurich",
        "2026-11-24T21:00:00Z",
        "Tue 2026-11-24 22:00 (Europe/Zurich) / 2026-11-24 21:00 UTC"
    )]
    #[case::another_day(
        "Asia/Tokyo",
        "2026-11-24T21:00:07Z",
        "Wed 2026-11-25 06:00:07 (Asia/Tokyo) / 2026-11-24 21:00:07 UTC"
    )]
    #[case::said_once("UTC", "2026-11-24T21:00:00.9Z", "Tue 2026-11-24 21:00 UTC")]
    fn times_read_in_local_time_and_utc(#[case] zone: &str, #[case] t: &str, #[case] expected: &str) {
        let zone = Zones::bundled(zone).unwrap().default_zone().clone();
        assert_eq!(time(t.parse().unwrap(), &zone), expected);
    }
}
