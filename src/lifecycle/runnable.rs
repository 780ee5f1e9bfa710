//! Whether the engine of a job can run its hooks of reusable templates (Argo's WorkflowTemplates, Tekton's Tasks): looked at
//! once, when the job is pinned, so that people learn of it before the night; and again if the job gets another engine before
//! its start. An engine may be away for a moment, so what the other one cannot run fails the job at its start only.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::{EngineState, draft::Draft, judged_engine::Judged};
use crate::{
    api::{
        UpgradeJobHook,
        conditions::{self, reasons, types},
        upgrade_job::EngineChoice,
        upgrade_job_hook::{FailurePolicy, HookEvent},
    },
    engine::{
        self,
        native::{Lookup, TemplateKey},
    },
    hooks::{job, select, tracker},
};

/// Looks once, and at the start at what could not run before; `false` while something has to be read first. An Abort hook that
/// cannot run fails the job: at the pin, or at the start if another engine was judged before. Another hook is tracked as failed.
pub(super) fn check(draft: &mut Draft<'_>, judged: Judged) -> bool {
    let is_due = draft.now() >= draft.input.job.spec.start_after.0;
    let said = conditions::get(&draft.status.conditions, types::HOOKS_RUNNABLE);
    let is_said = said.is_some();
    if said.is_some_and(|c| c.status == "True" || !is_due) {
        return true;
    }
    let EngineState::Ready(engine) = draft.input.engine else {
        return true;
    };
    let input = draft.input;
    let hooks: Vec<(HookEvent, &UpgradeJobHook)> = HookEvent::ALL
        .into_iter()
        .flat_map(|event| {
            let matching = select::matching(&input.world.hooks, input.job, event);
            matching.into_iter().map(move |hook| (event, hook))
        })
        .filter(|(_, hook)| job::native(hook).is_some())
        .collect();
    if hooks.is_empty() {
        return true;
    }
    let wanted = hooks.iter().filter_map(|(_, h)| template_of(*engine, h));
    let lacking: Vec<TemplateKey> = wanted.filter(|key| input.templates.get(key).is_none()).collect();
    if !lacking.is_empty() {
        for key in lacking {
            draft.lack(key);
        }
        return false;
    }
    let aborts = if is_said {
        aborting(draft, *engine, &hooks)
    } else {
        judge(draft, *engine, &hooks)
    };
    match (aborts, judged) {
        (None, _) => {}
        (Some(_), Judged::Again) if !is_due => {}
        (Some(message), Judged::Again | Judged::First) => draft.fail(reasons::HOOK_FAILED, message),
    }
    true
}

/// The first hook that cannot run and whose failure ends the job, and why.
fn aborting(
    draft: &Draft<'_>,
    engine: EngineChoice,
    hooks: &[(HookEvent, &UpgradeJobHook)],
) -> Option<String> {
    let mut aborts = hooks
        .iter()
        .filter(|(event, hook)| match hook.spec.failure_policy_at(*event) {
            FailurePolicy::Abort => true,
            FailurePolicy::Ignore => false,
        });
    aborts.find_map(|(_, hook)| problem_of(draft, engine, hook).map(|problem| cannot_run(hook, &problem)))
}

fn cannot_run(hook: &UpgradeJobHook, problem: &str) -> String {
    format!("hook {} cannot be run: {problem}", hook.name_any())
}

/// Judges all hooks, and says so; returns what [`aborting`] does.
fn judge(
    draft: &mut Draft<'_>,
    engine: EngineChoice,
    hooks: &[(HookEvent, &UpgradeJobHook)],
) -> Option<String> {
    let mut problems: Vec<String> = Vec::new();
    for (event, hook) in hooks {
        let Some(problem) = problem_of(draft, engine, hook) else {
            continue;
        };
        let name = hook.name_any();
        let text = cannot_run(hook, &problem);
        if !problems.contains(&text) {
            draft.notice(true, reasons::HOOK_NOT_RUNNABLE, text.clone());
            problems.push(text);
        }
        match hook.spec.failure_policy_at(*event) {
            FailurePolicy::Abort => {}
            // Which pools there are is known only then.
            FailurePolicy::Ignore if *event == HookEvent::MachineConfigPoolUnpause => {}
            FailurePolicy::Ignore => {
                if tracker::find(&draft.status.hook_tracker, &name, *event, "").is_none() {
                    draft
                        .status
                        .hook_tracker
                        .push(tracker::failed(&name, *event, "", problem));
                }
            }
        }
    }
    if problems.is_empty() {
        let message = all_is_well(draft, engine, hooks);
        draft.condition(types::HOOKS_RUNNABLE, true, reasons::TEMPLATES_FOUND, message);
        return None;
    }
    let message = problems.join("; ");
    draft.condition(types::HOOKS_RUNNABLE, false, reasons::HOOK_NOT_RUNNABLE, message);
    aborting(draft, engine, hooks)
}

fn problem_of(draft: &Draft<'_>, choice: EngineChoice, hook: &UpgradeJobHook) -> Option<String> {
    match engine::of(choice) {
        Some(engine) if template_of(choice, hook).is_some() => engine.problem_of(hook, draft.input.templates),
        Some(_) | None => job::native(hook),
    }
}

/// The reusable template of a hook that this engine runs.
fn template_of(engine: EngineChoice, hook: &UpgradeJobHook) -> Option<TemplateKey> {
    match engine {
        EngineChoice::Argo => hook.spec.template_ref.as_ref().map(TemplateKey::of),
        EngineChoice::Tekton => hook.spec.task_ref.as_ref().map(TemplateKey::of_task),
        EngineChoice::Embedded | EngineChoice::Auto => None,
    }
}

/// What is said where nothing is known to be wrong.
fn all_is_well(draft: &Draft<'_>, engine: EngineChoice, hooks: &[(HookEvent, &UpgradeJobHook)]) -> String {
    let unread: BTreeSet<String> = hooks
        .iter()
        .filter_map(|(_, hook)| template_of(engine, hook))
        .filter(|key| matches!(draft.input.templates.get(key), Some(Lookup::Forbidden(_))))
        .map(|key| key.to_string())
        .collect();
    let found = "the templates of all hooks of this job were found";
    if unread.is_empty() {
        return found.to_owned();
    }
    let unread: Vec<String> = unread.into_iter().collect();
    format!(
        "{found}, or are not for the operator to read: {}",
        unread.join(", ")
    )
}
