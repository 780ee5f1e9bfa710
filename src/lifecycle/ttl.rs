//! `config.workflow.ttl` where the engine does not see to it: a finished workflow goes after so long.

use super::{OtherState, RunState, draft::Draft};
use crate::{
    api::{
        job_config::WorkflowConfig,
        upgrade_job::{EngineChoice, StepPhase},
    },
    engine,
    plan::{Part, PlanStep},
    steps::Action,
};

/// Deletes the workflows of a job that is over, once their time has come: the one that it followed, and all others that carry
/// its name (earlier attempts, runs of Create hooks, copies). Argo does that by itself.
pub(super) fn decide(draft: &mut Draft<'_>) {
    let job = draft.input.job;
    let ttl = job.spec.config.workflow.as_ref().and_then(WorkflowConfig::ttl);
    let (Some(ttl), Some(finished_at)) = (ttl, draft.status.finished_at.clone()) else {
        return;
    };
    let followed = draft.status.workflow.as_ref().map(|w| w.engine);
    let followed = followed.filter(|e| is_ours_to_remove(*e) && is_over(draft));
    let others = draft.input.others.iter();
    let others = others.filter(|o| is_ours_to_remove(o.engine) && o.state == OtherState::Ended);
    let others = others.map(|o| Action::DeleteOtherWorkflow { name: o.name.clone() });
    let ended: Vec<Action> = followed
        .map(|_| Action::DeleteWorkflow)
        .into_iter()
        .chain(others)
        .collect();
    if ended.is_empty() {
        return;
    }
    let due = finished_at.0.saturating_add(ttl).unwrap_or(finished_at.0);
    if draft.now() < due {
        draft.wake_at(due);
    } else {
        draft.actions.extend(ended);
    }
}

fn is_ours_to_remove(engine: EngineChoice) -> bool {
    engine::of(engine).is_some_and(|e| !e.removes_finished())
}

/// The workflow has ended, and all that it had to show is recorded.
fn is_over(draft: &Draft<'_>) -> bool {
    let RunState::Present { run, .. } = draft.input.run else {
        return false;
    };
    let Ok(Some(plan)) = draft.plan() else {
        return false;
    };
    let is_recorded = |s: &PlanStep| draft.step_phase(&s.name).is_some_and(StepPhase::is_finished);
    run.finished && plan.part(Part::Exit).all(is_recorded)
}
