//! What outside of the cluster's objects holds a job: said in the condition `Held`, for as long as the job has no outcome.

use super::{Stage, draft::Draft};
use crate::{
    api::conditions::{self, reasons, types},
    outside::Hindrance,
};

/// Says that the peer holds the job, and changes nothing else.
pub(super) fn by_peer(draft: &mut Draft<'_>, peer: &Hindrance) {
    // Not even this: the peer may be writing to the job.
    draft.status.observed_generation = draft
        .input
        .job
        .status
        .as_ref()
        .and_then(|s| s.observed_generation);
    if is_open(draft) {
        hold(draft, peer);
        draft.status.message = Some(peer.message.clone());
    }
}

/// Says whether clocks that disagree hold the job.
pub(super) fn say(draft: &mut Draft<'_>) {
    match draft.input.world.outside.clock_skew() {
        Some(skew) if is_open(draft) => hold(draft, &skew),
        Some(_) | None => {
            if conditions::is_true(&draft.status.conditions, types::HELD) {
                let message = "nothing keeps the operator from acting any more";
                draft.condition(types::HELD, false, reasons::NOT_HELD, message);
            }
        }
    }
}

/// What held the job until now, as its status says.
pub(super) fn until_now(draft: &Draft<'_>) -> Option<(String, String)> {
    let status = draft.input.job.status.as_ref()?;
    let held = conditions::get(&status.conditions, types::HELD).filter(|c| c.status == "True")?;
    Some((held.reason.clone(), held.message.clone()))
}

fn is_open(draft: &Draft<'_>) -> bool {
    match Stage::of(draft.input.job) {
        Stage::Pending | Stage::Started => true,
        Stage::Finished | Stage::Deleting => false,
    }
}

fn hold(draft: &mut Draft<'_>, by: &Hindrance) {
    if draft.condition(types::HELD, true, by.reason, by.message.clone()) {
        draft.notice(true, by.reason, by.message.clone());
    }
}
