//! Whether the engine of a job can run its hooks of reusable templates (Argo's WorkflowTemplates, Tekton's Tasks): looked at
//! once, when the job is pinned, so that people learn of it before the night; and again if the job gets another engine before
//! its start.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::{EngineState, draft::Draft};
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

/// Looks once; `false` while something has to be read first. An Abort hook that cannot run fails the job now; another one is
/// tracked as failed.
pub(super) fn check(draft: &mut Draft<'_>) -> bool {
    if conditions::get(&draft.status.conditions, types::HOOKS_RUNNABLE).is_some() {
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
    judge(draft, *engine, &hooks);
    true
}

fn judge(draft: &mut Draft<'_>, engine: EngineChoice, hooks: &[(HookEvent, &UpgradeJobHook)]) {
    let mut problems: Vec<String> = Vec::new();
    let mut aborts: Option<String> = None;
    for (event, hook) in hooks {
        let Some(problem) = problem_of(draft, engine, hook) else {
            continue;
        };
        let name = hook.name_any();
        let text = format!("hook {name} cannot be run: {problem}");
        if !problems.contains(&text) {
            draft.notice(true, reasons::HOOK_NOT_RUNNABLE, text.clone());
            problems.push(text.clone());
        }
        match hook.spec.failure_policy_at(*event) {
            FailurePolicy::Abort => drop(aborts.get_or_insert(text)),
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
        return;
    }
    let message = problems.join("; ");
    draft.condition(types::HOOKS_RUNNABLE, false, reasons::HOOK_NOT_RUNNABLE, message);
    if let Some(message) = aborts {
        draft.fail(reasons::HOOK_FAILED, message);
    }
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
