//! How the Jobs of hooks end.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{Moment, Span};

/// How Jobs of some hooks end. The first rule that matches counts; without one a Job takes 30 s and succeeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookJobs {
    /// Name of the UpgradeJobHook; `*` stands for any characters.
    pub hook: String,
    /// How long a Job runs.
    #[serde(default = "thirty_seconds")]
    pub duration: Span,
    /// How it ends.
    #[serde(default)]
    pub outcome: Outcome,
    /// For Jobs that start from then on. Default: from the start.
    #[serde(default)]
    pub from: Option<Moment>,
    /// For Jobs that start before then. Default: to the end.
    #[serde(default)]
    pub until: Option<Moment>,
}

fn thirty_seconds() -> Span {
    Span(jiff::SignedDuration::from_secs(30).into())
}

/// How a Job ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// Complete.
    #[default]
    Succeeds,
    /// Failed.
    Fails,
    /// Never by itself; its `activeDeadlineSeconds` counts.
    Hangs,
}

impl HookJobs {
    /// Whether the rule is for a Job of this hook that starts `now`.
    pub(super) fn is_for(&self, hook: &str, start: Timestamp, now: Timestamp) -> bool {
        let began = self.from.is_none_or(|from| now >= from.on(start));
        let ended = self.until.is_some_and(|until| now >= until.on(start));
        began && !ended && matches(&self.hook, hook)
    }
}

/// `*` stands for any characters, also none.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(rest) = name.strip_prefix(head) else {
        return false;
    };
    let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    ends.filter_map(|at| rest.get(at..))
        .any(|rest| matches(tail, rest))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    #[rstest]
    #[case("notify", "notify", true)]
    #[case("notify", "notify-x", false)]
    #[case("*", "", true)]
    #[case("notify-*", "notify-x", true)]
    #[case("notify-*", "a-notify-x", false)]
    #[case("*-x", "notify-x-x", true)]
    #[case("a*b*c", "a-b-b-c", true)]
    #[case("a*b*c", "a-c-b", false)]
    fn a_star_stands_for_any_characters(#[case] pattern: &str, #[case] name: &str, #[case] expected: bool) {
        assert_eq!(super::matches(pattern, name), expected);
    }
}
