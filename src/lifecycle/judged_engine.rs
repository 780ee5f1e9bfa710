//! Which engine `HooksRunnable` and `TemplateValid` are about. Until its start a job may get another one: with `auto`, when an
//! engine is installed or removed, or when its hooks change. What was found out of the one before says nothing of that.

use super::{EngineState, draft::Draft};
use crate::{
    api::{
        conditions::{self, types},
        upgrade_job::{EngineChoice, HookState, HookTracker},
    },
    hooks::job,
};

/// What is judged with regard to an engine.
const JUDGEMENTS: [&str; 2] = [types::HOOKS_RUNNABLE, types::TEMPLATE_VALID];

/// Whether an engine was judged before the one that is judged now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// None was, at the pin.
    First,
    /// Another one, which may come back.
    Again,
}

/// Takes back what was judged of another engine, so that it is judged again: the conditions, and hooks that were tracked as
/// failed because that one could not run them.
///
/// A job whose Create hooks have run on an engine keeps that one.
pub(super) fn forget_other(draft: &mut Draft<'_>) -> Judged {
    let judged = draft.status.judged_engine;
    if judged.is_none() || engine(draft).is_none_or(|engine| judged == Some(engine)) {
        return Judged::First;
    }
    draft.status.judged_engine = None;
    draft
        .status
        .conditions
        .retain(|c| !JUDGEMENTS.contains(&c.type_.as_str()));
    let hooks = &draft.input.world.hooks;
    let is_native = |entry: &HookTracker| {
        let hook = hooks
            .iter()
            .find(|h| h.metadata.name.as_ref() == Some(&entry.upgrade_job_hook));
        hook.is_some_and(|h| job::native(h).is_some())
    };
    let was_refused =
        |e: &HookTracker| e.status == HookState::Failed && e.workflow_step.is_none() && is_native(e);
    draft.status.hook_tracker.retain(|e| !was_refused(e));
    Judged::Again
}

/// Records which engine was judged.
pub(super) fn remember(draft: &mut Draft<'_>) {
    let is_judged = JUDGEMENTS
        .iter()
        .any(|type_| conditions::get(&draft.status.conditions, type_).is_some());
    if let (true, Some(engine)) = (is_judged, engine(draft)) {
        draft.status.judged_engine = Some(engine);
    }
}

fn engine(draft: &Draft<'_>) -> Option<EngineChoice> {
    match draft.input.engine {
        EngineState::Ready(engine) => Some(*engine),
        EngineState::Missing(_) => None,
    }
}
