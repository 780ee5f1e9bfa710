//! Advances the steps of a plan: what the engine has reached is ticked, and what a tick says is recorded and reported.

use super::{Notice, draft::Draft, native};
use crate::{
    api::upgrade_job::StepPhase,
    engine::{self, Node, NodePhase, Report, Run},
    plan::{Part, Plan, PlanStep, StepAction},
    steps::{self, Verdict},
    text,
};

/// What came of driving the main part.
pub(super) enum Driven {
    /// Something is still to be done.
    Going,
    /// Every step has ended well.
    Done,
    /// The engine itself ended a step badly: why.
    Broken(String),
    /// A step failed.
    Failed { reason: &'static str, message: String },
}

/// Ticks every step of the main part that the engine has reached.
pub(super) fn main_part(draft: &mut Draft<'_>, plan: &Plan, run: &Run) -> Driven {
    // What the engine makes of the other steps after that (skips them, fails them) says nothing of the upgrade either.
    let broken = |step: &PlanStep| broken(draft, step, run.nodes.iter().find(|n| n.step == step.name)?);
    if let Some(why) = plan.part(Part::Main).find_map(broken) {
        return Driven::Broken(why);
    }
    let mut failed = None;
    for step in plan.part(Part::Main) {
        draft.step_mut(step);
        let Some(node) = run.nodes.iter().find(|n| n.step == step.name) else {
            continue;
        };
        if let Some(failure) = one(draft, plan, step, node, run) {
            failed.get_or_insert(failure);
        }
    }
    draft.record_blockers();
    let failed = failed.or_else(|| left_out(draft, plan, run));
    if let Some((reason, message)) = failed {
        return Driven::Failed { reason, message };
    }
    let all_done = plan
        .part(Part::Main)
        .all(|s| draft.step_phase(&s.name).is_some_and(StepPhase::is_finished));
    if all_done { Driven::Done } else { Driven::Going }
}

/// A step that the engine will not reach, although none of the operator's has failed: something that a user's own template has
/// beside them did, and what they wait for with it must not be passed by.
fn left_out(draft: &Draft<'_>, plan: &Plan, run: &Run) -> Option<(&'static str, String)> {
    let is_open = |s: &&PlanStep| !draft.step_phase(&s.name).is_some_and(StepPhase::is_finished);
    let is_left_out = |s: &&PlanStep| {
        run.nodes
            .iter()
            .any(|n| n.step == s.name && n.phase == NodePhase::LeftOut)
    };
    let step = plan.part(Part::Main).filter(is_open).find(is_left_out)?;
    let text = run.message.as_deref().unwrap_or("no message");
    Some((
        crate::api::conditions::reasons::WORKFLOW_STOPPED,
        format!(
            "the workflow leaves out step {} and all after it, because a task of its own that is no step of the operator's has \
             failed: see workflow {} ({text})",
            step.name,
            draft.status.workflow.as_ref().map_or("", |w| &w.name)
        ),
    ))
}

/// Why the engine itself ended a step that was not done: that says nothing of the upgrade.
fn broken(draft: &Draft<'_>, step: &PlanStep, node: &Node) -> Option<String> {
    let why = node.broken.as_ref()?;
    let is_done = draft.step_phase(&step.name).is_some_and(StepPhase::is_finished);
    (!is_done).then(|| format!("the workflow engine itself ended step {}: {why}", step.name))
}

fn one(
    draft: &mut Draft<'_>,
    plan: &Plan,
    step: &PlanStep,
    node: &Node,
    run: &Run,
) -> Option<(&'static str, String)> {
    let recorded = draft.step_phase(&step.name).unwrap_or(StepPhase::Pending);
    if recorded.is_finished() {
        repeat_report(draft, step, recorded, node);
        return None;
    }
    if node.phase == NodePhase::LeftOut {
        return None;
    }
    let began = draft.begin(step, node.started_at);
    match node.phase {
        NodePhase::Succeeded if overrides_check(&step.action) => {
            approve(draft, step, node);
            return None;
        }
        NodePhase::Skipped if is_hook(&step.action) && unmet(draft, plan, step).is_none() => {
            draft.end_step(step, StepPhase::Skipped, "skipped by the workflow engine");
            return None;
        }
        // Where someone else ended the node, the cluster decides: the step goes on until it is really done.
        NodePhase::Running | NodePhase::Succeeded | NodePhase::Skipped | NodePhase::LeftOut => {}
        NodePhase::Failed => {
            let text = node.message.clone().unwrap_or_default();
            draft.end_step(step, StepPhase::Failed, text.clone());
            return Some((
                crate::api::conditions::reasons::WORKFLOW_STOPPED,
                format!(
                    "step {} was ended in the workflow engine, not by the operator: {text}",
                    step.name
                ),
            ));
        }
    }
    if let Some(missing) = unmet(draft, plan, step) {
        record_running(draft, step, format!("waiting for step {missing}"), node);
        return None;
    }
    if let Some(native) = native::of(draft, step, run) {
        if run.suspended {
            paused(draft, step, node);
            return None;
        }
        return match native::drive(draft, step, Some(node), run, native, began) {
            native::Turn::Going | native::Turn::Done => None,
            native::Turn::Failed { reason, message } => Some((reason, format!("{}: {message}", step.name))),
        };
    }
    let mut tick = steps::tick(step, &draft.scene(began));
    draft.take_drains(&mut tick);
    if run.suspended && !matches!(tick.verdict, Verdict::Failed { .. }) {
        if let Verdict::Running { wake_at: Some(t), .. } = tick.verdict {
            draft.wake_at(t);
        }
        paused(draft, step, node);
        return None;
    }
    let verdict = draft.take(tick);
    match verdict {
        Verdict::Running { message, wake_at } => {
            if let Some(t) = wake_at {
                draft.wake_at(t);
            }
            record_running(draft, step, message, node);
            None
        }
        Verdict::Done { message } => {
            done(draft, step, node, message);
            None
        }
        Verdict::Failed { reason, message } => {
            draft.end_step(step, StepPhase::Failed, message.clone());
            if node.phase == NodePhase::Running {
                draft
                    .reports
                    .push((step.name.clone(), Report::Failed(message.clone())));
            }
            Some((reason, format!("{}: {message}", step.name)))
        }
    }
}

/// A person paused the workflow: no new writes, and deadlines go on.
fn paused(draft: &mut Draft<'_>, step: &PlanStep, node: &Node) {
    let message = pause(draft);
    record_running(draft, step, message, node);
}

/// What is said while a person keeps the workflow paused.
pub(super) fn pause(draft: &Draft<'_>) -> String {
    let deadline = text::time(
        draft.input.job.spec.upgrade_deadline(),
        draft.input.settings.zone(),
    );
    let namespace = &draft.input.settings.namespace;
    let followed = draft.status.workflow.as_ref();
    let command = followed.and_then(|w| Some(engine::of(w.engine)?.resume_command(namespace, &w.name)));
    let go_on = command.map_or_else(String::new, |command| format!("; to go on: {command}"));
    format!("the workflow is suspended by a person: nothing is done{go_on}; the job fails at {deadline}")
}

/// A crash between recording a verdict and ending the node: say it again.
fn repeat_report(draft: &mut Draft<'_>, step: &PlanStep, recorded: StepPhase, node: &Node) {
    if node.phase != NodePhase::Running {
        return;
    }
    let message = draft
        .scene(draft.now())
        .step(&step.name)
        .and_then(|s| s.message.clone())
        .unwrap_or_default();
    let report = match recorded {
        StepPhase::Failed => Report::Failed(message),
        StepPhase::Succeeded | StepPhase::Skipped | StepPhase::Overridden => Report::Succeeded(message),
        StepPhase::Pending | StepPhase::Running => return,
    };
    draft.reports.push((step.name.clone(), report));
}

/// Predecessors that have not ended well by our record: a node that was resumed by hand cannot skip reality.
pub(super) fn unmet(draft: &Draft<'_>, plan: &Plan, step: &PlanStep) -> Option<String> {
    step.after
        .iter()
        .filter(|name| plan.step(name).is_some())
        .find(|name| !draft.step_phase(name).is_some_and(StepPhase::is_finished))
        .cloned()
}

fn is_hook(action: &StepAction) -> bool {
    matches!(action, StepAction::Hook { .. } | StepAction::HooksJoin { .. })
}

fn overrides_check(action: &StepAction) -> bool {
    matches!(
        action,
        StepAction::PreHealthCheck | StepAction::PostHealthCheck | StepAction::FinalHealthCheck
    )
}

/// A health check that a person ended in the engine is a recorded approval.
fn approve(draft: &mut Draft<'_>, step: &PlanStep, node: &Node) {
    let who = node.ended_by.as_deref().unwrap_or("someone");
    let message = format!("approved in the workflow engine by {who}; the check was: {}", {
        let scene = draft.scene(draft.now());
        scene
            .step(&step.name)
            .and_then(|s| s.message.clone())
            .unwrap_or_else(|| "not made".to_owned())
    });
    draft.notice(
        true,
        crate::api::conditions::reasons::OVERRIDDEN,
        format!("{}: {message}", step.name),
    );
    draft.end_step(step, StepPhase::Overridden, message);
}

fn record_running(draft: &mut Draft<'_>, step: &PlanStep, message: String, node: &Node) {
    let status = draft.step_mut(step);
    status.phase = StepPhase::Running;
    status.message = Some(message.clone());
    if node.phase == NodePhase::Running && node.message.as_deref() != Some(message.as_str()) {
        draft.reports.push((step.name.clone(), Report::Message(message)));
    }
}

fn done(draft: &mut Draft<'_>, step: &PlanStep, node: &Node, message: String) {
    if node.phase == NodePhase::Running {
        draft.end_step(step, StepPhase::Succeeded, message.clone());
        draft.notice(false, Notice::STEP_DONE, format!("{}: {message}", step.name));
        draft
            .reports
            .push((step.name.clone(), Report::Succeeded(message)));
    } else {
        let who = node.ended_by.as_deref().unwrap_or("someone");
        let message = format!("{message} (ended in the workflow engine by {who})");
        draft.notice(
            true,
            crate::api::conditions::reasons::OVERRIDDEN,
            format!("{}: {message}", step.name),
        );
        draft.end_step(step, StepPhase::Overridden, message);
    }
}
