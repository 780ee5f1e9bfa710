//! What is remembered of the runs that were decided: `status.recentRuns`, and until when all were.
//!
//! `decidedUntil` alone would not do: a run that an edit puts before one that is pinned already is open, while the pinned
//! one is decided. So runs ahead of it are remembered one by one.

use jiff::{Timestamp, ToSpan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::runs::{Block, Decided, Next, Scene, Walk};
use crate::{
    api::{
        conditions::{reasons, whole_seconds},
        upgrade_config::{RecentRun, UpgradeConfigStatus},
    },
    schedule::forecast::Verdict,
};

/// How many runs are remembered.
const KEPT: usize = 20;

/// The instant up to which all runs are decided.
pub fn decided_until(status: &UpgradeConfigStatus) -> Option<Timestamp> {
    let all = status
        .decided_until
        .as_ref()
        .or(status.last_scheduled_upgrade.as_ref());
    all.map(|t| t.0)
}

/// What became of a run.
pub fn of(status: &UpgradeConfigStatus, run: Timestamp) -> Option<&RecentRun> {
    status.recent_runs.iter().find(|r| r.time.0 == run)
}

/// The newest run that was decided, if that was a suspension: its instant and why.
pub fn newest_suspended(status: &UpgradeConfigStatus) -> Option<(Timestamp, &str)> {
    let newest = status.recent_runs.last()?;
    let suspended = [Verdict::Suspended, Verdict::ScheduleSuspended];
    suspended
        .iter()
        .any(|v| v.as_str() == newest.verdict)
        .then(|| (newest.time.0, newest.reason.as_deref().unwrap_or_default()))
}

/// The newest run that was missed; not one whose job a person deleted.
pub fn newest_missed(status: &UpgradeConfigStatus) -> Option<Timestamp> {
    let missed = |r: &&RecentRun| r.verdict == Verdict::Missed.as_str() && r.upgrade_job.is_none();
    status.recent_runs.iter().rev().find(missed).map(|r| r.time.0)
}

/// Remembers what was decided now.
pub fn add(status: &mut UpgradeConfigStatus, scene: &Scene<'_>, walk: &Walk<'_>) {
    if walk.decided.is_empty() && !scene.is_edited() {
        return;
    }
    let mut until = decided_until(status).max(all_decided(scene, walk));
    let newest = walk.decided.last().map(|(run, _)| *run);
    let last = status.last_scheduled_upgrade.as_ref().map(|t| t.0);
    status.last_scheduled_upgrade = newest.max(last).map(|t| Time(whole_seconds(t)));
    for (run, how) in &walk.decided {
        status.recent_runs.retain(|r| r.time.0 != *run);
        status.recent_runs.push(entry(*run, how));
    }
    status.recent_runs.sort_by_key(|r| r.time.0);
    let forgotten = status.recent_runs.len().saturating_sub(KEPT);
    // What is not remembered any more is not looked at again either.
    until = until.max(
        status
            .recent_runs
            .drain(..forgotten)
            .next_back()
            .map(|r| r.time.0),
    );
    status.decided_until = until.map(|t| Time(whole_seconds(t)));
}

/// Up to when the schedule has no run that is open.
fn all_decided(scene: &Scene<'_>, walk: &Walk<'_>) -> Option<Timestamp> {
    let before = |run: Timestamp| run.saturating_sub(1.second()).unwrap_or(run);
    match walk.next {
        Next::Never => Some(scene.now),
        Next::More => walk.decided.last().map(|(run, _)| scene.now.min(*run)),
        Next::Later { run, .. } | Next::Blocked { run, .. } | Next::Create { run, .. } => {
            Some(scene.now.min(before(run)))
        }
    }
}

fn entry(run: Timestamp, how: &Decided<'_>) -> RecentRun {
    let (verdict, reason, upgrade_job) = match how {
        Decided::Created(job) => (reasons::JOB_CREATED, None, Some(job.name_any())),
        Decided::Suspended(block) => (suspension(block).as_str(), Some(block.why.clone()), None),
        Decided::Missed(block) => (Verdict::Missed.as_str(), Some(block.why.clone()), None),
    };
    RecentRun {
        time: Time(whole_seconds(run)),
        verdict: verdict.to_owned(),
        reason,
        upgrade_job,
    }
}

fn suspension(block: &Block) -> Verdict {
    if block.reason == reasons::SCHEDULE_SUSPENDED {
        Verdict::ScheduleSuspended
    } else {
        Verdict::Suspended
    }
}

/// Jobs that were pinned and are gone before their run began: each becomes a run that was missed, and is returned.
pub fn mark_deleted(status: &mut UpgradeConfigStatus, scene: &Scene<'_>) -> Vec<(Timestamp, Block)> {
    let mut deleted = Vec::new();
    for recent in &mut status.recent_runs {
        let run = recent.time.0;
        let (Some(job), true) = (&recent.upgrade_job, run > scene.now) else {
            continue;
        };
        let is_gone = recent.verdict == reasons::JOB_CREATED
            && scene.job_of(run).is_none()
            && !scene.world.has_unreadable_job(job);
        if is_gone {
            let why = format!(
                "UpgradeJob {job} was deleted before its start, and no other one is made for this run; create one by \
                 hand if it is to happen after all"
            );
            Verdict::Missed.as_str().clone_into(&mut recent.verdict);
            recent.reason = Some(why.clone());
            deleted.push((
                run,
                Block {
                    reason: reasons::JOB_DELETED,
                    why,
                    until: None,
                },
            ));
        }
    }
    deleted
}
