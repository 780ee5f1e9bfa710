//! How late jobs are, what is left of their time, and how long they took.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::{
    api::UpgradeJob,
    lifecycle::Stage,
    metrics::{Family, Series},
};

/// Of every job what applies to its stage.
pub(super) fn metrics(jobs: &[UpgradeJob], now: Timestamp) -> Vec<Family> {
    let name = |job: &UpgradeJob| vec![("upgradejob", job.name_any())];
    let overdue = jobs
        .iter()
        .filter(|job| Stage::of(job) == Stage::Pending)
        .map(|job| {
            let late = now.duration_since(job.spec.start_after.0);
            Series::new(name(job), late.max(SignedDuration::ZERO))
        });
    let remaining = jobs.iter().filter_map(|job| {
        let (until, end) = match Stage::of(job) {
            Stage::Pending => ("startBefore", job.spec.start_before.0),
            Stage::Started => ("upgradeTimeout", job.spec.upgrade_deadline()),
            Stage::Finished | Stage::Deleting => return None,
        };
        let mut labels = name(job);
        labels.push(("until", until.to_owned()));
        Some(Series::new(labels, end.duration_since(now)))
    });
    let duration = jobs.iter().filter_map(|job| {
        let status = job.status.as_ref()?;
        let end = status.finished_at.as_ref().map(|t| t.0);
        let end = end.or_else(|| (!job.is_finished()).then_some(now))?;
        Some(Series::new(
            name(job),
            end.duration_since(status.started_at.as_ref()?.0),
        ))
    });
    vec![
        Family::gauge(
            "openshift_upgrade_controller_upgradejob_overdue_seconds",
            "For how long the UpgradeJob is due and not started; 0 before startAfter.",
            overdue,
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradejob_window_remaining_seconds",
            "How much time the UpgradeJob has: to start, until startBefore, or once started to be done, until upgradeTimeout. Negative when it has passed.",
            remaining,
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradejob_duration_seconds",
            "How long the UpgradeJob took from its start to its end, or has taken until now.",
            duration,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{lifecycle::metrics::fixtures::job, metrics::told};

    #[rstest]
    #[case::ahead(json!({}), "2025-12-31T23:00:00Z", &["upgradejob_overdue_seconds j 0", "upgradejob_window_remaining_seconds j,startBefore 7200"])]
    #[case::late(json!({}), "2026-01-01T00:10:00Z", &["upgradejob_overdue_seconds j 600", "upgradejob_window_remaining_seconds j,startBefore 3000"])]
    #[case::too_late(json!({}), "2026-01-01T01:00:01Z", &["upgradejob_overdue_seconds j 3601", "upgradejob_window_remaining_seconds j,startBefore -1"])]
    #[case::started(json!({"startedAt": "2026-01-01T00:00:30Z"}), "2026-01-01T01:00:00Z",
        &["upgradejob_window_remaining_seconds j,upgradeTimeout 10800", "upgradejob_duration_seconds j 3570"])]
    #[case::over(json!({"startedAt": "2026-01-01T00:00:30Z", "finishedAt": "2026-01-01T00:01:00Z"}), "2026-03-01T00:00:00Z",
        &["upgradejob_duration_seconds j 30"])]
    #[case::never_begun(json!({"finishedAt": "2026-01-01T00:01:00Z"}), "2026-03-01T00:00:00Z", &[])]
    fn what_is_told(#[case] status: Value, #[case] now: &str, #[case] expected: &[&str]) {
        assert_eq!(
            told(&metrics(&[job("j", &status)], now.parse().unwrap())),
            expected
        );
    }
}
