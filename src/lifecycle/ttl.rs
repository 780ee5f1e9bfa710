//! `config.workflow.ttl` where the engine does not see to it: a finished workflow goes after so long.

use super::{RunState, draft::Draft};
use crate::{
    api::{job_config::WorkflowConfig, upgrade_job::StepPhase},
    engine,
    plan::{Part, PlanStep},
    steps::Action,
};

/// Deletes the workflow of a job that is over, once its time has come. Argo does that by itself.
pub(super) fn decide(draft: &mut Draft<'_>) {
    let job = draft.input.job;
    let ttl = job.spec.config.workflow.as_ref().and_then(WorkflowConfig::ttl);
    let finished_at = draft.status.finished_at.clone();
    let kind = draft.status.workflow.as_ref().map(|w| w.engine);
    let (Some(ttl), Some(finished_at), Some(engine)) = (ttl, finished_at, kind.and_then(engine::of)) else {
        return;
    };
    if engine.removes_finished() || !is_over(draft) {
        return;
    }
    let due = finished_at.0.saturating_add(ttl).unwrap_or(finished_at.0);
    if draft.now() < due {
        draft.wake_at(due);
    } else {
        draft.actions.push(Action::DeleteWorkflow);
    }
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
