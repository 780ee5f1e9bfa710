//! Jobs that ended badly, until a later one makes up for it: so an alert about one ends by itself.

use jiff::Timestamp;
use kube::ResourceExt;

use super::config_of;
use crate::{
    api::{
        UpgradeConfig, UpgradeJob,
        conditions::{self, types},
    },
    metrics::{Family, Series},
    pinning::history::{Outcome, outcome},
};

/// The jobs that failed or could not start, and that nothing has made up for.
///
/// For a failure that is a later success: of the same config, or of a job made by hand, since that is how a person mends it.
/// A job that could not start is made up for by a later one that did, whatever came of that.
pub(super) fn metrics(jobs: &[UpgradeJob], configs: &[UpgradeConfig]) -> Vec<Family> {
    let ended: Vec<Ended<'_>> = jobs.iter().filter_map(|job| Ended::of(job, configs)).collect();
    let started = jobs.iter().filter(|j| j.is_started() && !j.is_finished());
    let under_way: Vec<(String, Timestamp)> = started
        .map(|job| (config_of(job, configs), job.spec.start_after.0))
        .collect();
    let bad = ended.iter().filter(|job| match job.how {
        How::Failed(_) => !ended
            .iter()
            .any(|other| other.how == How::Succeeded && other.makes_up_for(job)),
        How::Expired(_) => {
            let has_begun = under_way
                .iter()
                .any(|(config, start)| is_for(config, job) && *start > job.start);
            !has_begun
                && !ended
                    .iter()
                    .any(|other| other.has_run() && other.makes_up_for(job))
        }
        How::Succeeded | How::Skipped => false,
    });
    let series = bad.filter_map(|job| {
        let (state, reason) = match &job.how {
            How::Failed(reason) => ("failed", reason),
            How::Expired(reason) => ("expired", reason),
            How::Succeeded | How::Skipped => return None,
        };
        let labels = vec![
            ("upgradejob", job.name.clone()),
            ("upgradeconfig", job.config.clone()),
            ("state", state.to_owned()),
            ("reason", (*reason).to_owned()),
        ];
        Some(Series::new(labels, true))
    });
    vec![Family::gauge(
        "openshift_upgrade_controller_upgradejob_unresolved",
        "UpgradeJobs that failed, or expired because they could not start in time, until a later one makes up for it, always 1.",
        series,
    )]
}

/// How a job ended, with the reason where that matters.
#[derive(Debug, PartialEq, Eq)]
enum How<'a> {
    Succeeded,
    /// It was not to run.
    Skipped,
    /// It was to run, and could not start in time.
    Expired(&'a str),
    Failed(&'a str),
}

struct Ended<'a> {
    name: String,
    config: String,
    start: Timestamp,
    how: How<'a>,
}

impl<'a> Ended<'a> {
    fn of(job: &'a UpgradeJob, configs: &[UpgradeConfig]) -> Option<Self> {
        let all = &job.status.as_ref()?.conditions;
        let reason = |type_: &str| {
            let condition = conditions::get(all, type_).filter(|c| c.status == "True");
            condition.map(|c| c.reason.as_str())
        };
        let how = match outcome(job)? {
            Outcome::Succeeded => How::Succeeded,
            Outcome::Skipped => reason(types::EXPIRED).map_or(How::Skipped, How::Expired),
            Outcome::Failed => How::Failed(reason(types::FAILED).unwrap_or_default()),
        };
        Some(Self {
            name: job.name_any(),
            config: config_of(job, configs),
            start: job.spec.start_after.0,
            how,
        })
    }

    fn has_run(&self) -> bool {
        match self.how {
            How::Succeeded | How::Failed(_) => true,
            How::Skipped | How::Expired(_) => false,
        }
    }

    fn makes_up_for(&self, other: &Self) -> bool {
        self.start > other.start && is_for(&self.config, other)
    }
}

/// Whether a job of this config can make up for a job: it is of the same, or one of both was made by hand.
fn is_for(config: &str, job: &Ended<'_>) -> bool {
    config.is_empty() || job.config.is_empty() || *config == job.config
}

#[cfg(test)]
mod tests {
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
