//! How many finished jobs of a config are kept.

use std::cmp::Reverse;

use kube::ResourceExt;

use super::job;
use crate::api::{
    UpgradeConfig, UpgradeJob,
    conditions::{self, reasons, types},
};

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All done.
    Succeeded,
    /// Not run.
    Skipped,
    /// Failed.
    Failed,
}

/// How this job ended; `None` if it has not.
pub fn outcome(job: &UpgradeJob) -> Option<Outcome> {
    let all = &job.status.as_ref()?.conditions;
    if conditions::is_true(all, types::FAILED) {
        return Some(Outcome::Failed);
    }
    let succeeded = conditions::get(all, types::SUCCEEDED).filter(|c| c.status == "True")?;
    Some(if succeeded.reason == reasons::SKIPPED {
        Outcome::Skipped
    } else {
        Outcome::Succeeded
    })
}

/// Name and UID of the jobs beyond the limits. Skipped jobs count as successful.
///
/// The newest of each outcome is never among them: after a month of holidays the last real success is still there. Nor is one
/// that has left pools paused: its condition is what tells people, and the alert, of them.
pub fn beyond(config: &UpgradeConfig, jobs: &[&UpgradeJob]) -> Vec<(String, String)> {
    let mut jobs: Vec<(&UpgradeJob, Outcome)> = jobs
        .iter()
        .filter_map(|job| Some((*job, outcome(job)?)))
        .collect();
    jobs.sort_by_key(|(job, _)| Reverse((job.spec.start_after.0, job.name_any())));
    let spec = &config.spec;
    let mut all = surplus(
        &jobs,
        spec.successful_jobs_history_limit(),
        &[Outcome::Succeeded, Outcome::Skipped],
    );
    all.extend(surplus(
        &jobs,
        spec.failed_jobs_history_limit(),
        &[Outcome::Failed],
    ));
    all
}

fn has_left_pools_paused(job: &UpgradeJob) -> bool {
    let status = job.status.as_ref();
    status.is_some_and(|s| conditions::is_true(&s.conditions, types::POOLS_LEFT_PAUSED))
}

/// `jobs` are sorted, newest first.
fn surplus(
    jobs: &[(&UpgradeJob, Outcome)],
    limit: Option<usize>,
    kinds: &[Outcome],
) -> Vec<(String, String)> {
    let Some(limit) = limit else { return Vec::new() };
    let of_kinds = jobs.iter().filter(|(_, outcome)| kinds.contains(outcome));
    let mut seen: Vec<Outcome> = Vec::new();
    let mut surplus = Vec::new();
    for (n, (job, outcome)) in of_kinds.enumerate() {
        let is_newest = !seen.contains(outcome);
        seen.push(*outcome);
        let is_deletable =
            job::is_done(job) && job.metadata.deletion_timestamp.is_none() && !has_left_pools_paused(job);
        if n >= limit && !is_newest && is_deletable {
            surplus.extend(job.uid().map(|uid| (job.name_any(), uid)));
        }
    }
    surplus
}
