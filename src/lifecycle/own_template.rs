//! Whether a workflow can be made of the user's own template (`config.workflow.template`): looked at when the job is pinned, so
//! that people learn of it before the night, and again until it is well.

use super::{EngineState, draft::Draft};
use crate::{
    api::conditions::{self, reasons, types},
    engine::{
        self, Engine, RunContext, active_deadline_seconds,
        native::{Lookup, NO_TEMPLATES, TemplateKey},
        run_name,
    },
    plan::build,
};

/// Looks; `false` while something has to be read first. A template that is wrong does not keep the job from starting: it would
/// go on without a workflow.
pub(super) fn check(draft: &mut Draft<'_>) -> bool {
    let config = draft.input.job.spec.config.workflow.as_ref();
    let Some(name) = config.and_then(|w| w.template.as_ref()).map(|t| &t.name) else {
        return true;
    };
    let EngineState::Ready(engine) = draft.input.engine else {
        return true;
    };
    let Some(engine) = engine::of(*engine) else {
        return true;
    };
    if conditions::is_true(&draft.status.conditions, types::TEMPLATE_VALID) {
        return true;
    }
    let key = TemplateKey::of_own(name);
    let Some(found) = draft.input.templates.get(&key) else {
        draft.lack(key);
        return false;
    };
    let Err(problem) = render(draft, engine, &key, found) else {
        let message = format!("a workflow can be made of {key}");
        draft.condition(types::TEMPLATE_VALID, true, reasons::VALID, message);
        return true;
    };
    let handover = draft.input.settings.engine_handover_after;
    let then = match handover {
        Some(_) => {
            "as long as that is so, no workflow can be made of it, and the upgrade goes on without one after a while"
        }
        None => "as long as that is so, no workflow can be made of it, and the upgrade does not begin",
    };
    let message = format!("{problem}; {then}");
    if draft.condition(types::TEMPLATE_VALID, false, reasons::INVALID, message.clone()) {
        draft.notice(true, reasons::INVALID, message);
    }
    true
}

/// Makes the workflow of the upgrade as it would be now; hooks add to it nothing that the template decides.
fn render(draft: &Draft<'_>, engine: &dyn Engine, key: &TemplateKey, found: &Lookup) -> Result<(), String> {
    let input = draft.input;
    let template = found.own_template(key, engine.template_key())?;
    let plan = build::main_plan(input.job, &input.world.hooks, &input.world.pools, 1);
    let context = RunContext {
        job: input.job,
        name: run_name(input.job, plan.run),
        config: input.job.spec.config.workflow.clone().unwrap_or_default(),
        template: Some(template),
        default_service_account: input.settings.workflow_service_account.clone(),
        active_deadline_seconds: active_deadline_seconds(input.job),
        hooks: &[],
        templates: &NO_TEMPLATES,
    };
    engine
        .render(&plan, &context)
        .map(drop)
        .map_err(|error| format!("{key}: {error}"))
}
