//! The peer's conditions, phase, progress and message, out of the steps.

use super::{draft::Draft, takeover};
use crate::{
    api::{
        conditions::{reasons, types},
        upgrade_job::{JobPhase, PausedPool, StepPhase, StepStatus},
    },
    pools::{self, Pause},
};

pub(super) fn conditions(draft: &mut Draft<'_>) {
    paused_pools(draft);
    if !draft.has(types::STARTED) {
        return;
    }
    // Until it is taken over, its conditions tell how far the peer came.
    if takeover::is_of_peer(draft) && !is_over(draft) {
        draft.status.phase = Some(JobPhase::Running);
        return;
    }
    steps(draft);
    progress(draft);
    pools_paused(draft);
    paused(draft);
}

fn find<'a>(draft: &'a Draft<'_>, name: &str) -> Option<&'a StepStatus> {
    draft.status.steps.iter().find(|s| s.name == name)
}

/// Whether the job has its outcome; the peer records no `finishedAt`.
fn is_over(draft: &Draft<'_>) -> bool {
    draft.has(types::SUCCEEDED) || draft.has(types::FAILED)
}

/// PreHealthCheckDone, UpgradeCompleted, PostHealthCheckDone: `False/InProgress` from the first tick, `True/Completed` after.
fn steps(draft: &mut Draft<'_>) {
    let pairs = [
        (
            types::PRE_HEALTH_CHECK_DONE,
            "pre-health-check",
            "pre-health-check",
        ),
        (types::UPGRADE_COMPLETED, "set-desired-update", "await-pools"),
        (
            types::POST_HEALTH_CHECK_DONE,
            "post-health-check",
            "post-health-check",
        ),
    ];
    for (type_, first, last) in pairs {
        let Some(first) = find(draft, first).filter(|s| s.started_at.is_some()).cloned() else {
            continue;
        };
        let last = find(draft, last).cloned();
        let (phase, message) = last.map_or((StepPhase::Pending, None), |s| (s.phase, s.message));
        // Until the last step has something to say, the first one counts.
        let message = message
            .or(first.message)
            .unwrap_or_else(|| format!("{} has begun", first.name));
        match phase {
            StepPhase::Succeeded => draft.condition(type_, true, reasons::COMPLETED, message),
            StepPhase::Overridden => draft.condition(type_, true, reasons::OVERRIDDEN, message),
            StepPhase::Failed => draft.condition(type_, false, reasons::FAILED, message),
            StepPhase::Pending | StepPhase::Running | StepPhase::Skipped => {
                draft.condition(type_, false, reasons::IN_PROGRESS, message)
            }
        };
    }
}

fn progress(draft: &mut Draft<'_>) {
    let all = draft.status.steps.len();
    let done = draft
        .status
        .steps
        .iter()
        .filter(|s| s.phase.is_finished())
        .count();
    draft.status.progress = Some(format!("{done}/{all}"));
    if is_over(draft) || draft.has_said() {
        return;
    }
    let running: Vec<String> = draft
        .status
        .steps
        .iter()
        .filter(|s| s.phase == StepPhase::Running)
        .map(|s| format!("{}: {}", s.name, s.message.as_deref().unwrap_or("…")))
        .collect();
    if !running.is_empty() {
        draft.status.message = Some(running.join("; "));
    }
}

/// `status.pausedPools`: what this job holds or has left paused.
fn paused_pools(draft: &mut Draft<'_>) {
    let now = draft.time();
    let before = std::mem::take(&mut draft.status.paused_pools);
    let job = draft.input.job;
    draft.status.paused_pools = draft
        .input
        .world
        .pools
        .iter()
        .filter_map(|pool| {
            let Pause::Ours(reason) = pools::pause(job, pool) else {
                return None;
            };
            let name = pool.metadata.name.clone().unwrap_or_default();
            let since = before
                .iter()
                .find(|p| p.name == name)
                .and_then(|p| p.since.clone());
            Some(PausedPool {
                name,
                reason,
                since: Some(since.unwrap_or_else(|| now.clone())),
            })
        })
        .collect();
}

fn pools_paused(draft: &mut Draft<'_>) {
    let job = draft.input.job;
    let managed = !pools::held_groups(job, &draft.input.world.pools).is_empty();
    let names: Vec<String> = draft.status.paused_pools.iter().map(|p| p.name.clone()).collect();
    let failure = draft
        .status
        .paused_pools
        .iter()
        .any(|p| p.reason == crate::api::upgrade_job::PauseReason::Failure);
    let reason = match (failure, managed) {
        (true, _) => reasons::PAUSED_ON_FAILURE,
        (false, true) => reasons::DELAY_SET,
        (false, false) => reasons::NO_MANAGED_POOLS,
    };
    let message = match (names.is_empty(), managed) {
        (false, _) => format!("paused: {}", names.join(", ")),
        (true, true) => "no pool is paused by this job".to_owned(),
        (true, false) => "this job holds no pools".to_owned(),
    };
    draft.condition(
        types::MACHINE_CONFIG_POOLS_PAUSED,
        !names.is_empty(),
        reason,
        message,
    );
}

/// `Paused`: all that still runs is waiting for held pools.
fn paused(draft: &mut Draft<'_>) {
    if is_over(draft) {
        if draft.has(types::PAUSED) {
            draft.condition(types::PAUSED, false, reasons::DELAY_SET, "the job has ended");
        }
        return;
    }
    if let Some(waits_for) = draft.foreign_pause.clone() {
        draft.condition(types::PAUSED, true, reasons::FOREIGN_PAUSE, waits_for.clone());
        draft.status.message = Some(waits_for);
        draft.status.phase = Some(JobPhase::Paused);
        return;
    }
    let holding = |s: &&StepStatus| s.kind == "Hold" && s.phase == StepPhase::Running;
    let others_run = draft
        .status
        .steps
        .iter()
        .any(|s| s.phase == StepPhase::Running && s.kind != "Hold");
    let main_line_done = find(draft, "hooks-upgrade-complete").is_some_and(|s| s.phase.is_finished());
    let holds: Vec<String> = draft
        .status
        .steps
        .iter()
        .filter(holding)
        .filter_map(|s| s.message.clone())
        .collect();
    let is_paused = !holds.is_empty() && !others_run && main_line_done;
    if is_paused || draft.has(types::PAUSED) {
        let message = if holds.is_empty() {
            "no pool is held any more".to_owned()
        } else {
            holds.join("; ")
        };
        draft.condition(types::PAUSED, is_paused, reasons::DELAY_SET, message);
    }
    draft.status.phase = Some(if is_paused {
        JobPhase::Paused
    } else {
        JobPhase::Running
    });
}
