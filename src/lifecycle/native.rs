//! Hooks that the workflow engine runs itself: started by ending their step, and followed to their end.

use jiff::{SignedDuration, Timestamp};

use super::{Notice, RunState, draft::Draft};
use crate::{
    api::{
        UpgradeJobHook,
        upgrade_job::{HookState, HookTracker, StepPhase, WorkflowStep},
        upgrade_job_hook::HookEvent,
    },
    engine::{Native, Node, NodePhase, Report, Run, StopRequest},
    hooks::tracker,
    plan::{Part, Plan, PlanStep, StepAction},
    steps::{self, Action, Verdict},
};

/// How long after the end of a job its workflow may take to get to a hook of the end.
const EXIT_LIMIT: SignedDuration = SignedDuration::from_mins(15);

/// What came of a hook.
pub(super) enum Turn {
    /// It runs, or is about to.
    Going,
    /// It has ended, and the upgrade goes on.
    Done,
    /// It failed, and its policy is Abort.
    Failed { reason: &'static str, message: String },
}

/// A hook of a step.
struct HookStep<'a> {
    event: HookEvent,
    hook: &'a str,
    group: Option<usize>,
}

fn hook_step(step: &PlanStep) -> Option<HookStep<'_>> {
    if let StepAction::Hook { event, hook, group } = &step.action {
        Some(HookStep {
            event: *event,
            hook,
            group: *group,
        })
    } else {
        None
    }
}

/// Brings the tracker up to date with what the workflow shows of the hooks that it runs.
pub(super) fn track(draft: &mut Draft<'_>) {
    let current = draft.status.workflow.as_ref().map(|w| w.name.clone());
    let (run, is_gone) = match draft.input.run {
        RunState::Present { run, .. } => (Some(run.as_ref()), false),
        RunState::Gone { run } => (Some(run.as_ref()), true),
        RunState::Absent | RunState::Foreign => (None, true),
    };
    for entry in &mut draft.status.hook_tracker {
        if entry.status != HookState::Active {
            continue;
        }
        let Some(by) = &entry.workflow_step else { continue };
        let seen = match run {
            Some(run) if Some(&by.workflow) == current.as_ref() => {
                let seen = seen(run, by, &entry.tracking_key);
                let has_ended = seen
                    .as_ref()
                    .is_some_and(|(status, _)| *status != HookState::Active);
                if is_gone && !has_ended {
                    Some(disappeared(by))
                } else {
                    seen
                }
            }
            Some(_) => Some((
                HookState::Failed,
                format!(
                    "the job does not follow workflow {} any more, and the end of the hook was not recorded before",
                    by.workflow
                ),
            )),
            None => Some(disappeared(by)),
        };
        if let Some((status, message)) = seen {
            entry.status = status;
            entry.message = message;
        }
    }
}

fn disappeared(by: &WorkflowStep) -> (HookState, String) {
    let why = format!(
        "workflow {} disappeared before the end of the hook was recorded: was it deleted by hand?",
        by.workflow
    );
    (HookState::Failed, why)
}

/// State of a run of a hook, why it failed or what it waits for; `None` if that cannot be seen.
fn seen(run: &Run, by: &WorkflowStep, key: &str) -> Option<(HookState, String)> {
    let failed = |why: &str| {
        let WorkflowStep { workflow, step } = by;
        Some((
            HookState::Failed,
            format!("step {step} of workflow {workflow}: {why}"),
        ))
    };
    if run.unsupported.is_some() {
        return None;
    }
    let native = run.native.get(&by.step);
    let going = match native.and_then(|n| n.run(key)) {
        Some(seen) => match seen.phase {
            NodePhase::Succeeded => return Some((HookState::Complete, String::new())),
            NodePhase::Failed => return failed(&seen.message),
            NodePhase::Skipped | NodePhase::LeftOut => return failed(&format!("not run: {}", seen.message)),
            NodePhase::Running => seen.message.clone(),
        },
        None if native.is_none_or(|n| n.finished) => return failed("the workflow did not run it"),
        None => String::new(),
    };
    if run.finished {
        let text = run.message.as_deref().unwrap_or("no message");
        return failed(&format!("the workflow ended before it ({}: {text})", run.phase));
    }
    Some((HookState::Active, going))
}

/// What the workflow has for a step, if it is a hook that the workflow is to run.
pub(super) fn of<'r>(draft: &Draft<'_>, step: &PlanStep, run: &'r Run) -> Option<&'r Native> {
    let native = run.native.get(&step.name)?;
    let at = hook_step(step)?;
    let scene = draft.scene(draft.now());
    let is_native = |hook: &UpgradeJobHook| hook.spec.template.is_none() && hook.spec.template_ref.is_some();
    let begun = has_begun(draft, step);
    let found = steps::hook_of(&scene, at.event, at.hook);
    (begun || found.is_some_and(is_native)).then_some(native)
}

/// Whether the workflow was told to run the hook of this step.
fn has_begun(draft: &Draft<'_>, step: &PlanStep) -> bool {
    let mut all = draft.status.hook_tracker.iter();
    all.any(|e| e.workflow_step.as_ref().is_some_and(|by| by.step == step.name))
}

/// Starts the hook of a step that the workflow has reached, or says where it is.
pub(super) fn drive(
    draft: &mut Draft<'_>,
    step: &PlanStep,
    node: Option<&Node>,
    run: &Run,
    native: &Native,
    began: Timestamp,
) -> Turn {
    let waits = node.is_some_and(|n| n.phase == NodePhase::Running);
    let start = match prepare(draft, step, node, run, native, began) {
        Prepared::Start(keys) => keys,
        Prepared::Begun => Vec::new(),
        Prepared::NotReached(limit) => {
            draft.wake_at(limit);
            draft.step_mut(step).message = Some("waiting for the workflow to get to it".to_owned());
            return Turn::Going;
        }
    };
    let tick = steps::tick(step, &draft.scene(began));
    match draft.take(tick) {
        Verdict::Running { message, .. } => {
            let status = draft.step_mut(step);
            status.phase = StepPhase::Running;
            status.message = Some(message);
            if let (false, Some(at)) = (start.is_empty(), hook_step(step)) {
                let start = steps::start(&draft.scene(began), at.event, at.group, &start);
                draft
                    .reports
                    .push((step.name.clone(), Report::Start(Box::new(start))));
            }
            Turn::Going
        }
        Verdict::Done { message } => {
            draft.end_step(step, StepPhase::Succeeded, message.clone());
            draft.notice(false, Notice::STEP_DONE, format!("{}: {message}", step.name));
            if waits {
                draft
                    .reports
                    .push((step.name.clone(), Report::Succeeded(message)));
            }
            Turn::Done
        }
        Verdict::Failed { reason, message } => {
            draft.end_step(step, StepPhase::Failed, message.clone());
            if waits && step.part == Part::Main {
                draft
                    .reports
                    .push((step.name.clone(), Report::Failed(message.clone())));
            }
            Turn::Failed { reason, message }
        }
    }
}

enum Prepared {
    /// To be run for these keys, now or (after a crash) again.
    Start(Vec<String>),
    /// Nothing to start: it runs, has ended, or never will.
    Begun,
    /// The workflow has not got to it, and may take until then.
    NotReached(Timestamp),
}

/// Every key gets an entry in the tracker: of what runs from now on, or why it does not.
fn prepare(
    draft: &mut Draft<'_>,
    step: &PlanStep,
    node: Option<&Node>,
    run: &Run,
    native: &Native,
    began: Timestamp,
) -> Prepared {
    let Some(at) = hook_step(step) else {
        return Prepared::Begun;
    };
    let keys = steps::keys_of(&draft.scene(began), at.group);
    let by = WorkflowStep {
        workflow: draft
            .status
            .workflow
            .as_ref()
            .map_or_else(String::new, |w| w.name.clone()),
        step: step.name.clone(),
    };
    let why_not = match node {
        _ if native.problem.is_some() => native.problem.clone(),
        Some(node) if node.phase == NodePhase::Running => None,
        // Ended by us, and what became of it is tracked; if not, by somebody else.
        Some(node) => Some(format!(
            "step {} was ended in the workflow by {}, not by the operator, so the hook was not run",
            step.name,
            node.ended_by.as_deref().unwrap_or("someone")
        )),
        None => match never_reached(draft, run) {
            Ok(why) => Some(why),
            Err(limit) => return Prepared::NotReached(limit),
        },
    };
    let mut start = Vec::new();
    for key in keys {
        let entry = tracker::find(&draft.status.hook_tracker, at.hook, at.event, &key);
        match (entry.map(|e| e.status), &why_not) {
            (None, None) => {
                let entry = tracker::started(at.hook, at.event, &key, by.clone());
                draft.status.hook_tracker.push(entry);
                start.push(key);
            }
            // Killed after that was recorded, before the step was ended.
            (Some(HookState::Active), None) => start.push(key),
            (None, Some(why)) => {
                draft.status.hook_tracker.push(HookTracker {
                    workflow_step: Some(by.clone()),
                    ..tracker::failed(at.hook, at.event, &key, why.clone())
                });
                draft.notice(true, "Hook", format!("hook {} was not run: {why}", at.hook));
            }
            (Some(_), _) => {}
        }
    }
    if start.is_empty() {
        Prepared::Begun
    } else {
        Prepared::Start(start)
    }
}

/// Why a workflow does not get to a hook of the end any more, or until when it may.
fn never_reached(draft: &Draft<'_>, run: &Run) -> Result<String, Timestamp> {
    if run.finished || run.stop == Some(StopRequest::Terminate) {
        return Ok("the workflow ended before it got to the hook".to_owned());
    }
    let ended = draft.status.finished_at.as_ref().map_or(draft.now(), |t| t.0);
    let limit = ended.saturating_add(EXIT_LIMIT).unwrap_or(Timestamp::MAX);
    if draft.now() < limit {
        return Err(limit);
    }
    let minutes = EXIT_LIMIT.as_mins();
    Ok(format!(
        "the workflow did not get to the hook within {minutes} minutes: is the workflow controller at work?"
    ))
}

/// A hook of the main part that still runs would keep the exit part waiting for ever.
pub(super) fn end_main_part(draft: &mut Draft<'_>, plan: Option<&Plan>) {
    let RunState::Present { run, .. } = draft.input.run else {
        return;
    };
    if run.finished || run.stop.is_some() {
        return;
    }
    let is_ended = |step: &PlanStep| {
        run.nodes
            .iter()
            .any(|n| n.step == step.name && n.phase == NodePhase::Succeeded)
    };
    let goes_on = plan.into_iter().flat_map(|p| p.part(Part::Main)).any(|step| {
        run.native
            .get(&step.name)
            .is_some_and(|n| n.is_running() || (!n.finished && is_ended(step) && has_begun(draft, step)))
    });
    if goes_on {
        draft.actions.push(Action::EndMainPart);
    }
}

/// An engine that ends a workflow before any step refuses it (`invalid spec`), and does so because of what it did not know
/// before: the templates of hooks. Those that its message names, or else all, have failed, and the next attempt goes without
/// them.
pub(super) fn blame(draft: &mut Draft<'_>, plan: &Plan, run: &Run) {
    if !run.finished || !run.nodes.is_empty() {
        return;
    }
    let why = run.message.clone().unwrap_or_default();
    let runnable = |step: &&PlanStep| run.native.get(&step.name).is_some_and(|n| n.problem.is_none());
    let mut guilty: Vec<&PlanStep> = plan.steps.iter().filter(runnable).collect();
    if guilty.iter().any(|s| why.contains(&s.name)) {
        guilty.retain(|s| why.contains(&s.name));
    }
    let workflow = draft
        .status
        .workflow
        .as_ref()
        .map_or_else(String::new, |w| w.name.clone());
    for step in guilty {
        let Some(at) = hook_step(step) else { continue };
        let keys = steps::keys_of(&draft.scene(draft.now()), at.group);
        let message =
            format!("the workflow engine refused workflow {workflow} with this hook's template: {why}");
        for key in keys {
            if tracker::find(&draft.status.hook_tracker, at.hook, at.event, &key).is_some() {
                continue;
            }
            draft.status.hook_tracker.push(HookTracker {
                workflow_step: Some(WorkflowStep {
                    workflow: workflow.clone(),
                    step: step.name.clone(),
                }),
                ..tracker::failed(at.hook, at.event, &key, message.clone())
            });
        }
        draft.notice(true, "Hook", format!("hook {}: {message}", at.hook));
    }
}
