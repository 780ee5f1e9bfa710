//! Checks that docs/hooks.md says what the code does.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::{
    environment,
    fixtures::{event, upgrade_job},
    job, select,
};
use crate::api::{UpgradeJobHook, finalizers, labels, upgrade_job_hook::HookEvent};

const DOCUMENT: &str = include_str!("../../docs/hooks.md");

fn yaml_blocks() -> Vec<&'static str> {
    let blocks: Vec<_> = DOCUMENT
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(blocks.len() >= 2, "the examples are gone");
    blocks
}

/// Rows of all tables: the code in the first column, the rest of the row.
fn rows() -> Vec<(&'static str, &'static str)> {
    DOCUMENT
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "))
        .collect()
}

/// Everything in `part` is in `whole`.
fn assert_within(part: &Value, whole: &Value, path: &str) {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            for (key, value) in part {
                let found = whole
                    .get(key)
                    .unwrap_or_else(|| panic!("{path}.{key} is no field"));
                assert_within(value, found, &format!("{path}.{key}"));
            }
        }
        (Value::Array(part), Value::Array(whole)) => {
            assert_eq!(part.len(), whole.len(), "{path}");
            for (i, (part, whole)) in part.iter().zip(whole).enumerate() {
                assert_within(part, whole, &format!("{path}[{i}]"));
            }
        }
        _ => assert_eq!(part, whole, "{path}"),
    }
}

#[test]
fn the_examples_are_hooks_without_unknown_fields_and_become_jobs() {
    let read = |block| (block, serde_yaml::from_str::<Value>(block).unwrap());
    // What a hook runs is shown, too.
    let is_hook = |(_, written): &(&str, Value)| written["kind"] == "UpgradeJobHook";
    for (block, written) in yaml_blocks().into_iter().map(read).filter(is_hook) {
        let hook: UpgradeJobHook = serde_yaml::from_str(block).unwrap();
        assert_within(&written, &serde_json::to_value(&hook).unwrap(), "hook");

        let hooks = [hook];
        let upgrade = upgrade_job();
        let [matched] = select::matching(&hooks, &upgrade, HookEvent::Start)[..] else {
            panic!("the example runs at Start")
        };
        // What the workflow runs is no Job.
        if job::native(matched).is_some() {
            continue;
        }
        let built = job::build(matched, &event(HookEvent::Start), &upgrade, "", false, None).unwrap();
        let spec = built.spec.unwrap();
        assert!(
            spec.active_deadline_seconds.is_some(),
            "an example shows how to set a deadline"
        );
        assert!(spec.pod_failure_policy.is_some());
    }
}

#[test]
fn the_variables_have_the_values_shown() {
    let environment = environment::variables(&event(HookEvent::Start), &upgrade_job(), false);
    let mut checked = 0;
    for (name, example) in rows() {
        let Some(var) = environment.vars.iter().find(|v| v.name == name) else {
            continue;
        };
        let example = example.trim_matches('`');
        let [shown, real] = [Some(example), var.value.as_deref()]
            .map(|text| -> Value { serde_json::from_str(text.unwrap()).unwrap() });
        assert_eq!(shown, real, "{name}");
        checked += 1;
    }
    assert!(checked >= 14, "only {checked} variables are shown");
}

#[test]
fn every_event_label_and_finalizer_is_documented() {
    let documented: BTreeSet<_> = rows().into_iter().map(|(name, _)| name).collect();
    for event in HookEvent::ALL {
        let row = rows().into_iter().find(|(name, _)| *name == event.as_str());
        let (_, text) = row.unwrap_or_else(|| panic!("{event:?} is not documented"));
        assert_eq!(
            text.ends_with("| no effect"),
            !event.influences_outcome(),
            "{event:?}"
        );
    }
    for label in [
        labels::HOOK,
        labels::HOOK_JOB,
        labels::HOOK_EVENT,
        labels::HOOK_TRACKING_KEY,
    ] {
        assert!(documented.contains(label), "{label} is not documented");
    }
    for text in [finalizers::HOOK_JOB, job::ENVIRONMENT_TRIMMED] {
        assert!(DOCUMENT.contains(text), "{text} is not documented");
    }
}

#[test]
fn the_table_of_events_names_only_events() {
    let section = DOCUMENT
        .split("## Events")
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next())
        .unwrap();
    for row in section.lines().filter_map(|l| l.strip_prefix("| `")) {
        let name = row.split('`').next().unwrap();
        assert!(
            HookEvent::deserialize(Value::from(name)).is_ok(),
            "{name} is no event"
        );
    }
}
