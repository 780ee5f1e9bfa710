//! A deleted job: stop its workflow, give everything back, then let it go. No hooks run.

use super::{RunState, draft::Draft, is_protected, release};
use crate::{
    api::{
        conditions::{reasons, types},
        upgrade_job::JobPhase,
    },
    steps::Action,
};

pub(super) fn decide(draft: &mut Draft<'_>) {
    if !is_protected(draft.input.job) {
        return;
    }
    let unfinished = !draft.has(types::SUCCEEDED) && !draft.has(types::FAILED);
    if unfinished && draft.has(types::STARTED) {
        // From here on the job acts no more; that must be on record before anything is given back.
        let message = if release::is_under_way(draft) {
            "the job was deleted; the upgrade that it started goes on, nobody watches it"
        } else {
            "the job was deleted before its upgrade began"
        };
        draft.condition(types::FAILED, true, "Deleted", message);
        draft.status.phase = Some(JobPhase::Failed);
        draft.status.finished_at = Some(draft.time());
        draft.status.message = Some(message.to_owned());
        draft.notice(true, "Deleted", message);
    }
    if let RunState::Present { run, .. } = draft.input.run
        && !run.finished
        && run.stop.is_none()
    {
        draft.actions.push(Action::StopWorkflow);
    }
    match release::release(draft) {
        release::Released::Going(_) => {}
        release::Released::Done(message) => {
            draft.notice(false, reasons::COMPLETED, format!("deleted; {message}"));
            draft.actions.push(Action::Unprotect);
        }
    }
}
