//! The values that fields of a scenario are written in: times, durations, ranges, words.

use std::{borrow::Cow, fmt, str::FromStr};

use jiff::{SignedDuration, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    api::duration::{self, BadDuration},
    simulator::openshift::durations::Range,
};

/// A duration: `90s`, `30m`, `1h30m`, `2d` (24 hours), `1y` (365 days).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Length(pub SignedDuration);

/// A duration, or a range of which one is drawn: `10m`, `60m..120m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Range);

/// An instant: RFC 3339 (`2026-12-01T22:30:00+01:00`), or counted from the start of the simulation (`+3h`, `+2d12h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// This instant.
    At(Timestamp),
    /// So long after the start.
    After(SignedDuration),
}

impl Moment {
    /// The instant in a simulation that starts at `start`; the end of time where there is no such instant.
    pub fn on(self, start: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::After(duration) => start.checked_add(duration).unwrap_or(Timestamp::MAX),
        }
    }

    /// Whether this comes before `other`, where that does not depend on the start.
    pub(super) fn is_before(self, other: Self) -> Option<bool> {
        match (self, other) {
            (Self::At(a), Self::At(b)) => Some(a < b),
            (Self::After(a), Self::After(b)) => Some(a < b),
            (Self::At(_), Self::After(_)) | (Self::After(_), Self::At(_)) => None,
        }
    }
}

/// A duration that may be negative: `2m`, `-30s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset(pub SignedDuration);

/// One word: a name, or a reason. It goes into lines that are taken apart at blanks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word(String);

impl Word {
    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no such value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    /// A duration.
    #[error(transparent)]
    Duration(#[from] BadDuration),
    /// An instant.
    #[error(
        "{0:?} is no instant; write a time in RFC 3339 such as 2026-12-01T22:00:00Z, or +3h for 3 hours after the start"
    )]
    Moment(String),
    /// A range.
    #[error("{0:?} ends before it begins; write the shorter duration first, such as 60m..120m")]
    Range(String),
    /// Blanks, or nothing at all.
    #[error("{0:?} is not one word; blanks belong into a message")]
    Word(String),
}

impl FromStr for Length {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        Ok(Self(duration::with_days(text)?))
    }
}

impl FromStr for Offset {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text.strip_prefix('-') {
            Some(rest) => Ok(Self(-duration::with_days(rest)?)),
            None => Ok(Self(duration::with_days(text)?)),
        }
    }
}

impl FromStr for Span {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let (min, max) = (duration::with_days(min.trim())?, duration::with_days(max.trim())?);
        if max < min {
            return Err(BadValue::Range(text.to_owned()));
        }
        Ok(Self(Range { min, max }))
    }
}

impl FromStr for Moment {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if let Some(offset) = text.strip_prefix('+') {
            return Ok(Self::After(duration::with_days(offset)?));
        }
        text.parse()
            .map(Self::At)
            .map_err(|_| BadValue::Moment(text.to_owned()))
    }
}

impl FromStr for Word {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let is_word = !text.is_empty() && !text.contains(char::is_whitespace);
        is_word
            .then(|| Self(text.to_owned()))
            .ok_or_else(|| BadValue::Word(text.to_owned()))
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration::format(self.0))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration::format(self.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { min, max } = self.0;
        if min == max {
            return f.write_str(&duration::format(min));
        }
        write!(f, "{}..{}", duration::format(min), duration::format(max))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => at.fmt(f),
            Self::After(offset) => write!(f, "+{}", duration::format(*offset)),
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a value from its text, so that an error knows its line.
struct Text<T>(std::marker::PhantomData<T>);

impl<T> de::Visitor<'_> for Text<T>
where
    T: FromStr<Err = BadValue>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// These types are written as text, each in its own form.
macro_rules! written_as_text {
    ($type:ident, $schema:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text(std::marker::PhantomData))
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

/// A duration with days and years, as a regular expression.
const DURATION: &str = r"(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|y))+)";

written_as_text!(
    Length,
    json_schema!({
        "type": "string",
        "pattern": format!("^{DURATION}$"),
        "description": "A duration: 90s, 30m, 1h30m, 2d (24 hours), 1y (365 days).",
    })
);
written_as_text!(
    Offset,
    json_schema!({
        "type": "string",
        "pattern": format!("^-?{DURATION}$"),
        "description": "A duration that may be negative: 2m, -30s.",
    })
);
written_as_text!(
    Span,
    json_schema!({
        "type": "string",
        "pattern": format!(r"^{DURATION}( *\.\. *{DURATION})?$"),
        "description": "A duration such as 10m, or a range of which one is drawn by the seed, such as 60m..120m.",
    })
);
written_as_text!(
    Moment,
    json_schema!({
        "type": "string",
        "pattern": format!(r"^(\+{DURATION}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[Tt ].+)$"),
        "description": "An instant: RFC 3339 such as 2026-12-01T22:30:00+01:00, or counted from the start of the simulation such as +3h or +2d12h.",
    })
);
written_as_text!(
    Word,
    json_schema!({
        "type": "string",
        "pattern": r"^\S+$",
        "description": "One word, without blanks.",
    })
);

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("10m", 600, 600, "10m")]
    #[case("60m..120m", 3600, 7200, "1h..2h")]
    #[case("1d .. 2d", 86_400, 172_800, "24h..48h")]
    fn a_span_is_a_duration_or_a_range(
        #[case] text: &str,
        #[case] min: i64,
        #[case] max: i64,
        #[case] printed: &str,
    ) {
        let span: Span = text.parse().unwrap();
        assert_eq!((span.0.min.as_secs(), span.0.max.as_secs()), (min, max));
        assert_eq!(span.to_string(), printed);
        assert_eq!(printed.parse(), Ok(span));
    }

    #[rstest]
    #[case("+3h", "2026-11-24T03:00:00Z")]
    #[case("+2d", "2026-11-26T00:00:00Z")]
    #[case("2026-12-01T22:30:00+01:00", "2026-12-01T21:30:00Z")]
    fn a_moment_is_absolute_or_counted_from_the_start(#[case] text: &str, #[case] expected: &str) {
        let start = "2026-11-24T00:00:00Z".parse().unwrap();
        let moment: Moment = text.parse().unwrap();
        assert_eq!(moment.on(start).to_string(), expected);
        assert_eq!(moment.to_string().parse(), Ok(moment));
    }

    #[rstest]
    #[case::moment("tomorrow".parse::<Moment>().map(drop), "RFC 3339")]
    #[case::without_zone("2026-12-01T22:30:00".parse::<Moment>().map(drop), "RFC 3339")]
    #[case::offset("+3".parse::<Moment>().map(drop), "a number without a unit")]
    #[case::range("2h..1h".parse::<Span>().map(drop), "ends before it begins")]
    #[case::half_a_range("1h..".parse::<Span>().map(drop), "empty")]
    #[case::unit("3w".parse::<Length>().map(drop), "d and y exist")]
    #[case::words("two words".parse::<Word>().map(drop), "not one word")]
    #[case::nothing("".parse::<Word>().map(drop), "not one word")]
    fn what_is_no_such_value_is_refused(#[case] result: Result<(), BadValue>, #[case] expected: &str) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
