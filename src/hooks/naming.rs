//! Names, labels and annotations of what runs a hook: always valid, and never the same for two things.

use std::collections::BTreeMap;

use kube::ResourceExt;

use crate::api::{UpgradeJob, labels, names, upgrade_job_hook::HookEvent};

/// Name of the Job or TaskRun: `<job>-<hook>-<event>[-<key>]-<hash>`, a DNS label of at most 63 characters.
///
/// The longest parts are shortened first, so that hook and event stay readable. The hash covers all parts and the UID of
/// the UpgradeJob: the names alone are ambiguous (`a-b` + `c`, `a` + `b-c`), and a job that was re-created under its old
/// name must not meet the Jobs of its predecessor.
pub fn name(job: &UpgradeJob, hook: &str, event: HookEvent, key: &str) -> String {
    let job_name = job.name_any();
    let identity = serde_json::json!([job.uid(), job_name, hook, event.as_str(), key]).to_string();
    let hash = names::hash(&identity, 10);

    let mut parts = [job_name.as_str(), hook, event.as_str(), key]
        .map(dns_part)
        .to_vec();
    parts.retain(|p| !p.is_empty());
    let budget = names::MAX - hash.len() - parts.len();
    while parts.iter().map(String::len).sum::<usize>() > budget {
        if let Some(longest) = parts.iter_mut().max_by_key(|p| p.len()) {
            longest.pop();
        }
    }
    parts.push(hash);
    let trimmed: Vec<&str> = parts.iter().map(|p| p.trim_matches('-')).collect();
    trimmed.join("-")
}

/// Name of a further try of what has this `first` name: `<first>-<n>`, at most 63 characters as well.
pub fn try_name(first: &str, attempt: u32) -> String {
    if attempt <= 1 {
        return first.to_owned();
    }
    let tail = format!("-{attempt}");
    let head = names::fit(first, names::MAX.saturating_sub(tail.len()));
    format!("{head}{tail}")
}

fn dns_part(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    clean.trim_matches('-').to_owned()
}

/// The peer's labels. A name that is no label value is shortened there, and complete in the annotation of the same key.
pub(super) fn identify(
    job_labels: &mut BTreeMap<String, String>,
    annotations: &mut BTreeMap<String, String>,
    hook: &str,
    event: HookEvent,
    job: &UpgradeJob,
    tracking_key: &str,
) {
    for (key, text) in [
        (labels::HOOK, hook),
        (labels::HOOK_JOB, job.name_any().as_str()),
        (labels::HOOK_EVENT, event.as_str()),
        (labels::HOOK_TRACKING_KEY, tracking_key),
    ] {
        let value = label_value(text);
        if value == text {
            annotations.remove(key);
        } else {
            annotations.insert(key.to_owned(), text.to_owned());
        }
        job_labels.insert(key.to_owned(), value);
    }
}

/// A valid label value out of any text; the text itself where it is one.
pub(super) fn label_value(text: &str) -> String {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    if text.chars().all(inner) && edge(text.chars().next()) && edge(text.chars().next_back()) {
        names::label_value(text)
    } else {
        // The prefix keeps the first character valid whatever the text begins with.
        names::dns_label(&format!("x-{text}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::hooks::{
        fixtures::{event, hook, upgrade_job},
        job::build,
    };

    #[test]
    fn the_name_shows_job_hook_event_and_pool() {
        let mut job = upgrade_job();
        job.metadata.name = Some("up-1".to_owned());
        let name = |hook: &str, event, key: &str| {
            let name = name(&job, hook, event, key);
            let (readable, hash) = name.rsplit_once('-').unwrap();
            assert_eq!(hash.len(), 10);
            readable.to_owned()
        };
        assert_eq!(name("notify", HookEvent::Start, ""), "up-1-notify-start");
        assert_eq!(
            name("notify", HookEvent::MachineConfigPoolUnpause, "worker"),
            "up-1-notify-machineconfigpoolunpause-worker"
        );
        assert_eq!(
            name(
                "cluster-upgrade-notify-externally-and-long",
                HookEvent::Finish,
                ""
            ),
            "up-1-cluster-upgrade-notify-externally-and-lo-finish"
        );
    }

    #[test]
    fn every_try_has_a_name_of_its_own() {
        let long = name(&upgrade_job(), &"x".repeat(200), HookEvent::Start, "worker");
        assert_eq!(long.len(), 63);
        for first in ["up-1-notify-start-0123456789", long.as_str()] {
            let all: BTreeSet<String> = (1..=11).map(|n| try_name(first, n)).collect();
            assert_eq!(all.len(), 11);
            assert!(
                all.contains(first) && all.iter().all(|n| is_dns_label(n)),
                "{all:?}"
            );
        }
        assert_eq!(try_name("a", 2), "a-2");
    }

    #[test]
    fn a_recreated_job_has_other_hook_jobs() {
        let mut again = upgrade_job();
        again.metadata.uid = Some("another".to_owned());
        let of = |job: &UpgradeJob| name(job, "notify", HookEvent::Start, "");
        assert_ne!(of(&upgrade_job()), of(&again));
    }

    #[test]
    fn names_that_join_alike_stay_apart() {
        let mut names = BTreeSet::new();
        for (job, hook, key) in [
            ("a-b", "c", ""),
            ("a", "b-c", ""),
            ("a", "b.c", ""),
            ("a", "b", "c"),
            ("a", "b", "C"),
        ] {
            let mut upgrade = upgrade_job();
            upgrade.metadata.name = Some(job.to_owned());
            assert!(
                names.insert(name(&upgrade, hook, HookEvent::Start, key)),
                "{job} {hook} {key}"
            );
        }
    }

    fn is_dns_label(text: &str) -> bool {
        text.len() <= 63
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !text.starts_with('-')
            && !text.ends_with('-')
            && !text.is_empty()
    }

    fn is_label_value(text: &str) -> bool {
        let edge = |c: char| c.is_ascii_alphanumeric();
        text.is_empty()
            || (text.len() <= 63
                && text.starts_with(edge)
                && text.ends_with(edge)
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)))
    }

    fn names() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
            "[a-z0-9]{63,253}",
            any::<String>(),
        ]
    }

    proptest! {
        #[test]
        fn names_and_labels_are_valid_whatever_comes_in(job in names(), hook_name in names(), key in names()) {
            let mut upgrade = upgrade_job();
            upgrade.metadata.name = Some(job.clone());
            let hook = hook(&hook_name, &json!({}));
            let built = build(&hook, &event(HookEvent::Finish), &upgrade, &key, false, None).unwrap();
            prop_assert!(is_dns_label(&built.name_any()), "{}", built.name_any());
            for (label, text) in [(labels::HOOK_JOB, &job), (labels::HOOK, &hook_name), (labels::HOOK_TRACKING_KEY, &key)] {
                let value = &built.labels()[label];
                prop_assert!(is_label_value(value), "{label}: {value}");
                prop_assert!(value == text || built.annotations().get(label) == Some(text));
            }
        }
    }
}
