//! How texts, times and durations read in messages for people.

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use crate::api::duration;

/// Text of somebody else on one line, of at most so many characters.
pub fn line(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Names in a line, so many at most: `a, b and 3 more`.
pub fn names(all: &[String], most: usize) -> String {
    let shown: Vec<&str> = all.iter().take(most).map(String::as_str).collect();
    match all.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

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

/// A duration for people, as it would be written in a resource: `2h31m`, `12m5s`, `45s`. Without parts that are too small
/// to matter, and cut, not rounded.
pub fn duration(d: SignedDuration) -> String {
    let unit = if d.unsigned_abs() >= SignedDuration::from_hours(1).unsigned_abs() {
        60
    } else {
        1
    };
    duration::format(SignedDuration::from_secs(d.as_secs() / unit * unit))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::schedule::Zones;

    #[rstest]
    #[case("up  ==\n 0", 20, "up == 0")]
    #[case("Größe", 5, "Größe")]
    #[case("Größe", 3, "Grö…")]
    #[case(" ", 0, "")]
    fn texts_of_others_fit_on_a_line(#[case] text: &str, #[case] most: usize, #[case] expected: &str) {
        assert_eq!(line(text, most), expected);
    }

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

    #[rstest]
    #[case(0, "0s")]
    #[case(45_999, "45s")]
    #[case(725_000, "12m5s")]
    #[case(3_599_000, "59m59s")]
    #[case(9_119_000, "2h31m")]
    #[case(7_200_000, "2h")]
    fn durations_leave_out_what_does_not_matter(#[case] milliseconds: i64, #[case] expected: &str) {
        assert_eq!(duration(SignedDuration::from_millis(milliseconds)), expected);
    }
}
