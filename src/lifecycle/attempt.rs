//! The workflow that a job follows next, when the one before is of no more use: another attempt on the same engine, or, when
//! that engine is of no more use either, the embedded one (design 6 "Attempts", design 7).

use super::{EngineState, draft::Draft};
use crate::{
    api::{
        conditions::{reasons, types},
        upgrade_job::{EngineChoice, FormerWorkflow, StepPhase, WorkflowStatus},
    },
    engine::{self, Engine, run_name},
    plan::{Part, Plan, RunKind},
};

/// How often a workflow is rendered again for an engine.
const MAX_ATTEMPTS: u32 = 5;

/// Whether the job follows its plan without any workflow.
pub(super) fn is_embedded(draft: &Draft<'_>) -> bool {
    let workflow = draft.status.workflow.as_ref();
    workflow.is_some_and(|w| w.engine == EngineChoice::Embedded)
}

/// From now on the job follows the workflow of this name, on the engine that it began with.
pub(super) fn follow(draft: &mut Draft<'_>, name: String) {
    let begun = draft.status.workflow.as_ref().map(|w| w.engine);
    let engine = match draft.input.engine {
        EngineState::Ready(engine) => Some(*engine),
        // It may come back; what becomes of the job if it does not is decided elsewhere.
        EngineState::Missing(_) => begun,
    };
    if let Some(engine) = engine {
        follow_on(draft, engine, name);
    }
}

/// The same, on this engine.
pub(super) fn follow_on(draft: &mut Draft<'_>, engine: EngineChoice, name: String) {
    let resource = engine::of(engine).map(Engine::resource);
    let template = draft.input.settings.workflow_url_template.as_ref();
    let url = template.filter(|_| resource.is_some()).map(|t| {
        t.replace("{namespace}", &draft.input.settings.namespace)
            .replace("{name}", &name)
    });
    draft.status.workflow = Some(WorkflowStatus {
        engine,
        api_version: resource.as_ref().map(|r| r.api_version.clone()),
        kind: resource.map(|r| r.kind),
        name,
        uid: None,
        phase: None,
        url,
        since: Some(draft.time()),
    });
}

/// What the job followed until now is on record from the same write on, and stopped afterwards: killed in between, the next
/// operator stops it.
pub(super) fn leave(draft: &mut Draft<'_>) {
    let Some(left) = draft.status.workflow.as_ref().filter(|_| !is_embedded(draft)) else {
        return;
    };
    let left = FormerWorkflow {
        engine: left.engine,
        name: left.name.clone(),
        uid: left.uid.clone(),
    };
    draft.status.former_workflows.retain(|f| f.name != left.name);
    draft.status.former_workflows.push(left);
}

/// Whether this run is the last that an engine gets.
pub(super) fn is_last(plan: &Plan) -> bool {
    match plan.run {
        RunKind::Main { attempt: n } | RunKind::Create { number: n } => n >= MAX_ATTEMPTS,
    }
}

/// Renders what is left as a new workflow; finished steps are not repeated.
pub(super) fn another(draft: &mut Draft<'_>, plan: &Plan, why: &str) {
    if is_last(plan) {
        let why = format!("{why}; it was rendered {MAX_ATTEMPTS} times");
        if !hand_over(draft, plan, &why) {
            draft.fail(reasons::WORKFLOW_STOPPED, why);
        }
        return;
    }
    let Some(name) = take_rest(draft, plan) else {
        return;
    };
    let message = format!("{why}; the rest of the plan continues as {name}");
    draft.notice(true, "WorkflowRenderedAgain", message.clone());
    draft.say(message);
    leave(draft);
    follow(draft, name);
}

/// The embedded engine follows the rest of the plan from now on, for good; `false` if the settings forbid that.
///
/// Hooks that only the engine could run count as failed from here on, by their policy.
pub(super) fn hand_over(draft: &mut Draft<'_>, plan: &Plan, why: &str) -> bool {
    if draft.input.settings.engine_handover_after.is_none() || is_embedded(draft) {
        return false;
    }
    let Some(name) = take_rest(draft, plan) else {
        return true;
    };
    leave(draft);
    follow_on(draft, EngineChoice::Embedded, name);
    let message = format!(
        "{why}; the operator follows the rest of the plan without a workflow, and hooks that only the engine can run count as \
         failed, unless their pod has succeeded"
    );
    draft.condition(types::ENGINE_STALLED, true, reasons::HANDED_OVER, message.clone());
    draft.notice(true, reasons::HANDED_OVER, message.clone());
    draft.say(message);
    true
}

/// Puts what is left on record as the plan, and returns the name of its run.
fn take_rest(draft: &mut Draft<'_>, plan: &Plan) -> Option<String> {
    let rest = remaining(draft, plan);
    let stored = draft.store_plan(&rest);
    stored.then(|| run_name(draft.input.job, rest.run))
}

/// The plan without the main steps that have ended well. Hooks of Create keep theirs: their run has no attempts.
fn remaining(draft: &Draft<'_>, plan: &Plan) -> Plan {
    let mut rest = plan.clone();
    match plan.run {
        RunKind::Create { .. } => return rest,
        RunKind::Main { attempt } => rest.run = RunKind::Main { attempt: attempt + 1 },
    }
    let is_done = |name: &str| draft.step_phase(name).is_some_and(StepPhase::is_finished);
    rest.steps.retain(|s| s.part == Part::Exit || !is_done(&s.name));
    for step in &mut rest.steps {
        step.after.retain(|name| !is_done(name));
    }
    rest
}
