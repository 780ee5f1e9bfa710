//! Jobs that ended badly, until a later one makes up for it: so an alert about one ends by itself.

use kube::ResourceExt;

use crate::{
    api::{UpgradeConfig, UpgradeJob},
    metrics::{Family, Series},
    pinning::unresolved::{How, unresolved},
};

/// The jobs that failed or could not start, and that nothing has made up for.
pub(super) fn metrics(jobs: &[UpgradeJob], configs: &[UpgradeConfig]) -> Vec<Family> {
    let series = unresolved(jobs, configs).into_iter().filter_map(|ended| {
        let (state, reason) = match ended.how {
            How::Failed(condition) => ("failed", &condition.reason),
            How::Expired(condition) => ("expired", &condition.reason),
            How::Succeeded(_) | How::Skipped => return None,
        };
        let labels = vec![
            ("upgradejob", ended.job.name_any()),
            ("upgradeconfig", ended.config),
            ("state", state.to_owned()),
            ("reason", reason.clone()),
        ];
        Some(Series::new(labels, true))
    });
    vec![Family::gauge(
        "openshift_upgrade_controller_upgradejob_unresolved",
        "UpgradeJobs that failed, or expired because they could not start in time, until a later one makes up for it, always 1.",
        series,
    )]
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{
        api::labels,
        lifecycle::metrics::fixtures::{conditions, job},
        metrics::told,
    };

    /// `name config day how`, such as `a weekly 3 Failed`; the config `-` is none.
    fn jobs(of: &[&str]) -> Vec<UpgradeJob> {
        let one = |text: &&str| {
            let [name, config, day, how] = text.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{text}");
            };
            let ending: &[(&str, &str)] = match how {
                "Running" => &[("Started", "Started")],
                "Pending" => &[],
                "Succeeded" => &[("Started", "Started"), ("Succeeded", "Succeeded")],
                "Skipped" => &[("Succeeded", "Skipped")],
                "Expired" => &[("Succeeded", "Skipped"), ("Expired", "LockHeld")],
                "Failed" => &[("Started", "Started"), ("Failed", "TimedOut")],
                other => panic!("{other}"),
            };
            let mut job = job(name, &json!({"conditions": conditions(ending)}));
            let start: Timestamp = format!("2026-01-0{day}T00:00:00Z").parse().unwrap();
            job.spec.start_after.0 = start;
            if config != "-" {
                let mark = [
                    (labels::UPGRADE_CONFIG, config.to_owned()),
                    (labels::START, start.as_second().to_string()),
                ];
                job.metadata.labels = Some(mark.map(|(k, v)| (k.to_owned(), v)).into());
            }
            job
        };
        of.iter().map(one).collect()
    }

    #[rstest]
    #[case::nothing_yet(&["a weekly 1 Pending", "b weekly 2 Running"], &[])]
    #[case::good(&["a weekly 1 Succeeded", "b weekly 2 Skipped"], &[])]
    #[case::failed(&["a weekly 1 Failed"], &["a,weekly,failed,TimedOut"])]
    #[case::after_a_success(&["a weekly 1 Succeeded", "b weekly 2 Failed"], &["b,weekly,failed,TimedOut"])]
    #[case::made_up_for(&["a weekly 1 Failed", "b weekly 2 Succeeded"], &[])]
    #[case::by_another_config(&["a weekly 1 Failed", "b minor 2 Succeeded"], &["a,weekly,failed,TimedOut"])]
    #[case::by_hand(&["a weekly 1 Failed", "b - 2 Succeeded"], &[])]
    #[case::of_a_hand_made_one(&["a - 1 Failed", "b weekly 2 Succeeded"], &[])]
    #[case::not_by_a_skipped_one(&["a weekly 1 Failed", "b weekly 2 Skipped"], &["a,weekly,failed,TimedOut"])]
    #[case::not_by_one_that_runs(&["a weekly 1 Failed", "b weekly 2 Running"], &["a,weekly,failed,TimedOut"])]
    #[case::twice(&["a weekly 1 Failed", "b weekly 2 Failed"], &["a,weekly,failed,TimedOut", "b,weekly,failed,TimedOut"])]
    #[case::expired(&["a weekly 1 Expired"], &["a,weekly,expired,LockHeld"])]
    #[case::expired_then_running(&["a weekly 1 Expired", "b weekly 2 Running"], &[])]
    #[case::expired_then_failed(&["a weekly 1 Expired", "b weekly 2 Failed"], &["b,weekly,failed,TimedOut"])]
    #[case::expired_then_pending(&["a weekly 1 Expired", "b weekly 2 Pending"], &["a,weekly,expired,LockHeld"])]
    #[case::expired_after_one_that_runs(&["a weekly 2 Expired", "b weekly 1 Running"], &["a,weekly,expired,LockHeld"])]
    fn what_nothing_has_made_up_for(#[case] of: &[&str], #[case] expected: &[&str]) {
        let lines = told(&metrics(&jobs(of), &[]));
        let expected: Vec<String> = expected
            .iter()
            .map(|e| format!("upgradejob_unresolved {e} 1"))
            .collect();
        assert_eq!(lines, expected);
    }
}
