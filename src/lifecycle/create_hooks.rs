//! Hooks of Create: runs of their own, between the pin and the start.

use kube::ResourceExt;

use super::{
    EngineState, RunState, attempt, draft::Draft, drive, native, pending::Obstacle, running, seal, stall,
};
use crate::{
    api::{conditions::reasons, upgrade_job::StepPhase, upgrade_job_hook::HookEvent},
    engine::run_name,
    plan::{Plan, RunKind, build},
    steps::Action,
};

/// Runs the hooks of Create; what is still running is an obstacle to the start.
pub(super) fn drive_runs(draft: &mut Draft<'_>) -> Option<Obstacle> {
    let plan = match draft.plan() {
        Ok(plan) => plan,
        Err(error) => return Some(Obstacle::new(reasons::INVALID, error.to_string())),
    };
    let number = match plan.as_ref().map(|p| p.run) {
        Some(RunKind::Create { number }) => number,
        Some(RunKind::Main { .. }) | None => 0,
    };
    if let Some(plan) = &plan {
        match create_run(draft, plan) {
            CreateRun::Going(obstacle) => return Some(obstacle),
            CreateRun::JobFailed => return None,
            CreateRun::Over => {}
        }
    }
    let spec = &draft.input.job.spec;
    // A job that is due when it is created has its Create hooks too; one that appears after the start comes too late.
    let until = if number == 0 {
        spec.start_before.0
    } else {
        spec.start_after.0
    };
    if draft.now() < until && new_create_run(draft, number + 1) {
        return Some(create_hook_running());
    }
    None
}

fn create_hook_running() -> Obstacle {
    Obstacle::new(reasons::CREATE_HOOK_RUNNING, "hooks of Create are still running")
}

/// Where the current run of Create hooks is.
enum CreateRun {
    /// It runs, which keeps the job from starting.
    Going(Obstacle),
    /// It is over.
    Over,
    /// It is over, and the job with it.
    JobFailed,
}

/// Drives the current run of Create hooks.
fn create_run(draft: &mut Draft<'_>, plan: &Plan) -> CreateRun {
    let finished = |draft: &Draft<'_>| {
        plan.steps
            .iter()
            .all(|s| draft.step_phase(&s.name).is_some_and(StepPhase::is_finished))
    };
    match draft.input.run {
        RunState::Present { uid, run } => {
            running::record_workflow(draft, uid, run);
            if seal::stop_repeated(draft) {
                return CreateRun::Over;
            }
            if let Some(problem) = &run.unsupported {
                let message = format!("cannot read the workflow of the Create hooks: {problem}");
                if attempt::hand_over(draft, plan, &message) {
                    return CreateRun::Going(create_hook_running());
                }
                return CreateRun::Going(Obstacle::new(reasons::ENGINE_UNSUPPORTED, message));
            }
            if running::stopped(draft, run) {
                return CreateRun::JobFailed;
            }
            match drive::main_part(draft, plan, run) {
                drive::Driven::Failed { reason, message } => {
                    draft.fail(reason, message);
                    return CreateRun::JobFailed;
                }
                drive::Driven::Done => return CreateRun::Over,
                // The engine gave up: hooks that ran are tracked, the others get a run of their own.
                drive::Driven::Going if run.finished => {
                    native::blame(draft, plan, run);
                    let why = format!("the workflow ended by itself ({})", run.phase);
                    return gave_up(draft, plan, &why);
                }
                drive::Driven::Broken(why) => return gave_up(draft, plan, &why),
                drive::Driven::Going => {}
            }
        }
        RunState::Absent | RunState::Gone { .. } if finished(draft) => return CreateRun::Over,
        RunState::Gone { run } if run.stopped_in_its_course().is_some() => {
            running::stopped(draft, run);
            return CreateRun::JobFailed;
        }
        RunState::Absent | RunState::Gone { .. } | RunState::Foreign => {
            let seen = draft.status.workflow.as_ref().is_some_and(|w| w.uid.is_some());
            if seen || *draft.input.run == RunState::Foreign {
                // Deleted by hand, or the name is taken: tracked hooks are not repeated in the next run.
                return CreateRun::Over;
            }
            draft.actions.push(Action::CreateWorkflow);
        }
    }
    match stall::watch(draft, plan) {
        Some(message) => CreateRun::Going(Obstacle::new(reasons::ENGINE_STALLED, message)),
        None => CreateRun::Going(create_hook_running()),
    }
}

/// The engine does not go on with a run. Hooks that ran are tracked; the others get a run of their own, and after too many of
/// them one without the engine.
fn gave_up(draft: &mut Draft<'_>, plan: &Plan, why: &str) -> CreateRun {
    if attempt::is_last(plan) && attempt::hand_over(draft, plan, why) {
        return CreateRun::Going(create_hook_running());
    }
    attempt::leave(draft);
    CreateRun::Over
}

/// Starts a run for Create hooks that are not tracked yet, also for one that appeared later; whether there was one to start.
fn new_create_run(draft: &mut Draft<'_>, number: u32) -> bool {
    let job = draft.input.job;
    let tracked = |hook: &str| {
        draft
            .status
            .hook_tracker
            .iter()
            .any(|t| t.hook_event == HookEvent::Create && t.upgrade_job_hook == hook)
    };
    let new: Vec<_> = draft
        .input
        .world
        .hooks
        .iter()
        .filter(|h| !tracked(&h.name_any()))
        .cloned()
        .collect();
    let Some(mut plan) = build::create_plan(job, &new, number) else {
        return false;
    };
    if let EngineState::Missing(why) = draft.input.engine {
        draft.status.message = Some(why.clone());
        return false;
    }
    if number > 1 {
        plan.rename_for_run(number);
    }
    if !draft.store_plan(&plan) {
        return false;
    }
    let name = run_name(draft.input.job, plan.run);
    attempt::follow(draft, name);
    true
}
