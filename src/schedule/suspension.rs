//! Suspension windows: `start` ≤ t < `end`, selected by label, in one namespace.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use crate::{
    api::{UpgradeSuspensionWindow, label_selector::label_selector_matches},
    text,
};

/// What windows are matched against: an UpgradeConfig, an UpgradeJob, or a job that does not exist yet.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its namespace; windows of another one do not count. `None` (objects in a file) = the same as the window's.
    pub namespace: Option<&'a str>,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// The window that suspends this UpgradeConfig at `t`.
///
/// Where several do, the one that ends last, and of these the first by name: the answer does not depend on the order.
pub fn window_matching_config<'w>(
    windows: &'w [UpgradeSuspensionWindow],
    config: Subject<'_>,
    t: Timestamp,
) -> Option<&'w UpgradeSuspensionWindow> {
    longest(windows, t, config, |window| window.spec.config_selector.as_ref())
}

/// The window that keeps this UpgradeJob from starting at `t`; choice as in [`window_matching_config`].
pub fn window_matching_job<'w>(
    windows: &'w [UpgradeSuspensionWindow],
    job: Subject<'_>,
    t: Timestamp,
) -> Option<&'w UpgradeSuspensionWindow> {
    longest(windows, t, job, |window| window.spec.job_selector.as_ref())
}

/// The first instant from `t` on at which no window suspends this UpgradeConfig.
pub fn first_open(windows: &[UpgradeSuspensionWindow], config: Subject<'_>, t: Timestamp) -> Timestamp {
    // Every step ends one window for good, so there are at most as many steps as windows.
    std::iter::successors(Some(t), |t| {
        window_matching_config(windows, config, *t).map(|window| window.spec.end.0)
    })
    .last()
    .unwrap_or(t)
}

/// A window for people: its name, its reason and its end.
pub fn describe(window: &UpgradeSuspensionWindow, zone: &jiff::tz::TimeZone) -> String {
    let (name, end) = (window.name_any(), text::time(window.spec.end.0, zone));
    match window.spec.reason.trim() {
        "" => format!("UpgradeSuspensionWindow {name} until {end}"),
        reason => format!("UpgradeSuspensionWindow {name} ({reason}) until {end}"),
    }
}

fn longest<'w>(
    windows: &'w [UpgradeSuspensionWindow],
    t: Timestamp,
    subject: Subject<'_>,
    selector: impl Fn(&'w UpgradeSuspensionWindow) -> Option<&'w LabelSelector>,
) -> Option<&'w UpgradeSuspensionWindow> {
    windows
        .iter()
        .filter(|window| {
            let spec = &window.spec;
            spec.start.0 <= t && t < spec.end.0 && is_matched(window, selector(window), subject)
        })
        .min_by(|a, b| {
            b.spec
                .end
                .0
                .cmp(&a.spec.end.0)
                .then_with(|| a.metadata.name.cmp(&b.metadata.name))
        })
}

/// Whether one of the window's selectors matches, at whatever time. An absent one matches nothing.
pub(super) fn is_matched(
    window: &UpgradeSuspensionWindow,
    selector: Option<&LabelSelector>,
    subject: Subject<'_>,
) -> bool {
    same_namespace(window.metadata.namespace.as_deref(), subject.namespace)
        && selector.is_some_and(|s| label_selector_matches(s, subject.labels))
}

fn same_namespace(a: Option<&str>, b: Option<&str>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b,
        (None, _) | (_, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn window(name: &str, start: &str, end: &str, config: &Value, job: &Value) -> UpgradeSuspensionWindow {
        serde_json::from_value(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeSuspensionWindow",
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"start": start, "end": end, "reason": "holidays", "configSelector": config, "jobSelector": job},
        }))
        .unwrap()
    }

    fn labels(value: &str) -> BTreeMap<String, String> {
        [("team".to_owned(), value.to_owned())].into()
    }

    const DAY: (&str, &str) = ("2026-12-24T00:00:00Z", "2026-12-25T00:00:00Z");

    #[rstest]
    #[case::first_instant("2026-12-24T00:00:00Z", true)]
    #[case::inside("2026-12-24T12:00:00Z", true)]
    #[case::last_instant("2026-12-24T23:59:59.999Z", true)]
    #[case::end_is_outside("2026-12-25T00:00:00Z", false)]
    #[case::before("2026-12-23T23:59:59.999Z", false)]
    fn a_window_begins_at_its_start_and_ends_before_its_end(#[case] t: &str, #[case] expected: bool) {
        let windows = [window("w", DAY.0, DAY.1, &json!({}), &json!({}))];
        let labels = BTreeMap::new();
        let subject = Subject {
            namespace: Some("ns"),
            labels: &labels,
        };
        let t = t.parse().unwrap();
        assert_eq!(window_matching_config(&windows, subject, t).is_some(), expected);
        assert_eq!(window_matching_job(&windows, subject, t).is_some(), expected);
    }

    #[rstest]
    #[case::null_selects_nothing(Value::Null, "ns", false)]
    #[case::empty_selects_all(json!({}), "ns", true)]
    #[case::by_label(json!({"matchLabels": {"team": "a"}}), "ns", true)]
    #[case::other_label(json!({"matchLabels": {"team": "b"}}), "ns", false)]
    #[case::by_expression(json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}), "ns", true)]
    #[case::unknown_operator(json!({"matchExpressions": [{"key": "team", "operator": "Near"}]}), "ns", false)]
    #[case::other_namespace(json!({}), "other", false)]
    fn selectors_choose(#[case] selector: Value, #[case] namespace: &str, #[case] expected: bool) {
        let t = "2026-12-24T12:00:00Z".parse().unwrap();
        let labels = labels("a");
        let subject = Subject {
            namespace: Some(namespace),
            labels: &labels,
        };
        let by_config = [window("w", DAY.0, DAY.1, &selector, &Value::Null)];
        assert_eq!(window_matching_config(&by_config, subject, t).is_some(), expected);
        assert!(window_matching_job(&by_config, subject, t).is_none());
        let by_job = [window("w", DAY.0, DAY.1, &Value::Null, &selector)];
        assert_eq!(window_matching_job(&by_job, subject, t).is_some(), expected);
        assert!(window_matching_config(&by_job, subject, t).is_none());
    }

    #[test]
    fn of_several_the_one_that_ends_last_counts_whatever_the_order() {
        let mut windows = vec![
            window("b", DAY.0, "2026-12-26T00:00:00Z", &json!({}), &json!({})),
            window("a", DAY.0, "2026-12-26T00:00:00Z", &json!({}), &json!({})),
            window("0", DAY.0, DAY.1, &json!({}), &json!({})),
        ];
        let labels = BTreeMap::new();
        let subject = Subject {
            namespace: None,
            labels: &labels,
        };
        let t = "2026-12-24T12:00:00Z".parse().unwrap();
        for _ in 0..3 {
            windows.rotate_left(1);
            assert_eq!(
                window_matching_config(&windows, subject, t).unwrap().name_any(),
                "a"
            );
        }
    }

    #[test]
    fn adjoining_and_overlapping_windows_are_left_at_the_end_of_the_last() {
        let windows = [
            window("b", DAY.1, "2026-12-27T00:00:00Z", &json!({}), &Value::Null),
            window("a", DAY.0, DAY.1, &json!({}), &Value::Null),
            window(
                "c",
                "2026-12-26T00:00:00Z",
                "2026-12-28T00:00:00Z",
                &json!({}),
                &Value::Null,
            ),
            window(
                "turned round",
                "2026-12-28T00:00:00Z",
                "2026-12-20T00:00:00Z",
                &json!({}),
                &Value::Null,
            ),
        ];
        let labels = BTreeMap::new();
        let subject = Subject {
            namespace: None,
            labels: &labels,
        };
        let open = |t: &str| first_open(&windows, subject, t.parse().unwrap()).to_string();
        assert_eq!(open("2026-12-24T12:00:00Z"), "2026-12-28T00:00:00Z");
        assert_eq!(open("2026-12-23T12:00:00Z"), "2026-12-23T12:00:00Z");
    }

    #[test]
    fn a_window_reads_with_its_name_reason_and_end() {
        let w = window("w", DAY.0, DAY.1, &json!({}), &json!({}));
        assert_eq!(
            describe(&w, &jiff::tz::TimeZone::UTC),
            "UpgradeSuspensionWindow w (holidays) until Fri 2026-12-25 00:00 UTC"
        );
    }
}
