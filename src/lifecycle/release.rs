//! Giving back what a job took: intent, pauses and lock, in this order. Runs whether or not an engine is alive.

use kube::ResourceExt;

use super::{draft::Draft, is_protected, left_paused, lock};
use crate::{
    api::{
        conditions::{self, types},
        upgrade_job::{PauseReason, StepPhase},
    },
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
    pools::{self, Pause},
    steps::Action,
    target::Target,
};

/// What is still to be given back.
pub(super) enum Released {
    /// Actions were added; look again.
    Going(String),
    /// Nothing of ours is left but what the message names.
    Done(String),
}

/// One step towards having given everything back.
///
/// All of it is guarded by the lock: a job that has lost the lock (or never had it) touches no pool.
pub(super) fn release(draft: &mut Draft<'_>) -> Released {
    let lock = lock::state(draft.input.world, draft.input.job);
    match lock {
        lock::Lock::Ours => {}
        lock::Lock::Unknown => return Released::Going("the ClusterVersion is not known".to_owned()),
        // Someone removed the lock. Nobody else has it, so what we asked for is still ours to take back; nothing else is.
        lock::Lock::Free if is_protected(draft.input.job) => {}
        lock::Lock::Free | lock::Lock::Held(_) => return Released::Done(left_paused::record(draft)),
    }
    if let Some(action) = withdrawal(draft) {
        draft.actions.push(action);
        let message = "taking spec.desiredUpdate back";
        draft.condition(types::INTENT_WITHDRAWN, false, "Withdrawing", message);
        return Released::Going(message.to_owned());
    }
    withdrawn(draft);
    if lock != lock::Lock::Ours {
        return Released::Done(left_paused::record(draft));
    }
    let pools = pool_actions(draft);
    if !pools.is_empty() {
        draft.actions.extend(pools);
        return Released::Going("giving pools back".to_owned());
    }
    draft.actions.push(Action::ReleaseLock);
    Released::Going("releasing the lock".to_owned())
}

/// Says what came of a withdrawal, once the cluster shows it.
fn withdrawn(draft: &mut Draft<'_>) {
    let asked = conditions::get(&draft.status.conditions, types::INTENT_WITHDRAWN)
        .is_some_and(|c| c.reason == "Withdrawing");
    if !asked {
        return;
    }
    if is_under_way(draft) {
        let message = "the cluster-version operator accepted the release before spec.desiredUpdate was taken back; it goes on";
        draft.condition(types::INTENT_WITHDRAWN, false, "AlreadyAccepted", message);
    } else {
        let message = "spec.desiredUpdate was taken back, so that the upgrade does not start by itself later";
        draft.condition(types::INTENT_WITHDRAWN, true, "Withdrawn", message);
    }
}

/// Our desiredUpdate is taken back unless the newest history entry is our target: otherwise the cluster-version operator
/// would start the upgrade by itself the moment its cause of refusal is gone (design 5).
fn withdrawal(draft: &Draft<'_>) -> Option<Action> {
    let set = draft.status.desired_update.as_ref()?;
    let ours = Target {
        version: set.version.clone().unwrap_or_default(),
        image: set.image.clone().unwrap_or_default(),
    };
    let cluster: &ClusterVersion = draft.input.world.cluster_version.as_ref()?;
    let newest = cluster.newest()?;
    if ours.is(newest) {
        return None;
    }
    let desired = cluster.spec.desired_update.as_ref()?;
    if !ours.is_exactly(desired) {
        return None;
    }
    let restore = draft.status.previous_desired_update.as_ref().and_then(|before| {
        let before = Target {
            version: before.version.clone().unwrap_or_default(),
            image: before.image.clone().unwrap_or_default(),
        };
        before.is(newest).then_some(before)
    });
    Some(Action::WithdrawDesiredUpdate { ours, restore })
}

/// Pools of ours with nothing pending are unpaused; the others stay paused. After a failure the configured ones are paused.
fn pool_actions(draft: &Draft<'_>) -> Vec<Action> {
    let (world, job) = (draft.input.world, draft.input.job);
    // A deleted job gives back; it takes no new pauses.
    let failed = draft.has(types::FAILED) && job.metadata.deletion_timestamp.is_none() && has_touched(draft);
    let mut actions = Vec::new();
    for pool in &world.pools {
        match pools::pause(job, pool) {
            Pause::Ours(PauseReason::Delay) if !pools::is_pending(world, pool) => {
                actions.push(Action::UnpausePool {
                    pool: pool.name_any(),
                });
            }
            // A pool that was unpaused by hand still carries our name.
            Pause::None if pools::is_owner(job, pool) => actions.push(Action::UnpausePool {
                pool: pool.name_any(),
            }),
            Pause::None if failed && is_paused_on_failure(draft, pool) => {
                actions.push(Action::PausePool {
                    pool: pool.name_any(),
                    reason: PauseReason::Failure,
                });
            }
            Pause::None | Pause::Ours(_) | Pause::OtherJob(_) | Pause::Foreign => {}
        }
    }
    actions
}

/// Whether the job came as far as touching the cluster. One that did not leaves its pools alone, whatever they do.
fn has_touched(draft: &Draft<'_>) -> bool {
    draft.status.desired_update.is_some()
        || draft
            .step_phase("pause-pools")
            .is_some_and(|p| p == StepPhase::Succeeded)
}

fn is_paused_on_failure(draft: &Draft<'_>, pool: &MachineConfigPool) -> bool {
    draft.input.job.spec.config.pauses_on_failure(pool) && pools::is_pending(draft.input.world, pool)
}

/// Whether the cluster is about to install, or has installed, what this job set.
pub(super) fn is_under_way(draft: &Draft<'_>) -> bool {
    let Some(target) = draft.scene(draft.now()).target() else {
        return false;
    };
    draft
        .input
        .world
        .cluster_version
        .as_ref()
        .and_then(ClusterVersion::newest)
        .is_some_and(|newest| target.is(newest))
}
