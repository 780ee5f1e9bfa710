//! Whether the workflow engine does its part (design 7): it is to pick the workflow up, and to go on to the next step when one
//! has ended. One that is silent is told of, and then the job goes on without it.

use jiff::{SignedDuration, Timestamp};

use super::{EngineState, RunState, attempt, draft::Draft, hook_pods, wake};
use crate::{
    api::{
        conditions::{self, reasons, types, whole_seconds},
        upgrade_job::{StepPhase, StepStatus, UpgradeJobStatus},
    },
    engine::{self, Engine, Node, NodePhase, Run},
    plan::{Part, Plan, PlanStep, RunKind},
    text,
};

/// How long it may take to pick a workflow up when nothing of the plan has begun.
const PICK_UP: SignedDuration = SignedDuration::from_mins(2);
/// How long it may take in mid-run.
pub(super) const NEXT_STEP: SignedDuration = SignedDuration::from_mins(5);
/// It is said at the latest when this part of the time until the hand-over has passed: so whoever has asked for a short one hears
/// of it before it comes.
const HANDOVER_TO_SAID: i32 = 3;

/// Whether the engine does its part.
enum Sight {
    /// It does.
    AtWork,
    /// That cannot be told this time.
    Unknown,
    /// It does not.
    Silent(Silence),
}

/// What the engine does not do.
struct Silence {
    since: Timestamp,
    reason: &'static str,
    what: String,
}

/// Says whether the engine does its part, and hands over when it has not for too long. While that is waited for: what it does not
/// do, and what to do about it.
///
/// Silence is counted from what is on record. An operator that was away itself has seen none of it: before it hands over, it
/// has said so, and waits as long as it would have waited after that.
pub(super) fn watch(draft: &mut Draft<'_>, plan: &Plan) -> Option<String> {
    let handover = draft.input.settings.engine_handover_after;
    let default = if has_begun(draft, plan) {
        NEXT_STEP
    } else {
        PICK_UP
    };
    let patience = patience(draft, default);
    let silence = match sight(draft, plan, patience) {
        Sight::Silent(silence) => silence,
        Sight::AtWork => {
            at_work(draft);
            return None;
        }
        Sight::Unknown => return None,
    };
    let said_at = later(silence.since, patience);
    if draft.now() < said_at {
        look_again(draft, &silence);
        draft.wake_at(said_at);
        return None;
    }
    let said = conditions::get(&draft.status.conditions, types::ENGINE_STALLED)
        .filter(|c| c.status == "True")
        .map(|c| c.last_transition_time.0);
    let first = said.unwrap_or_else(|| whole_seconds(draft.now()));
    let until = handover.map(|handover| {
        later(silence.since, handover)
            .max(later(first, handover.saturating_sub(patience)))
            // Before its start a job has time, and the engine may come back.
            .max(draft.input.job.spec.start_after.0)
    });
    let zone = draft.input.settings.zone();
    let since = text::time(silence.since, zone);
    let what = format!("{} since {since}", silence.what);
    match until {
        // What has not begun by then is not run late, whoever was away: the caller lets it expire.
        Some(until) if draft.now() >= until && !is_too_late(draft, plan) => {
            hook_pods::record_ends(draft, patience);
            attempt::hand_over(draft, plan, &what);
            return None;
        }
        Some(until) => draft.wake_at(until),
        None => {}
    }
    look_again(draft, &silence);
    let after = until.map_or_else(String::new, |until| {
        format!("; the operator goes on without it at {}", text::time(until, zone))
    });
    let told = format!("{what}: {}", advice(draft, silence.reason));
    let message = format!("{told}{after}");
    draft.condition(types::ENGINE_STALLED, true, silence.reason, message.clone());
    if said.is_none() {
        draft.notice(true, reasons::ENGINE_STALLED, message.clone());
    }
    draft.say(message);
    Some(told)
}

/// Makes an engine look that has picked the workflow up, and may have forgotten it.
fn look_again(draft: &mut Draft<'_>, silence: &Silence) {
    if let (reasons::SILENT, RunState::Present { run, .. }) = (silence.reason, draft.input.run) {
        wake::after(draft, run, silence.since);
    }
}

/// How long the engine is waited for before anything is said, where that takes so long by default.
pub(super) fn patience(draft: &Draft<'_>, default: SignedDuration) -> SignedDuration {
    let handover = draft.input.settings.engine_handover_after;
    handover.map_or(default, |h| default.min(h / HANDOVER_TO_SAID))
}

/// The engine shows the workflow in a way that cannot be led, and that will not change: no use to wait.
pub(super) fn unsupported(draft: &mut Draft<'_>, plan: &Plan, problem: &str) {
    if !attempt::hand_over(draft, plan, problem) {
        draft.fail(reasons::ENGINE_UNSUPPORTED, problem);
    }
}

/// Whether any step of the main part was reached.
pub(super) fn has_begun(draft: &Draft<'_>, plan: &Plan) -> bool {
    let begun = |s: &StepStatus| s.phase != StepPhase::Pending;
    // Hooks of Create had runs of their own: they say nothing of the upgrade.
    let is_main_run = matches!(plan.run, RunKind::Main { .. });
    let of_create = |name: &str| name.starts_with("hook-create-") || name.starts_with("hooks-create");
    let main = |s: &&StepStatus| match plan.step(&s.name) {
        Some(step) => step.part == Part::Main,
        None => !(is_main_run && of_create(&s.name)),
    };
    draft.status.steps.iter().filter(main).any(begun)
}

/// When a main run of which nothing has begun must not begin any more: at `startBefore`. What was started just before that gets
/// the time that it takes to begin. `None` for every other run.
pub(super) fn too_late_at(draft: &Draft<'_>, plan: &Plan) -> Option<Timestamp> {
    let is_main_run = matches!(plan.run, RunKind::Main { .. });
    if !is_main_run || has_begun(draft, plan) {
        return None;
    }
    let limit = draft.input.job.spec.start_before.0;
    let started = draft.status.started_at.as_ref();
    Some(started.map_or(limit, |t| limit.max(later(t.0, PICK_UP))))
}

fn is_too_late(draft: &Draft<'_>, plan: &Plan) -> bool {
    too_late_at(draft, plan).is_some_and(|limit| draft.now() >= limit)
}

fn later(t: Timestamp, by: SignedDuration) -> Timestamp {
    t.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Takes back what was said of the engine, unless the job has left it.
pub(super) fn at_work(draft: &mut Draft<'_>) {
    let stalled = conditions::get(&draft.status.conditions, types::ENGINE_STALLED);
    let over = stalled.is_some_and(|c| c.status == "True" && c.reason != reasons::HANDED_OVER);
    if over {
        let message = "the workflow engine does its part again";
        draft.condition(types::ENGINE_STALLED, false, reasons::AT_WORK, message);
        draft.notice(false, reasons::AT_WORK, message);
    }
}

fn advice(draft: &Draft<'_>, reason: &str) -> String {
    if reason == reasons::NOT_CREATED {
        return "its Event CannotAct has what the API server says, or what is wrong with the template"
            .to_owned();
    }
    let followed = draft.status.workflow.as_ref();
    let title = followed
        .and_then(|w| engine::of(w.engine))
        .map_or("the engine", Engine::title);
    let namespace = &draft.input.settings.namespace;
    format!("see whether the controller of {title} runs, serves namespace {namespace}, and what its log says")
}

/// What is on record, and what the pods of hooks tell. Silent since then is what it is longest.
fn sight(draft: &mut Draft<'_>, plan: &Plan, patience: SignedDuration) -> Sight {
    let on_record = silence(draft, plan);
    let leads = !attempt::is_embedded(draft)
        && matches!(draft.input.run, RunState::Present { run, .. }
            if run.picked_up && !run.finished && !run.suspended && run.stop.is_none());
    let of_pods = if leads {
        hook_pods::sight(draft, patience)
    } else {
        hook_pods::Sight::Fine
    };
    let told = match (of_pods, on_record) {
        (hook_pods::Sight::Silent(since, what), on_record) => {
            let reason = reasons::SILENT;
            let told = Silence { since, reason, what };
            Some(
                on_record
                    .into_iter()
                    .fold(told, |a, b| if b.since < a.since { b } else { a }),
            )
        }
        (hook_pods::Sight::Unknown, None) => return Sight::Unknown,
        (hook_pods::Sight::Unknown | hook_pods::Sight::Fine, on_record) => on_record,
    };
    told.map_or(Sight::AtWork, Sight::Silent)
}

fn silence(draft: &Draft<'_>, plan: &Plan) -> Option<Silence> {
    if attempt::is_embedded(draft) {
        return None;
    }
    let workflow = draft.status.workflow.as_ref()?;
    let followed = workflow.since.as_ref().or(draft.status.started_at.as_ref())?.0;
    let name = &workflow.name;
    match draft.input.run {
        RunState::Foreign => None,
        RunState::Absent | RunState::Gone { .. } => {
            let why = match draft.input.engine {
                EngineState::Missing(why) => format!(" ({why})"),
                EngineState::Ready(_) => String::new(),
            };
            Some(Silence {
                since: followed,
                reason: reasons::NOT_CREATED,
                what: format!("workflow {name} could not be made{why}"),
            })
        }
        RunState::Present { run, .. } if run.finished || run.suspended || run.stop.is_some() => None,
        RunState::Present { run, .. } if !run.picked_up => Some(Silence {
            since: followed,
            reason: reasons::NOT_PICKED_UP,
            what: format!("the engine has not picked up workflow {name}"),
        }),
        RunState::Present { run, .. } => {
            let due = plan.part(Part::Main).filter_map(|step| {
                let since = match due(&draft.status, plan, run, step) {
                    Due::Not => return None,
                    Due::SomeTime => followed,
                    Due::Since(t) => t.max(followed),
                };
                Some((since, step))
            });
            let (since, step) = due.min_by_key(|(since, _)| *since)?;
            Some(Silence {
                since,
                reason: reasons::SILENT,
                what: format!(
                    "the engine has not gone on to step {} of workflow {name}",
                    step.name
                ),
            })
        }
    }
}

/// Whether the engine should have reached a step, or begun the hook of it.
enum Due {
    /// It should not, or has.
    Not,
    /// It should; since when is not on record.
    SomeTime,
    /// It should since then.
    Since(Timestamp),
}

impl From<Option<Timestamp>> for Due {
    fn from(since: Option<Timestamp>) -> Self {
        since.map_or(Self::SomeTime, Self::Since)
    }
}

/// Whether the engine should have reached a step, or begun the hook of it.
fn due(status: &UpgradeJobStatus, plan: &Plan, run: &Run, step: &PlanStep) -> Due {
    let recorded = |name: &str| status.steps.iter().find(|s| s.name == name);
    let is_finished = |name: &str| recorded(name).is_some_and(|s| s.phase.is_finished());
    if is_finished(&step.name) {
        return Due::Not;
    }
    let Some(node) = run.nodes.iter().find(|n| n.step == step.name) else {
        let mut before = step.after.iter().filter(|name| plan.step(name).is_some());
        if !before.clone().all(|name| is_finished(name)) {
            return Due::Not;
        }
        // One that the operator has still to end there is not the engine's silence.
        let runs = |name: &String| {
            run.nodes
                .iter()
                .any(|n| n.step == *name && n.phase == NodePhase::Running)
        };
        if before.clone().any(runs) {
            return Due::Not;
        }
        let ended = |name: &String| Some(recorded(name)?.finished_at.as_ref()?.0);
        return before.by_ref().filter_map(ended).max().into();
    };
    let Some(native) = run.native.get(&step.name) else {
        return Due::Not;
    };
    let begun = status
        .hook_tracker
        .iter()
        .any(|e| e.workflow_step.as_ref().is_some_and(|by| by.step == step.name));
    let Node { finished_at, .. } = node;
    if begun && !native.finished && native.runs.is_empty() {
        (*finished_at).into()
    } else {
        Due::Not
    }
}
