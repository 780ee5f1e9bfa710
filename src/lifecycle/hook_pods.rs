//! An engine that dies while it runs the pod of a hook: told by the pods, which run on without it, and ended by them.

use jiff::{SignedDuration, Timestamp};

use super::{RunState, attempt, draft::Draft, stall};
use crate::{
    api::upgrade_job::HookState,
    engine::{NodePhase, StopRequest},
    hooks::{
        pods::{self, After, PodWait, Told},
        tracker,
    },
    settings::Settings,
    steps::Action,
};

/// A hook that an engine runs and that waits for a pod.
struct Waiting {
    /// The number of its entry in the tracker.
    entry: usize,
    /// What the engine runs, for people.
    what: String,
    by: By,
    wait: PodWait,
}

/// What runs a hook.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// A step of the workflow that the job follows.
    Step,
    /// A TaskRun beside it.
    TaskRun,
}

/// What pods say of the engine.
pub(super) enum Sight {
    /// Nothing against it.
    Fine,
    /// They could not be read this time.
    Unknown,
    /// It does not go on since then, from what is told.
    Silent(Timestamp, String),
}

/// What the pods of hooks say of the engine. While that of a hook in the workflow is at work, nothing is said against it: the
/// hook would be lost with the workflow.
pub(super) fn sight(draft: &mut Draft<'_>, patience: SignedDuration) -> Sight {
    let all = looked_at(draft, patience);
    if is_any_step_going(&all) {
        return Sight::Fine;
    }
    let silent = all.iter().filter_map(|(waiting, told)| match told {
        Told::Silent { since, after } => Some((*since, silence(waiting, after))),
        Told::Nothing | Told::Early | Told::AtWork | Told::Unknown => None,
    });
    match silent.min_by_key(|(since, _)| *since) {
        Some((since, what)) => Sight::Silent(since, what),
        None if all.iter().any(|(_, told)| *told == Told::Unknown) => Sight::Unknown,
        None => Sight::Fine,
    }
}

/// Records how hooks of the workflow ended whose pods have: the job is about to leave it.
pub(super) fn record_ends(draft: &mut Draft<'_>, patience: SignedDuration) {
    for (waiting, told) in looked_at(draft, patience) {
        if let (By::Step, Told::Silent { after, .. }) = (waiting.by, &told)
            && matches!(after, After::End { .. })
        {
            record(draft, &waiting, after);
        }
    }
}

/// Whether a hook of the workflow is at work, or began so lately that nobody looked.
fn is_any_step_going(all: &[(Waiting, Told)]) -> bool {
    let mut steps = all.iter().filter(|(w, _)| w.by == By::Step);
    steps.any(|(_, told)| matches!(told, Told::AtWork | Told::Early))
}

/// Ends the hooks that nobody else will: of a job that follows its plan without the engine, or that is over. None of a workflow
/// while another one of it is at work: that would end with it.
pub(super) fn settle(draft: &mut Draft<'_>) {
    if draft.input.job.metadata.deletion_timestamp.is_some() {
        return;
    }
    let patience = stall::patience(draft, stall::NEXT_STEP);
    let all = looked_at(draft, patience);
    let is_any_step_going = is_any_step_going(&all);
    let mut ends = Vec::new();
    for (waiting, told) in all {
        let is_held = waiting.by == By::Step && is_any_step_going;
        if let Told::Silent { since, after } = told
            && !is_held
            && let Some(at) = ends_at(draft, &waiting, &after, since, patience)
        {
            ends.push((waiting, after, at));
        }
    }
    // What has failed stops the workflow: those that have their own end in it are recorded before.
    let of_steps = ends.iter().filter(|(w, ..)| w.by == By::Step);
    let last_step = of_steps.map(|(.., at)| *at).max();
    for (waiting, after, at) in ends {
        let at = last_step.filter(|_| waiting.by == By::Step).unwrap_or(at);
        if draft.now() < at {
            draft.wake_at(at);
        } else {
            record(draft, &waiting, &after);
        }
    }
    if goes_on_failed(draft) {
        draft.actions.push(Action::StopWorkflow);
    }
}

/// Whether the workflow of a job that is over would go on with a hook that has failed, once its engine is back.
fn goes_on_failed(draft: &Draft<'_>) -> bool {
    let RunState::Present { run, .. } = draft.input.run else {
        return false;
    };
    let is_ending = run.finished || run.stop == Some(StopRequest::Terminate);
    if is_ending || !draft.input.job.is_finished() {
        return false;
    }
    let followed = draft.status.workflow.as_ref().map(|w| w.name.as_str());
    draft.status.hook_tracker.iter().any(|e| {
        let Some(by) = e.workflow_step.as_ref().filter(|_| e.status == HookState::Failed) else {
            return false;
        };
        let native = run.native.get(&by.step).and_then(|n| n.run(&e.tracking_key));
        followed == Some(&by.workflow) && native.is_some_and(|n| n.phase == NodePhase::Running)
    })
}

/// When a silence on a hook is ended by what its pod tells; `None`: by the hand-over.
///
/// An operator that was away itself has seen none of it, and looks for a while first. That nothing has come of a hook is no sign
/// of it as an end is: however short the hand-over is, an engine has time to begin.
fn ends_at(
    draft: &Draft<'_>,
    waiting: &Waiting,
    after: &After,
    since: Timestamp,
    patience: SignedDuration,
) -> Option<Timestamp> {
    let limit = limit(draft, waiting.by, patience)?;
    let limit = match after {
        After::End { .. } => limit,
        After::Gone | After::NotBegun => limit.max(stall::NEXT_STEP),
    };
    let first = draft.input.hook_pods.looked_at_since(&waiting.wait.owner);
    let later = |t: Timestamp, by| t.saturating_add(by).unwrap_or(Timestamp::MAX);
    Some(later(since, limit).max(later(first.unwrap_or(since), patience)))
}

/// From how long a silence on a hook is ended by what its pod tells; `None`: by the hand-over.
///
/// A TaskRun is so, too, where the settings forbid the hand-over: a Tekton that is away holds no upgrade for ever.
fn limit(draft: &Draft<'_>, by: By, patience: SignedDuration) -> Option<SignedDuration> {
    let handover = draft.input.settings.engine_handover_after;
    if attempt::is_embedded(draft) {
        return Some(patience);
    }
    let ends_here = draft.input.job.is_finished() || (by == By::TaskRun && handover.is_none());
    ends_here.then(|| handover.unwrap_or(Settings::ENGINE_HANDOVER_AFTER))
}

/// The hooks that wait for pods, with what these tell. Asks for what has to be read.
fn looked_at(draft: &mut Draft<'_>, patience: SignedDuration) -> Vec<(Waiting, Told)> {
    let (pods, now) = (draft.input.hook_pods, draft.now());
    let mut all = in_workflow(draft);
    all.extend(task_runs(draft));
    let mut seen = Vec::new();
    for waiting in all {
        let look_at = pods::look_at(&waiting.wait, pods, patience);
        if now < look_at {
            draft.wake_at(look_at);
        } else {
            draft.look_at_pods(waiting.wait.owner.clone());
        }
        let told = pods::told(&waiting.wait, pods, patience, now);
        seen.push((waiting, told));
    }
    seen
}

fn in_workflow(draft: &Draft<'_>) -> Vec<Waiting> {
    let RunState::Present { run, .. } = draft.input.run else {
        return Vec::new();
    };
    if run.finished {
        return Vec::new();
    }
    let followed = draft.status.workflow.as_ref().map(|w| w.name.as_str());
    let entries = draft.status.hook_tracker.iter().enumerate();
    entries
        .filter(|(_, e)| e.status == HookState::Active)
        .filter_map(|(entry, e)| {
            let by = e.workflow_step.as_ref()?;
            let native = run.native.get(&by.step)?.run(&e.tracking_key)?;
            let is_going = native.phase == NodePhase::Running && followed == Some(&by.workflow);
            Some(Waiting {
                entry,
                what: format!("step {} of workflow {}", by.step, by.workflow),
                by: By::Step,
                wait: native.wait.clone().filter(|_| is_going)?,
            })
        })
        .collect()
}

fn task_runs(draft: &Draft<'_>) -> Vec<Waiting> {
    let world = draft.input.world;
    if world.hook_task_runs.is_empty() {
        return Vec::new();
    }
    let tracked = &draft.status.hook_tracker;
    let under_way = tracker::task_runs_under_way(draft.input.job, tracked, &world.hook_runs(draft.now()));
    under_way
        .into_iter()
        .filter_map(|(entry, name)| {
            let mut all = world.hook_task_runs.iter();
            let run = all.find(|r| r.metadata.name.as_ref() == Some(&name))?;
            let hook = &tracked.get(entry)?.upgrade_job_hook;
            Some(Waiting {
                entry,
                what: format!("TaskRun {name} of hook {hook}"),
                by: By::TaskRun,
                wait: run.wait()?,
            })
        })
        .collect()
}

/// What the engine does not do, completed by since when.
fn silence(waiting: &Waiting, after: &After) -> String {
    let what = &waiting.what;
    match after {
        After::End { pod, failure: None } => {
            format!("the engine has not gone on with {what}, whose pod {pod} has succeeded,")
        }
        After::End {
            pod,
            failure: Some(why),
        } => format!("the engine has not gone on with {what}, whose pod {pod} has failed ({why}),"),
        After::Gone => format!("the engine has not gone on with {what}, whose pod is gone,"),
        After::NotBegun => format!("the engine has not begun {what}"),
    }
}

/// A hook counts as its pod ended. What is not known to be done counts as failed: it is not run again.
fn record(draft: &mut Draft<'_>, waiting: &Waiting, after: &After) {
    let what = &waiting.what;
    let failure = match after {
        After::End { failure: None, .. } if waiting.wait.is_all => None,
        After::End { pod, failure: None } => Some(format!(
            "{what}: its pod {pod} succeeded, but the engine was away, and what comes after it was not run"
        )),
        After::End {
            pod,
            failure: Some(why),
        } => Some(format!("{what}: its pod {pod} failed: {why}")),
        After::Gone => Some(format!(
            "{what}: its pod is gone, and the engine, which has to say what became of it, is away"
        )),
        After::NotBegun => Some(format!(
            "{what} was not begun by the engine: see whether its controller runs"
        )),
    };
    let Some(entry) = draft.status.hook_tracker.get_mut(waiting.entry) else {
        return;
    };
    (entry.status, entry.message) = match failure {
        None => (HookState::Complete, String::new()),
        Some(why) => (HookState::Failed, why),
    };
}
