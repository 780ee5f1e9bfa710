//! What a suspension window says of itself: what it matches, and what is wrong with it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::suspension::{Subject, is_matched};
use crate::{
    api::{
        UpgradeSuspensionWindow,
        conditions::{self, reasons, types},
        upgrade_suspension_window::{MatchingObject, UpgradeSuspensionWindowStatus},
        validation,
    },
    lifecycle::Notice,
    world::World,
};

/// Most objects that are listed; the rest is counted.
const MAX_LISTED: usize = 100;

/// The status as it shall be, and what to tell people. What a window matches does not depend on the time: it is to be
/// looked at before the holidays.
pub fn decide(
    window: &UpgradeSuspensionWindow,
    world: &World,
    now: Timestamp,
) -> (UpgradeSuspensionWindowStatus, Option<Notice>) {
    let before = window.status.clone().unwrap_or_default();
    if window.metadata.deletion_timestamp.is_some() {
        return (before, None);
    }
    let problems = validation::upgrade_suspension_window(window);
    let valid = problems.is_empty();
    let spec = &window.spec;
    let matches_nothing = spec.config_selector.is_none() && spec.job_selector.is_none();
    let (reason, message) = if !valid {
        let problems = validation::summary(&problems);
        (
            reasons::INVALID,
            format!("{problems}. Until then the window suspends nothing by what is wrong"),
        )
    } else if matches_nothing {
        let message =
            "the window matches nothing: it has neither configSelector nor jobSelector; {} matches all";
        (reasons::VALID, message.to_owned())
    } else {
        (reasons::VALID, "the window is valid".to_owned())
    };
    let generation = window.metadata.generation;
    let mut all = before.conditions;
    let changed = conditions::set(
        &mut all,
        types::VALID,
        valid,
        reason,
        message.clone(),
        generation,
        now,
    );
    let (matching_configs, more_matching_configs) =
        matching(window, spec.config_selector.as_ref(), &world.configs);
    let (matching_jobs, more_matching_jobs) = matching(window, spec.job_selector.as_ref(), &world.jobs);
    let status = UpgradeSuspensionWindowStatus {
        observed_generation: generation,
        matching_configs,
        more_matching_configs,
        matching_jobs,
        more_matching_jobs,
        conditions: all,
    };
    let notice = (changed && (!valid || matches_nothing)).then(|| Notice {
        warning: true,
        reason: if valid { "MatchesNothing" } else { reason }.to_owned(),
        note: message,
    });
    (status, notice)
}

/// The matched objects by name, and how many more there are than are listed.
fn matching<K: ResourceExt>(
    window: &UpgradeSuspensionWindow,
    selector: Option<&LabelSelector>,
    objects: &[K],
) -> (Vec<MatchingObject>, i64) {
    let none = BTreeMap::new();
    let mut names: Vec<String> = objects
        .iter()
        .filter(|object| {
            let subject = Subject {
                namespace: object.meta().namespace.as_deref(),
                labels: object.meta().labels.as_ref().unwrap_or(&none),
            };
            is_matched(window, selector, subject)
        })
        .map(ResourceExt::name_any)
        .collect();
    names.sort();
    let more = names.len().saturating_sub(MAX_LISTED);
    names.truncate(MAX_LISTED);
    let listed = names.into_iter().map(|name| MatchingObject { name }).collect();
    (listed, i64::try_from(more).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-11-01T00:00:00Z";

    fn window(rest: &Value) -> UpgradeSuspensionWindow {
        let mut window = json!({
            "metadata": {"name": "w", "namespace": "ns", "generation": 4},
            "spec": {"start": "2026-12-24T00:00:00Z", "end": "2027-01-04T00:00:00Z", "reason": "holidays"},
        });
        json_patch::merge(&mut window["spec"], rest);
        serde_json::from_value(window).unwrap()
    }

    fn world() -> World {
        let object = |kind: &str, name: &str, namespace: &str, team: &str| {
            let spec = if kind == "config" {
                json!({"schedule": {"cron": "@weekly"}, "jobTemplate": {"spec": {}}})
            } else {
                json!({"startAfter": NOW, "startBefore": "2026-11-01T01:00:00Z", "config": {}})
            };
            json!({"metadata": {"name": name, "namespace": namespace, "labels": {"team": team}}, "spec": spec})
        };
        let of = |kind: &'static str| {
            vec![
                object(kind, &format!("{kind}-z"), "ns", "a"),
                object(kind, &format!("{kind}-a"), "ns", "a"),
                object(kind, &format!("{kind}-b"), "ns", "b"),
                object(kind, &format!("{kind}-elsewhere"), "other", "a"),
            ]
        };
        World {
            configs: serde_json::from_value(json!(of("config"))).unwrap(),
            jobs: serde_json::from_value(json!(of("job"))).unwrap(),
            ..World::default()
        }
    }

    fn names(found: &[MatchingObject]) -> Vec<&str> {
        found.iter().map(|m| m.name.as_str()).collect()
    }

    #[rstest]
    #[case::null_matches_nothing(Value::Null, &[])]
    #[case::empty_matches_all_of_the_namespace(json!({}), &["a", "b", "z"])]
    #[case::by_label(json!({"matchLabels": {"team": "a"}}), &["a", "z"])]
    #[case::by_expression(json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}), &["b"])]
    #[case::unreadable(json!({"matchExpressions": [{"key": "team", "operator": "Near"}]}), &[])]
    fn the_matched_objects_are_listed_by_name(#[case] selector: Value, #[case] expected: &[&str]) {
        let prefixed =
            |kind: &str| -> Vec<String> { expected.iter().map(|n| format!("{kind}-{n}")).collect() };
        let by_config = window(&json!({"configSelector": selector}));
        let (status, _) = decide(&by_config, &world(), NOW.parse().unwrap());
        assert_eq!(names(&status.matching_configs), prefixed("config"));
        assert_eq!(status.matching_jobs, []);
        let by_job = window(&json!({"jobSelector": selector}));
        let (status, _) = decide(&by_job, &world(), NOW.parse().unwrap());
        assert_eq!(names(&status.matching_jobs), prefixed("job"));
        assert_eq!(status.matching_configs, []);
        assert_eq!((status.more_matching_configs, status.more_matching_jobs), (0, 0));
    }

    #[test]
    fn the_list_is_bounded_and_the_rest_counted() {
        let mut world = world();
        let template = world.configs[0].clone();
        world.configs = (0..250)
            .map(|n| {
                let mut config = template.clone();
                config.metadata.name = Some(format!("c-{n:03}"));
                config
            })
            .rev()
            .collect();
        let (status, _) = decide(
            &window(&json!({"configSelector": {}})),
            &world,
            NOW.parse().unwrap(),
        );
        let listed = names(&status.matching_configs);
        assert_eq!((listed.len(), listed[0], listed[99]), (100, "c-000", "c-099"));
        assert_eq!(status.more_matching_configs, 150);
    }

    #[rstest]
    #[case::good(json!({"configSelector": {}}), "True/Valid", "", None)]
    #[case::turned_round(json!({"end": "2026-12-23T00:00:00Z", "configSelector": {}}), "False/Invalid",
        "spec.end: 2026-12-23T00:00:00Z is not later than spec.start", Some("Invalid"))]
    #[case::of_no_length(json!({"end": "2026-12-24T00:00:00Z", "configSelector": {}}), "False/Invalid",
        "spec.end: 2026-12-24T00:00:00Z is not later", Some("Invalid"))]
    #[case::selector_without_meaning(json!({"jobSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
        "False/Invalid", "spec.jobSelector", Some("Invalid"))]
    #[case::without_selector(json!({}), "True/Valid", "the window matches nothing", Some("MatchesNothing"))]
    fn a_window_says_whether_it_is_valid(
        #[case] rest: Value,
        #[case] expected: &str,
        #[case] message: &str,
        #[case] told: Option<&str>,
    ) {
        let mut window = window(&rest);
        let (status, notice) = decide(&window, &world(), NOW.parse().unwrap());
        let condition = conditions::get(&status.conditions, types::VALID).unwrap();
        assert_eq!(format!("{}/{}", condition.status, condition.reason), expected);
        assert!(condition.message.contains(message), "{}", condition.message);
        assert_eq!(notice.map(|n| n.reason).as_deref(), told);
        assert_eq!(
            (status.observed_generation, condition.observed_generation),
            (Some(4), Some(4))
        );
        window.status = Some(status.clone());
        let later = "2027-06-01T00:00:00Z".parse().unwrap();
        assert_eq!(decide(&window, &world(), later), (status, None), "said once");
    }

    #[test]
    fn a_window_that_is_being_deleted_is_left_alone() {
        let mut window = window(&json!({"configSelector": {}}));
        let now: Timestamp = NOW.parse().unwrap();
        window.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        assert_eq!(
            decide(&window, &world(), now),
            (UpgradeSuspensionWindowStatus::default(), None)
        );
    }
}
