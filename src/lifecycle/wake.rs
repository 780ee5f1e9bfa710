//! Workflows that their engine has forgotten: where Argo loses an event, it looks again at the next write of somebody else, or
//! after 20 minutes (see [`crate::engine::Engine::wake`]).

use jiff::{SignedDuration, Timestamp};

use super::draft::Draft;
use crate::{engine::Run, steps::Action};

/// How long a workflow may take to do what it has to before its engine is made to look at it; then the same again.
const AFTER: SignedDuration = SignedDuration::from_mins(1);
/// How long that goes on.
const UNTIL: SignedDuration = SignedDuration::from_mins(20);

/// Makes the engine look at a workflow that should have gone on since then, a few times.
pub(super) fn after(draft: &mut Draft<'_>, run: &Run, since: Timestamp) {
    let last = run.woken_at.map_or(since, |woken| woken.max(since));
    if last.duration_since(since) >= UNTIL {
        return;
    }
    match last.saturating_add(AFTER) {
        Ok(next) if draft.now() < next => draft.wake_at(next),
        Ok(_) => draft.actions.push(Action::WakeWorkflow),
        Err(_) => {}
    }
}
