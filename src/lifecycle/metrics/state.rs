//! Where each job is: the peer's metrics (its `upgrade_information_collector.go`), with its labels.

use kube::ResourceExt;

use crate::{
    api::{
        UpgradeJob, UpgradeJobHook,
        conditions::{self, types},
    },
    hooks::select,
    metrics::{Family, Labels, Series},
};

/// State and window of every job.
pub(super) fn metrics(jobs: &[UpgradeJob], hooks: &[UpgradeJobHook]) -> Vec<Family> {
    let name = |job: &UpgradeJob| vec![("upgradejob", job.name_any())];
    vec![
        Family::gauge(
            "openshift_upgrade_controller_upgradejob_state",
            "Where the UpgradeJob is, always 1: state is pending, active, paused, succeeded or failed, reason that of its end.",
            jobs.iter().map(|job| Series::new(labels(job, hooks), true)),
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradejob_start_after_timestamp_seconds",
            "When the UpgradeJob is to start: its startAfter, in seconds since 1970.",
            jobs.iter()
                .map(|job| Series::new(name(job), job.spec.start_after.0)),
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradejob_start_before_timestamp_seconds",
            "Until when the UpgradeJob may start: its startBefore, in seconds since 1970.",
            jobs.iter()
                .map(|job| Series::new(name(job), job.spec.start_before.0)),
        ),
    ]
}

fn labels(job: &UpgradeJob, hooks: &[UpgradeJobHook]) -> Labels {
    let version = job.spec.desired_version.clone().unwrap_or_default();
    let (state, reason) = state(job);
    vec![
        ("upgradejob", job.name_any()),
        ("start_after", job.spec.start_after.0.to_string()),
        ("start_before", job.spec.start_before.0.to_string()),
        (
            "desired_version_force",
            version.force.unwrap_or_default().to_string(),
        ),
        ("desired_version_image", version.image.unwrap_or_default()),
        ("desired_version_version", version.version.unwrap_or_default()),
        ("state", state.to_owned()),
        ("reason", reason.to_owned()),
        (
            "matches_disruptive_hooks",
            select::matches_disruptive(hooks, job).to_string(),
        ),
    ]
}

/// The peer's name of the state, and the reason of the end. A skipped job is one that succeeded, as its condition says.
fn state(job: &UpgradeJob) -> (&'static str, &str) {
    let all = job.status.as_ref().map_or(&[][..], |s| &s.conditions);
    let is_true = |type_: &str| conditions::get(all, type_).filter(|c| c.status == "True");
    if let Some(succeeded) = is_true(types::SUCCEEDED) {
        ("succeeded", &succeeded.reason)
    } else if let Some(failed) = is_true(types::FAILED) {
        ("failed", &failed.reason)
    } else if is_true(types::PAUSED).is_some() {
        ("paused", "")
    } else if is_true(types::STARTED).is_some() {
        ("active", "")
    } else {
        ("pending", "")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::lifecycle::metrics::fixtures::{conditions, job};

    #[rstest]
    #[case::pinned(json!([]), "pending", "")]
    #[case::under_way(conditions(&[("Started", "Started")]), "active", "")]
    #[case::held(conditions(&[("Started", "Started"), ("Paused", "DelaySet")]), "paused", "")]
    #[case::done(conditions(&[("Started", "Started"), ("Succeeded", "Succeeded")]), "succeeded", "Succeeded")]
    #[case::skipped(conditions(&[("Succeeded", "Skipped")]), "succeeded", "Skipped")]
    #[case::failed(conditions(&[("Started", "Started"), ("Failed", "TimedOut")]), "failed", "TimedOut")]
    fn the_state_is_the_peers(#[case] conditions: Value, #[case] state: &str, #[case] reason: &str) {
        let job = job("j", &json!({"conditions": conditions}));
        let families = metrics(&[job], &[]);
        let expected = [
            ("upgradejob", "j"),
            ("start_after", "2026-01-01T00:00:00Z"),
            ("start_before", "2026-01-01T01:00:00Z"),
            ("desired_version_force", "false"),
            ("desired_version_image", ""),
            ("desired_version_version", "4.18.5"),
            ("state", state),
            ("reason", reason),
            ("matches_disruptive_hooks", "false"),
        ];
        let labels: Vec<_> = families[0].series[0]
            .labels
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(labels, expected);
        assert_eq!(families[1].series[0].value, 1_767_225_600.0.into());
        assert_eq!(families[2].series[0].value, 1_767_229_200.0.into());
    }
}
