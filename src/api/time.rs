//! Times as people write them: everything that the API server takes for a time can be read.
//!
//! The API server takes any RFC 3339 time. Two kinds of them are beyond [`Timestamp`]: later than 30 December 9999 (which
//! is how people write "for ever") and finer than a nanosecond. An object with one of these would otherwise not be read at
//! all, so that a suspension window without an end would suspend nothing.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer, de::Error};

/// Reads a time: what is too late becomes the last instant there is, what is too fine is cut.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map(Time).map_err(D::Error::custom)
}

fn parse(text: &str) -> Result<Timestamp, jiff::Error> {
    let cut = cut_fraction(text);
    cut.parse().or_else(|error| {
        // Only the last two days of the calendar are out of reach.
        if cut.starts_with("9999-12-3") {
            Ok(last_second())
        } else {
            Err(error)
        }
    })
}

/// In whole seconds, as Kubernetes writes times.
fn last_second() -> Timestamp {
    Timestamp::from_second(Timestamp::MAX.as_second()).unwrap_or(Timestamp::MAX)
}

/// Nine digits of a fraction are nanoseconds; the rest goes.
fn cut_fraction(text: &str) -> String {
    let mut digits = 0;
    let mut in_fraction = false;
    text.chars()
        .filter(|c| {
            if in_fraction && c.is_ascii_digit() {
                digits += 1;
                return digits <= 9;
            }
            in_fraction = *c == '.';
            true
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::api::{UpgradeJob, UpgradeSuspensionWindow};

    #[rstest]
    #[case("2026-12-24T00:00:00Z", "2026-12-24T00:00:00Z")]
    #[case("2026-12-24T01:00:00+01:00", "2026-12-24T00:00:00Z")]
    #[case("2026-12-24t00:00:00z", "2026-12-24T00:00:00Z")]
    #[case("2026-12-24T00:00:00.123456789012Z", "2026-12-24T00:00:00.123456789Z")]
    #[case("2026-12-24T00:00:00.1234567890123+01:00", "2026-12-23T23:00:00.123456789Z")]
    #[case("9999-12-31T23:59:59Z", "9999-12-30T22:00:00Z")]
    #[case("9999-12-31T23:59:59.9999999999Z", "9999-12-30T22:00:00Z")]
    #[case("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z")]
    fn every_time_of_the_api_server_is_read(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(parse(text).unwrap().to_string(), expected);
    }

    #[rstest]
    fn other_texts_are_no_times(
        #[values(
            "",
            "tomorrow",
            "9999-11-31T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "10000-01-01T00:00:00Z"
        )]
        text: &str,
    ) {
        let read = parse(text);
        assert!(read.is_err(), "{read:?}");
    }

    #[test]
    fn a_window_without_an_end_is_a_window() {
        let window: UpgradeSuspensionWindow = serde_json::from_value(json!({
            "metadata": {"name": "w"},
            "spec": {"start": "2026-12-24T00:00:00Z", "end": "9999-12-31T23:59:59Z", "configSelector": {}},
        }))
        .unwrap();
        assert!(window.spec.end.0 > "9999-01-01T00:00:00Z".parse().unwrap());
        let again: UpgradeSuspensionWindow =
            serde_json::from_value(serde_json::to_value(&window).unwrap()).unwrap();
        assert_eq!(again, window);
    }

    #[test]
    fn a_job_may_start_for_ever() {
        let job: UpgradeJob = serde_json::from_value(json!({
            "metadata": {"name": "j"},
            "spec": {"startAfter": "2026-12-24T00:00:00Z", "startBefore": "9999-12-31T23:59:59Z"},
        }))
        .unwrap();
        assert!(job.spec.start_before.0 > job.spec.start_after.0);
    }
}
