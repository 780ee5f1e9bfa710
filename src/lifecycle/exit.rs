//! A job that has its outcome: give everything back, run the exit hooks, and let the workflow show it.

use super::{RunState, draft::Draft, drive, is_protected, native, release, running, seal, wake};
use crate::{
    api::{
        conditions::{reasons, types},
        upgrade_job::StepPhase,
        upgrade_job_hook::HookEvent,
    },
    engine::{Node, NodePhase, Report, StopRequest},
    plan::{Part, Plan, PlanStep, StepAction, build},
    steps::{self, Action, Verdict},
};

pub(super) fn decide(draft: &mut Draft<'_>) {
    let plan = draft.plan().ok().flatten();
    let released = match release::release(draft) {
        release::Released::Going(message) => Err(message),
        release::Released::Done(message) => Ok(message),
    };
    if let RunState::Present { uid, run } = draft.input.run {
        running::record_workflow(draft, uid, run);
    }
    if !seal::stop_repeated(draft) {
        end_workflow(draft);
        end_main_nodes(draft, plan.as_ref());
        native::end_main_part(draft, plan.as_ref());
    }
    match plan.filter(|p| p.part(Part::Exit).next().is_some()) {
        Some(plan) => planned_exit(draft, &plan, &released),
        None if released.is_ok() => unplanned_exit(draft),
        None => {}
    }
    // The finalizer guards what was taken; hooks of the end need no guard.
    if released.is_ok() && is_protected(draft.input.job) {
        draft.actions.push(Action::Unprotect);
    }
}

fn node_of<'a>(draft: &Draft<'a>, step: &PlanStep) -> Option<&'a Node> {
    match draft.input.run {
        RunState::Present { .. } if seal::is_repeated(draft) => None,
        RunState::Present { run, .. } => run.nodes.iter().find(|n| n.step == step.name),
        RunState::Absent | RunState::Gone { .. } | RunState::Foreign => None,
    }
}

/// A workflow that would not come to its end by what is reported to it. A person's pause means nothing any more; one that is
/// not readable, or that its engine has not begun with, is of no use any more.
fn end_workflow(draft: &mut Draft<'_>) {
    let RunState::Present { run, .. } = draft.input.run else {
        return;
    };
    if run.finished {
        return;
    }
    let ended = draft.status.finished_at.as_ref().map(|t| t.0);
    if let (Some(ended), true) = (ended, run.stop.is_some()) {
        wake::after(draft, run, ended);
    }
    if run.stop == Some(StopRequest::Terminate) {
        return;
    }
    let is_left_alone = !run.picked_up && draft.has(types::ENGINE_STALLED);
    if run.unsupported.is_some() || is_left_alone {
        draft.actions.push(Action::StopWorkflow);
    } else if run.suspended {
        draft.actions.push(Action::ResumeWorkflow);
    }
}

/// A main part that still runs in the engine would keep its exit part waiting for ever. Where the job has not failed, nothing
/// of it is shown as a failure.
fn end_main_nodes(draft: &mut Draft<'_>, plan: Option<&Plan>) {
    let why = draft.status.message.clone().unwrap_or_default();
    let has_failed = draft.has(types::FAILED);
    for step in plan.iter().flat_map(|p| p.part(Part::Main)) {
        let Some(node) = node_of(draft, step).filter(|n| n.phase == NodePhase::Running) else {
            continue;
        };
        let recorded = draft.scene(draft.now()).step(&step.name).cloned();
        let phase = recorded.as_ref().map_or(StepPhase::Pending, |s| s.phase);
        let ended_well = match phase {
            StepPhase::Succeeded | StepPhase::Overridden => true,
            StepPhase::Pending | StepPhase::Running | StepPhase::Skipped => !has_failed,
            StepPhase::Failed => false,
        };
        let verb = if has_failed { "finished" } else { "needed" };
        let text = recorded
            .and_then(|s| s.message)
            .unwrap_or_else(|| format!("not {verb}: {why}"));
        let report = if ended_well {
            Report::Succeeded(text)
        } else {
            Report::Failed(text)
        };
        draft.reports.push((node.step.clone(), report));
    }
}

fn planned_exit(draft: &mut Draft<'_>, plan: &Plan, released: &Result<String, String>) {
    for step in plan.part(Part::Exit) {
        draft.step_mut(step);
        let node = node_of(draft, step).cloned();
        if draft.step_phase(&step.name).is_some_and(StepPhase::is_finished) {
            end_node(draft, step, node.as_ref());
            continue;
        }
        match &step.action {
            StepAction::Release => show_release(draft, step, released),
            StepAction::Hook { event, .. } | StepAction::HooksJoin { event, .. }
                if !is_reached(draft, *event) =>
            {
                draft.end_step(
                    step,
                    StepPhase::Skipped,
                    format!("not run: the job ended otherwise than {}", event.as_str()),
                );
            }
            StepAction::Hook { .. } | StepAction::HooksJoin { .. }
                if released.is_ok() && drive::unmet(draft, plan, step).is_none() =>
            {
                planned_hook(draft, step, node.as_ref());
            }
            // Not yet: what comes before has not ended. Other kinds are in no exit part.
            StepAction::Hook { .. }
            | StepAction::HooksJoin { .. }
            | StepAction::PreHealthCheck
            | StepAction::PausePools
            | StepAction::SetDesiredUpdate
            | StepAction::AwaitControlPlane
            | StepAction::AwaitPools
            | StepAction::PostHealthCheck
            | StepAction::FinalHealthCheck
            | StepAction::Hold { .. }
            | StepAction::Unpause { .. }
            | StepAction::AwaitGroup { .. } => {}
        }
        live_text(draft, step, node.as_ref());
        end_node(draft, step, node.as_ref());
    }
}

/// Whether hooks of this event belong to the outcome.
fn is_reached(draft: &Draft<'_>, event: HookEvent) -> bool {
    event == HookEvent::Finish || steps::exit_event(&draft.status).is_some_and(|(e, _)| e == event)
}

fn show_release(draft: &mut Draft<'_>, step: &PlanStep, released: &Result<String, String>) {
    draft.begin(step, None);
    match released {
        Ok(message) => draft.end_step(step, StepPhase::Succeeded, message.clone()),
        Err(message) => draft.step_mut(step).message = Some(message.clone()),
    }
}

fn planned_hook(draft: &mut Draft<'_>, step: &PlanStep, node: Option<&Node>) {
    let RunState::Present { run, .. } = draft.input.run else {
        return hook(draft, step);
    };
    let Some(native) = native::of(draft, step, run) else {
        return hook(draft, step);
    };
    let began = draft.begin(step, None);
    match native::drive(draft, step, node, run, native, began) {
        native::Turn::Going | native::Turn::Done => {}
        // Exit hooks never change the outcome.
        native::Turn::Failed { reason, message } => draft.notice(true, reason, message),
    }
}

fn hook(draft: &mut Draft<'_>, step: &PlanStep) {
    let began = draft.begin(step, None);
    let tick = steps::tick(step, &draft.scene(began));
    let verdict = draft.take(tick);
    match verdict {
        Verdict::Running { message, wake_at } => {
            if let Some(t) = wake_at {
                draft.wake_at(t);
            }
            draft.step_mut(step).message = Some(message);
        }
        Verdict::Done { message } => draft.end_step(step, StepPhase::Succeeded, message),
        // Exit hooks never change the outcome.
        Verdict::Failed { reason: _, message } => {
            draft.notice(true, reasons::HOOK_FAILED, message.clone());
            draft.end_step(step, StepPhase::Failed, message);
        }
    }
}

fn live_text(draft: &mut Draft<'_>, step: &PlanStep, node: Option<&Node>) {
    let Some(node) = node.filter(|n| n.phase == NodePhase::Running) else {
        return;
    };
    // A hook that is started says so when its node ends.
    if draft.reports.iter().any(|(name, _)| *name == step.name) {
        return;
    }
    let recorded = draft.scene(draft.now()).step(&step.name).cloned();
    if let Some(status) = recorded
        && status.phase == StepPhase::Running
        && status.message != node.message
        && let Some(message) = status.message
    {
        draft.reports.push((step.name.clone(), Report::Message(message)));
    }
}

/// Ends the engine's node of an exit step. Always well: a failed exit hook must not turn a good workflow bad.
fn end_node(draft: &mut Draft<'_>, step: &PlanStep, node: Option<&Node>) {
    let Some(node) = node.filter(|n| n.phase == NodePhase::Running) else {
        return;
    };
    let recorded = draft.scene(draft.now()).step(&step.name).cloned();
    if let Some(status) = recorded.filter(|s| s.phase.is_finished()) {
        draft.reports.push((
            node.step.clone(),
            Report::Succeeded(status.message.unwrap_or_default()),
        ));
    }
}

/// Exit hooks of a job that never had a workflow: it was skipped, or failed before its start. They run once: a hook that is
/// edited weeks later must not fire for every job of the past, nor for one that another operator ended.
fn unplanned_exit(draft: &mut Draft<'_>) {
    if draft.status.finished_at.is_none() {
        return;
    }
    let Some((event, _)) = steps::exit_event(&draft.status) else {
        return;
    };
    for event in [event, HookEvent::Finish] {
        let step = build::exit_step(event);
        draft.step_mut(&step);
        if !draft.step_phase(&step.name).is_some_and(StepPhase::is_finished) {
            hook(draft, &step);
        }
    }
}
