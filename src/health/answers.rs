//! What Prometheus said, as a part of the snapshot: decisions read answers, and only the controller asks.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// An answer counts for so long; then it is asked for again. So Prometheus is asked at most this often.
pub const COUNTS_FOR: SignedDuration = SignedDuration::from_secs(30);

/// What Prometheus said.
#[derive(Clone, Debug, PartialEq)]
pub enum Answers {
    /// There is nobody to ask: the operator has no `--prometheus-url`.
    NobodyToAsk,
    /// By query.
    Known(BTreeMap<String, Answer>),
}

/// The answer to one query.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// When it was asked for.
    pub at: Timestamp,
    /// The result, or why there is none, for people.
    pub said: Result<Vector, String>,
}

/// The result of an instant query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vector {
    /// Its samples, in Prometheus' order.
    pub samples: Vec<Sample>,
    /// How many more there were that were not kept.
    pub more: usize,
    /// What Prometheus warns of.
    pub warnings: Vec<String>,
}

/// One sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value as Prometheus writes it.
    pub value: String,
}

impl Sample {
    /// A label, empty if it is not there: to Prometheus that is the same.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// What there is on one query at an instant.
pub(super) enum Said<'a> {
    NobodyToAsk,
    /// No answer that still counts.
    NotYet,
    CannotTell(&'a str),
    Vector(&'a Vector),
}

impl Answers {
    /// The answer to `query` that still counts, and until when it does.
    pub(super) fn to(&self, query: &str, now: Timestamp) -> (Said<'_>, Option<Timestamp>) {
        let all = match self {
            Self::NobodyToAsk => return (Said::NobodyToAsk, None),
            Self::Known(all) => all,
        };
        let Some(answer) = all.get(query) else {
            return (Said::NotYet, None);
        };
        let until = answer.at.saturating_add(COUNTS_FOR).unwrap_or(Timestamp::MAX);
        if now >= until {
            return (Said::NotYet, None);
        }
        let said = match &answer.said {
            Ok(vector) => Said::Vector(vector),
            Err(why) => Said::CannotTell(why),
        };
        (said, Some(until))
    }
}
