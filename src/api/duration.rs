//! Go durations (`1h30m`, `90s`, `1.5h`), the way Kubernetes writes them.

use std::borrow::Cow;

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A duration as written in a resource. The text is kept as written; it is read by [`GoDuration::get`].
///
/// Deserialising never fails on a bad text: the object stays readable and [`crate::api::validation`] says what is wrong.
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

/// What the API server accepts: a sequence of decimal numbers with units, or a plain `0`; no sign.
pub const PATTERN: &str = r"^(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*)$";

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": PATTERN, "maxLength": 64})
    }
}

impl GoDuration {
    /// The duration.
    pub fn get(&self) -> Result<SignedDuration, BadDuration> {
        parse(&self.0).map_err(|problem| BadDuration {
            text: self.0.clone(),
            problem,
        })
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

/// Longest duration we accept (Go's int64 nanoseconds hold about 292 years).
const MAX_SECONDS: f64 = 9_223_372_036.0;

fn parse(text: &str) -> Result<SignedDuration, &'static str> {
    if text == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if text.starts_with('-') {
        return Err("negative");
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return Err("empty");
    }
    let mut total = SignedDuration::ZERO;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or("a number without a unit")?;
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_len);
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err("unknown unit (ns, us, ms, s, m and h exist)"),
        };
        let seconds = number.parse::<f64>().map_err(|_| "not a number")? * scale;
        if !(0.0..=MAX_SECONDS).contains(&seconds) {
            return Err("too long");
        }
        let part = SignedDuration::try_from_secs_f64(seconds).map_err(|_| "too long")?;
        total = total.checked_add(part).ok_or("too long")?;
        rest = next;
    }
    Ok(total)
}

/// Writes a duration as Go does, without zero parts: `1h30m`, `45s`, `1.5s`, `0s`.
pub fn format(d: SignedDuration) -> String {
    let negative = d.is_negative();
    let d = d.unsigned_abs();
    let (h, m, s) = (d.as_secs() / 3600, d.as_secs() / 60 % 60, d.as_secs() % 60);
    let mut out = String::new();
    if negative {
        out.push('-');
    }
    if h > 0 {
        out.push_str(&format!("{h}h"));
    }
    if m > 0 {
        out.push_str(&format!("{m}m"));
    }
    let millis = d.subsec_millis();
    if millis > 0 {
        out.push_str(format!("{s}.{millis:03}").trim_end_matches('0'));
        out.push('s');
    } else if s > 0 || (h == 0 && m == 0) {
        out.push_str(&format!("{s}s"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, seconds, printed) in [
            ("1h30m", 5400, "1h30m"),
            ("90s", 90, "1m30s"),
            ("1.5h", 5400, "1h30m"),
            ("0", 0, "0s"),
            ("12h", 43200, "12h"),
        ] {
            let d = GoDuration(text.into()).get().unwrap();
            assert_eq!(d, SignedDuration::from_secs(seconds));
            assert_eq!(format(d), printed);
        }
        for bad in [
            "",
            "1",
            "-1h",
            "1h-5m",
            "h",
            "1d",
            "1 h",
            "1..2s",
            "9999999999999h",
            "1h30",
        ] {
            assert!(GoDuration(bad.into()).get().is_err(), "{bad}");
        }
    }
}
