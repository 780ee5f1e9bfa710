//! How the newest job of a config went: what whoever looks only at the config wants to see, such as Argo CD.

use jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{
    UpgradeConfig, UpgradeJob,
    conditions::{self, reasons, types},
    upgrade_config::UpgradeConfigStatus,
};

/// Keeps the condition `LastUpgradeSucceeded` in line with the jobs that are there: of those that have ended, the newest counts
/// that was not skipped on purpose. Without one there is no such condition, so to delete a failed job is to acknowledge it.
pub fn tell(status: &mut UpgradeConfigStatus, config: &UpgradeConfig, jobs: &[&UpgradeJob], now: Timestamp) {
    let newest = jobs
        .iter()
        .filter_map(|job| Some((*job, Outcome::of(job)?)))
        .max_by_key(|(job, _)| (job.spec.start_after.0, job.name_any()));
    let Some((job, outcome)) = newest else {
        let type_ = types::LAST_UPGRADE_SUCCEEDED;
        status.conditions.retain(|c| c.type_ != type_);
        return;
    };
    conditions::set(
        &mut status.conditions,
        types::LAST_UPGRADE_SUCCEEDED,
        outcome.is_success,
        outcome.reason,
        format!("UpgradeJob {}: {}", job.name_any(), outcome.message),
        config.metadata.generation,
        now,
    );
}

/// What a job that has ended says of itself.
struct Outcome<'a> {
    is_success: bool,
    reason: &'a str,
    message: &'a str,
}

impl<'a> Outcome<'a> {
    /// `None`: it has not ended, or was skipped on purpose.
    fn of(job: &'a UpgradeJob) -> Option<Self> {
        let all = &job.status.as_ref()?.conditions;
        let held = |type_| conditions::get(all, type_).filter(|c| c.status == "True");
        let failure = held(types::FAILED).or_else(|| held(types::EXPIRED));
        let success = || held(types::SUCCEEDED).filter(|c| c.reason != reasons::SKIPPED);
        let condition = failure.or_else(success)?;
        Some(Self {
            is_success: failure.is_none(),
            reason: &condition.reason,
            message: &condition.message,
        })
    }
}
