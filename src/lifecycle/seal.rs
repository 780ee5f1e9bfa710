//! Workflows that have ended are sealed where their engine would run things of its own again if somebody retried them: failed
//! hooks would begin anew at once, long before the operator sees it and stops it.

use super::{OtherState, RunState, draft::Draft};
use crate::{
    engine::{Repeat, StopRequest},
    steps::Action,
};

/// Seals what has ended. After all else: also where the job ends in the same pass.
pub(super) fn decide(draft: &mut Draft<'_>) {
    if let RunState::Present { run, .. } = draft.input.run
        && run.repeat == Repeat::Possible
    {
        draft.actions.push(Action::SealWorkflow);
    }
    let others = draft.input.others.iter();
    let open = others.filter(|o| o.state == OtherState::EndedUnsealed);
    let seals = open.map(|o| Action::SealOtherWorkflow { name: o.name.clone() });
    draft.actions.extend(seals);
}

/// Stops the workflow that has had its end, if somebody has retried it. Whether it is such a one: then nothing that it shows
/// counts.
pub(super) fn stop_repeated(draft: &mut Draft<'_>) -> bool {
    if !is_repeated(draft) {
        return false;
    }
    if let RunState::Present { run, .. } = draft.input.run
        && run.stop != Some(StopRequest::Terminate)
    {
        draft.actions.push(Action::StopWorkflow);
    }
    true
}

/// Whether somebody has retried the job's workflow after its end.
pub(super) fn is_repeated(draft: &Draft<'_>) -> bool {
    matches!(draft.input.run, RunState::Present { run, .. } if run.repeat == Repeat::Begun)
}
