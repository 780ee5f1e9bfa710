//! Go durations (`1h30m`, `90s`, `1.5h`), the way Kubernetes writes them.

use std::{borrow::Cow, fmt};

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A duration as written in a resource. The text is kept as written; it is read by [`GoDuration::get`].
///
/// Deserialising never fails on a bad text: the object stays readable and [`crate::api::validation`] says what is
/// wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GoDuration(pub String);

/// A text that is no Go duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: {problem}; write for example 90s, 30m or 1h30m")]
pub struct BadDuration {
    /// The text as written.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// What the API server accepts: a sequence of decimal numbers with units, or a plain `0`; not negative.
pub const PATTERN: &str = r"^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// Longest text that the API server accepts; it bounds the cost of the rule.
const MAX_LENGTH: u32 = 64;

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // The pattern is for tools that know no CEL; only the rule can say in words what is expected.
        json_schema!({
            "type": "string",
            "maxLength": MAX_LENGTH,
            "pattern": PATTERN,
            "x-kubernetes-validations": [{
                "rule": format!("self.matches('{PATTERN}')").replace('\\', r"\\"),
                "message": "must be a duration such as 90s, 30m or 1h30m (units ns, us, ms, s, m and h; no days, not negative)"
            }]
        })
    }
}

impl From<SignedDuration> for GoDuration {
    fn from(duration: SignedDuration) -> Self {
        Self(format(duration))
    }
}

impl fmt::Display for GoDuration {
    /// As written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl GoDuration {
    /// The duration, exact to the nanosecond; a finer fraction is cut off, as Go does.
    pub fn get(&self) -> Result<SignedDuration, BadDuration> {
        read(&self.0, &UNITS, "unknown unit (ns, us, ms, s, m and h exist)")
    }

    /// The duration where it is more than zero; `None` where it is zero or the text is bad.
    pub fn positive(&self) -> Option<SignedDuration> {
        self.get().ok().filter(SignedDuration::is_positive)
    }

    /// The duration, or `default` where there is none or the text is bad (which [`crate::api::validation`] reports).
    pub fn or_default(duration: Option<&Self>, default: SignedDuration) -> SignedDuration {
        duration.map_or(default, |d| d.get_or(default))
    }

    /// The duration, or `default` where the text is bad. Only for values that [`crate::api::validation`] has passed.
    pub fn get_or(&self, default: SignedDuration) -> SignedDuration {
        self.get().unwrap_or(default)
    }
}

/// Nanoseconds of each unit. Go knows two spellings of µ.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// And those that people write for longer times, on the command line and in scenarios: 24 hours, 365 days.
const LONG_UNITS: [(&str, u128); 10] = {
    let [ns, us, mu, micro, ms, s, m, h] = UNITS;
    let hour = h.1;
    [
        ns,
        us,
        mu,
        micro,
        ms,
        s,
        m,
        h,
        ("d", 24 * hour),
        ("y", 365 * 24 * hour),
    ]
};

/// Digits of a fraction that are read: more than any unit has decimal places.
const MAX_FRACTION: usize = 18;

const TOO_LONG: &str = "longer than 292 years";

/// A Go duration that may also have days (24 h) and years (365 d): `90d`, `1d12h`.
pub fn with_days(text: &str) -> Result<SignedDuration, BadDuration> {
    read(
        text,
        &LONG_UNITS,
        "unknown unit (ns, us, ms, s, m, h, d and y exist)",
    )
}

fn read(text: &str, units: &[(&str, u128)], unknown: &'static str) -> Result<SignedDuration, BadDuration> {
    parse(text, units, unknown).map_err(|problem| BadDuration {
        text: text.to_owned(),
        problem,
    })
}

fn parse(text: &str, units: &[(&str, u128)], unknown: &'static str) -> Result<SignedDuration, &'static str> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err("empty");
    }
    if rest.starts_with('-') {
        return Err("negative");
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c| !is_numeric(c)).ok_or("a number without a unit")?;
        let (number, tail) = rest.split_at(digits);
        let (unit, next) = tail.split_at(tail.find(is_numeric).unwrap_or(tail.len()));
        let (_, scale) = units.iter().find(|(name, _)| *name == unit).ok_or(unknown)?;
        total = total.checked_add(nanoseconds(number, *scale)?).ok_or(TOO_LONG)?;
        rest = next;
    }
    i64::try_from(total)
        .map(SignedDuration::from_nanos)
        .map_err(|_| TOO_LONG)
}

fn is_numeric(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

/// `number` units of `scale` nanoseconds, cut off below one.
fn nanoseconds(number: &str, scale: u128) -> Result<u128, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err("not a number");
    }
    let fraction: String = fraction.chars().take(MAX_FRACTION).collect();
    let places = u32::try_from(fraction.len()).map_err(|_| TOO_LONG)?;
    let read = |digits: &str| match digits {
        "" => Ok(0),
        digits => digits.parse::<u128>().map_err(|_| TOO_LONG),
    };
    let whole = read(whole)?.checked_mul(scale).ok_or(TOO_LONG)?;
    whole
        .checked_add(read(&fraction)? * scale / 10_u128.pow(places))
        .ok_or(TOO_LONG)
}

/// Writes a duration as Go does, but without zero parts: `1h30m`, `45s`, `1.5s`, `0s`. Exact; parses back to itself
/// where it is not negative.
pub fn format(d: SignedDuration) -> String {
    let sign = if d.is_negative() { "-" } else { "" };
    let d = d.unsigned_abs();
    let part = |n: u64, unit: &str| {
        if n > 0 {
            format!("{n}{unit}")
        } else {
            String::new()
        }
    };
    let (hours, minutes, seconds) = (d.as_secs() / 3600, d.as_secs() / 60 % 60, d.as_secs() % 60);
    let seconds = if d.subsec_nanos() > 0 {
        let exact = format!("{seconds}.{:09}", d.subsec_nanos());
        format!("{}s", exact.trim_end_matches('0'))
    } else if d.is_zero() {
        "0s".to_owned()
    } else {
        part(seconds, "s")
    };
    format!("{sign}{}{}{seconds}", part(hours, "h"), part(minutes, "m"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn nanos(text: &str) -> Result<i128, BadDuration> {
        GoDuration(text.to_owned()).get().map(|d| d.as_nanos())
    }

    #[rstest]
    #[case("1h30m", 5_400_000_000_000, "1h30m")]
    #[case("90s", 90_000_000_000, "1m30s")]
    #[case("1.5h", 5_400_000_000_000, "1h30m")]
    #[case("12h0m0s", 43_200_000_000_000, "12h")]
    #[case("0", 0, "0s")]
    #[case("+0", 0, "0s")]
    #[case("0s", 0, "0s")]
    #[case("0h0m0s", 0, "0s")]
    #[case("+5s", 5_000_000_000, "5s")]
    #[case(".5s", 500_000_000, "0.5s")]
    #[case("1.s", 1_000_000_000, "1s")]
    #[case("100ms", 100_000_000, "0.1s")]
    #[case("3us", 3_000, "0.000003s")]
    #[case("3µs", 3_000, "0.000003s")]
    #[case("3μs", 3_000, "0.000003s")]
    #[case("1.9ns", 1, "0.000000001s")]
    // Go's own test of the precision of fractions.
    #[case("0.3333333333333333333h", 1_200_000_000_000 - 1, "19m59.999999999s")]
    #[case("52763797000ns", 52_763_797_000, "52.763797s")]
    #[case("2562047h47m16.854775807s", i128::from(i64::MAX), "2562047h47m16.854775807s")]
    fn a_duration_is_read_exactly_and_printed(
        #[case] text: &str,
        #[case] expected: i128,
        #[case] printed: &str,
    ) {
        assert_eq!(nanos(text), Ok(expected));
        assert_eq!(format(GoDuration(text.to_owned()).get().unwrap()), printed);
        assert_eq!(GoDuration(text.to_owned()).to_string(), text, "kept as written");
    }

    #[rstest]
    #[case("90d", 90 * 24)]
    #[case("1y", 365 * 24)]
    #[case("1d12h", 36)]
    #[case("1.5d", 36)]
    #[case("30m30m", 1)]
    fn days_and_years_count_only_where_asked_for(#[case] text: &str, #[case] hours: i64) {
        assert_eq!(with_days(text).unwrap(), SignedDuration::from_hours(hours));
        assert_eq!(nanos(text).is_ok(), !text.contains(['d', 'y']));
    }

    #[rstest]
    #[case("", "empty")]
    #[case("+", "empty")]
    #[case("-1h", "negative")]
    #[case("-0", "negative")]
    #[case("1", "a number without a unit")]
    #[case("1h30", "a number without a unit")]
    #[case("1h-5m", "unknown unit (ns, us, ms, s, m and h exist)")]
    #[case("1d", "unknown unit (ns, us, ms, s, m and h exist)")]
    #[case("1 h", "unknown unit (ns, us, ms, s, m and h exist)")]
    #[case("1h 5m", "unknown unit (ns, us, ms, s, m and h exist)")]
    #[case("1H", "unknown unit (ns, us, ms, s, m and h exist)")]
    #[case("h", "not a number")]
    #[case(".s", "not a number")]
    #[case("1..2s", "not a number")]
    #[case("1.2.3s", "not a number")]
    #[case("9999999999999h", TOO_LONG)]
    #[case("2562047h47m16.854775808s", TOO_LONG)]
    #[case("99999999999999999999999999999999999999999999999h", TOO_LONG)]
    fn a_text_that_is_no_duration_is_refused_with_the_cause(#[case] text: &str, #[case] problem: &str) {
        let error = nanos(text).unwrap_err();
        assert_eq!(error.problem, problem);
        assert!(error.to_string().contains("write for example 90s"));
    }

    /// One part of a duration: whole number, digits of the fraction, index of the unit.
    fn part() -> impl Strategy<Value = (u32, String, usize)> {
        (0..1_000_u32, "[0-9]{0,12}", 0..UNITS.len())
    }

    proptest! {
        #[test]
        fn a_duration_is_the_sum_of_its_parts(parts in proptest::collection::vec(part(), 1..6)) {
            let mut text = String::new();
            let mut expected = 0_u128;
            for (whole, fraction, unit) in &parts {
                let (name, scale) = UNITS[*unit];
                text = format!("{text}{whole}.{fraction}{name}");
                // The reference counts digit by digit, without the arithmetic of the parser.
                expected += u128::from(*whole) * scale;
                let mut pico_scale = scale * 1_000_000_000_000;
                let mut pico = 0;
                for digit in fraction.chars() {
                    pico_scale /= 10;
                    pico += u128::from(digit.to_digit(10).unwrap()) * pico_scale;
                }
                expected += pico / 1_000_000_000_000;
            }
            prop_assert_eq!(nanos(&text), Ok(i128::try_from(expected).unwrap()));
        }

        #[test]
        fn what_is_printed_reads_as_the_same_duration(n in 0..=i64::MAX) {
            let d = SignedDuration::from_nanos(n);
            prop_assert_eq!(GoDuration::from(d).get(), Ok(d));
        }

        #[test]
        fn the_schema_accepts_exactly_what_can_be_read(text in "[+-]?([0-9.]{0,4}(ns|us|µs|μs|ms|s|m|h|d| |)){0,4}") {
            let accepted = regex::Regex::new(PATTERN).unwrap().is_match(&text);
            prop_assert_eq!(accepted, nanos(&text).is_ok(), "{}", text);
        }
    }
}
