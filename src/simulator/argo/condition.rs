//! When a task is reached: `depends` and `when`, as far as our workflows use them.

use std::collections::{BTreeMap, BTreeSet};

use super::workflow::Phase;

/// A condition that is not among those that our workflows use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stand-in of Argo does not know the condition {0:?}")]
pub struct Unknown(pub String);

/// The tasks that a `depends` names.
pub fn tasks(depends: &str) -> BTreeSet<&str> {
    words(depends)
        .filter(|word| !OPERATORS.contains(word))
        .map(|word| word.split_once('.').map_or(word, |(task, _)| task))
        .collect()
}

const OPERATORS: [&str; 4] = ["&&", "||", "(", ")"];

fn words(text: &str) -> impl Iterator<Item = &str> {
    let split = |word| {
        let (open, rest) = if let Some(rest) = str::strip_prefix(word, "(") {
            (Some("("), rest)
        } else {
            (None, word)
        };
        let (rest, close) = match rest.strip_suffix(')') {
            Some(rest) => (rest, Some(")")),
            None => (rest, None),
        };
        open.into_iter()
            .chain((!rest.is_empty()).then_some(rest))
            .chain(close)
    };
    text.split_whitespace().flat_map(split)
}

/// Whether a `depends` is met, once all tasks that it names have ended.
///
/// A name alone means that the task succeeded or was skipped.
pub fn is_met(depends: &str, ended: &BTreeMap<&str, Phase>) -> Result<bool, Unknown> {
    let mut words = words(depends).peekable();
    let met = any(&mut words, ended).ok_or_else(|| Unknown(depends.to_owned()))?;
    match words.next() {
        None => Ok(met),
        Some(_) => Err(Unknown(depends.to_owned())),
    }
}

fn any<'w, I: Iterator<Item = &'w str>>(
    words: &mut std::iter::Peekable<I>,
    ended: &BTreeMap<&str, Phase>,
) -> Option<bool> {
    let mut met = every(words, ended)?;
    while words.next_if_eq(&"||").is_some() {
        met |= every(words, ended)?;
    }
    Some(met)
}

fn every<'w, I: Iterator<Item = &'w str>>(
    words: &mut std::iter::Peekable<I>,
    ended: &BTreeMap<&str, Phase>,
) -> Option<bool> {
    let mut met = term(words, ended)?;
    while words.next_if_eq(&"&&").is_some() {
        met &= term(words, ended)?;
    }
    Some(met)
}

fn term<'w, I: Iterator<Item = &'w str>>(
    words: &mut std::iter::Peekable<I>,
    ended: &BTreeMap<&str, Phase>,
) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let met = any(words, ended)?;
        return (words.next()? == ")").then_some(met);
    }
    let Some((task, wanted)) = word.split_once('.') else {
        let phase = ended.get(word)?;
        return Some(matches!(phase, Phase::Succeeded | Phase::Skipped));
    };
    let phase = ended.get(task)?;
    Some(match wanted {
        "Succeeded" => *phase == Phase::Succeeded,
        "Failed" => *phase == Phase::Failed,
        "Skipped" => *phase == Phase::Skipped,
        "Omitted" => *phase == Phase::Omitted,
        // Nothing here ends so.
        "Errored" => false,
        _ => return None,
    })
}

/// What a `when` comes to for this phase of the main part: the text without variables, and whether it is true.
pub fn when(text: &str, status: &str) -> Result<(String, bool), Unknown> {
    let plain = text.replace("{{workflow.status}}", status);
    let words: Vec<&str> = plain.split_whitespace().collect();
    let holds = match words.as_slice() {
        [a, "==", b] => a == b,
        [a, "!=", b] => a != b,
        _ => return Err(Unknown(text.to_owned())),
    };
    Ok((plain, holds))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a", Some(true))]
    #[case("b", Some(false))]
    #[case("a && b", Some(false))]
    #[case("a && c", Some(true))]
    #[case("b || a", Some(true))]
    #[case("(b.Succeeded || b.Failed) && c.Skipped", Some(true))]
    #[case("(b.Succeeded || b.Errored || b.Omitted)", Some(false))]
    #[case("d.Omitted", Some(true))]
    #[case("d", Some(false))]
    #[case("unknown", None)]
    #[case("a.Daemoned", None)]
    #[case("a b", None)]
    #[case("(a", None)]
    fn a_dependency_is_met(#[case] depends: &str, #[case] expected: Option<bool>) {
        let ended = [
            ("a", Phase::Succeeded),
            ("b", Phase::Failed),
            ("c", Phase::Skipped),
            ("d", Phase::Omitted),
        ];
        assert_eq!(is_met(depends, &ended.into()).ok(), expected);
    }

    #[test]
    fn the_tasks_of_a_dependency() {
        let tasks = tasks("(a.Succeeded || a.Failed) && b-c");
        assert_eq!(Vec::from_iter(tasks), ["a", "b-c"]);
    }

    #[rstest]
    #[case("{{workflow.status}} == Succeeded", Some(("Failed == Succeeded", false)))]
    #[case("{{workflow.status}} != Succeeded", Some(("Failed != Succeeded", true)))]
    #[case("true", None)]
    fn a_condition_on_the_outcome(#[case] text: &str, #[case] expected: Option<(&str, bool)>) {
        let expected = expected.map(|(text, holds)| (text.to_owned(), holds));
        assert_eq!(when(text, "Failed").ok(), expected);
    }
}
