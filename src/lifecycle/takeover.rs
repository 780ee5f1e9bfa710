//! A job that openshift-upgrade-controller ("the peer") started and did not end: it is carried on from what the cluster shows,
//! by the embedded engine.
//!
//! What the peer leaves, in this order (its code of June 2026, commit 14bc5df, `controllers/upgradejob_controller.go`):
//! 1. `Started=True`; the Jobs of Start hooks, in `hookTracker` like those of all later events;
//! 2. only when these have ended the lock, without a UID, and held pools paused, with an owner but without its UID and a reason;
//!    `MachineConfigPoolsPaused`. From `delayMin` on it unpauses them, whatever else has happened, and leaves the owner;
//! 3. `PreHealthCheckDone`, first `False`, then `True`;
//! 4. `spec.desiredUpdate` of the ClusterVersion; `UpgradeCompleted`, first `False`, and `True` when the control plane and the
//!    pools that are not paused are done; neither without `spec.desiredVersion`;
//! 5. `PostHealthCheckDone`; hooks of UpgradeComplete; `Paused` while pools are held.
//!
//! It sets no finalizer on the job, and it knows no other field of the status: what an operator of ours had recorded there is gone
//! with its first write.

use kube::ResourceExt;

use super::{
    attempt,
    draft::Draft,
    lock::{self, Lock},
    running,
};
use crate::{
    api::{
        conditions::{self, reasons, types},
        upgrade_job::{DesiredVersion, EngineChoice, StepPhase},
    },
    engine::run_name,
    openshift::machine_config_pool::MachineConfigPool,
    plan::{Plan, StepAction, build},
    pools::{self, Pause},
    steps::{self, Action, Verdict},
    target::Target,
};

/// Who did what is not done again.
const PEER: &str = "openshift-upgrade-controller";

/// Whether the peer started this job: it has no plan, and nothing of what our start records with it.
pub(super) fn is_of_peer(draft: &Draft<'_>) -> bool {
    let status = &draft.status;
    status.plan.is_none()
        && status.steps.is_empty()
        && status.workflow.is_none()
        && status.started_at.is_none()
}

/// Finalizer, lock, and pools that must not be paused; then the plan with what is done of it: one write, so that every later look finds all of it or nothing.
pub(super) fn decide(draft: &mut Draft<'_>) {
    match lock::state(draft.input.world, draft.input.job) {
        // The peer takes it only once its Start hooks have ended.
        Lock::Free if !has_had_lock(draft) => {}
        Lock::Held(by) if !has_had_lock(draft) => {
            let why = format!(
                "UpgradeJob {by} has the lock on the ClusterVersion; this one, which {PEER} started, goes on after it"
            );
            return running::wait(draft, &why);
        }
        Lock::Ours | Lock::Free | Lock::Held(_) | Lock::Unknown => {
            if !running::has_lock(draft) {
                return;
            }
        }
    }
    if !lock::secure(draft) {
        return;
    }
    if unpause_control_plane(draft) {
        return;
    }
    let input = draft.input;
    let plan = build::main_plan(input.job, &input.world.hooks, &input.world.pools, 1);
    if !draft.store_plan(&plan) {
        return;
    }
    for step in &plan.steps {
        draft.step_mut(step);
    }
    let started = conditions::get(&draft.status.conditions, types::STARTED);
    draft.status.started_at = started.map(|c| c.last_transition_time.clone());
    attempt::follow_on(draft, EngineChoice::Embedded, run_name(input.job, plan.run));
    record_unpaused(draft, &plan);
    record_upgraded(draft, &plan);
    say(draft);
}

/// Whether the peer came past its Start hooks: it takes the lock only then.
fn has_had_lock(draft: &Draft<'_>) -> bool {
    [types::MACHINE_CONFIG_POOLS_PAUSED, types::PRE_HEALTH_CHECK_DONE]
        .iter()
        .any(|type_| conditions::get(&draft.status.conditions, type_).is_some())
}

/// Unpauses what the peer paused and must not be: a selector `{}` is `master` too for it, and with that paused the control plane
/// never comes to its end. Whether there was such a pool.
fn unpause_control_plane(draft: &mut Draft<'_>) -> bool {
    let input = draft.input;
    let is_ours = |pool: &MachineConfigPool| matches!(pools::pause(input.job, pool), Pause::Ours(_));
    let all = input.world.pools.iter();
    let paused: Vec<String> = all
        .filter(|pool| pool.is_required_for_upgrade() && is_ours(pool))
        .map(ResourceExt::name_any)
        .collect();
    if paused.is_empty() {
        return false;
    }
    let names = paused.join(", ");
    draft.status.message = Some(format!("unpausing {names}, which the control plane needs"));
    let actions = paused.into_iter().map(|pool| Action::UnpausePool { pool });
    draft.actions.extend(actions);
    true
}

/// Groups of which the peer has unpaused every pool: nothing is left to hold, and no hook to run before.
fn record_unpaused(draft: &mut Draft<'_>, plan: &Plan) {
    let input = draft.input;
    for group in pools::held_groups(input.job, &input.world.pools) {
        let members = pools::members(input.job, group.index, &input.world.pools);
        let is_released =
            |pool: &&MachineConfigPool| pools::is_released_by_peer(input.job, &group, pool, input.now);
        if members.is_empty() || !members.iter().all(is_released) {
            continue;
        }
        let names: Vec<String> = members.iter().map(|p| p.name_any()).collect();
        let message = format!("{} unpaused", names.join(", "));
        let of_group = plan.steps.iter().map(|s| &s.action);
        for action in of_group.filter(|a| a.holds_back() == Some(group.index)) {
            record(draft, plan, action, &message);
        }
    }
}

/// What the peer has behind it on the way to the held pools. That the cluster is upgraded counts only as far as the cluster shows
/// it; its health check before counts once the cluster was asked: until then ours is made, which looks at more.
fn record_upgraded(draft: &mut Draft<'_>, plan: &Plan) {
    if !draft.has(types::PRE_HEALTH_CHECK_DONE) {
        return;
    }
    if draft.input.job.spec.desired_version.is_some() {
        let Some(target) = asked_for(draft) else {
            return;
        };
        record_pre_check(draft, plan);
        let message = format!(
            "spec.desiredUpdate of the ClusterVersion set to {}",
            target.version
        );
        // On record, an ending can take it back, and a change by somebody else is seen.
        draft.status.desired_update = Some(DesiredVersion {
            version: Some(target.version),
            image: Some(target.image),
            ..DesiredVersion::default()
        });
        record(draft, plan, &StepAction::SetDesiredUpdate, &message);
        if !draft.has(types::UPGRADE_COMPLETED) || !is_shown(draft, plan, &StepAction::AwaitControlPlane) {
            return;
        }
    } else {
        // Pools may be rolling, which the check would take for trouble.
        record_pre_check(draft, plan);
    }
    if is_shown(draft, plan, &StepAction::AwaitPools) && draft.has(types::POST_HEALTH_CHECK_DONE) {
        record_check(
            draft,
            plan,
            &StepAction::PostHealthCheck,
            types::POST_HEALTH_CHECK_DONE,
        );
    }
}

/// What the peer has asked the cluster for: it is there, or was when the peer began to wait for it.
fn asked_for(draft: &Draft<'_>) -> Option<Target> {
    let target = draft.scene(draft.now()).target()?;
    let cluster = draft.input.world.cluster_version.as_ref()?;
    let desired = cluster.spec.desired_update.as_ref();
    let is_asked = desired.is_some_and(|desired| target.is_asked_by(desired));
    let was_asked = conditions::get(&draft.status.conditions, types::UPGRADE_COMPLETED).is_some();
    (is_asked || was_asked).then_some(target)
}

/// Whether the cluster shows that this step is done; then it is recorded.
fn is_shown(draft: &mut Draft<'_>, plan: &Plan, action: &StepAction) -> bool {
    let Some(step) = plan.steps.iter().find(|s| s.action == *action) else {
        return false;
    };
    let Verdict::Done { message } = steps::tick(step, &draft.scene(draft.now())).verdict else {
        return false;
    };
    record(draft, plan, action, &message);
    true
}

fn record_pre_check(draft: &mut Draft<'_>, plan: &Plan) {
    let type_ = types::PRE_HEALTH_CHECK_DONE;
    record_check(draft, plan, &StepAction::PreHealthCheck, type_);
}

/// A health check that the peer made.
fn record_check(draft: &mut Draft<'_>, plan: &Plan, action: &StepAction, type_: &str) {
    let message = conditions::get(&draft.status.conditions, type_).map(|c| c.message.clone());
    record(draft, plan, action, &message.unwrap_or_default());
}

fn record(draft: &mut Draft<'_>, plan: &Plan, action: &StepAction, what: &str) {
    let Some(step) = plan.steps.iter().find(|s| s.action == *action) else {
        return;
    };
    draft.begin(step, None);
    draft.end_step(step, StepPhase::Succeeded, format!("done by {PEER}: {what}"));
}

fn say(draft: &mut Draft<'_>) {
    let done = draft
        .status
        .steps
        .iter()
        .filter(|s| s.phase == StepPhase::Succeeded);
    let done: Vec<&str> = done.map(|s| s.name.as_str()).collect();
    let done = match done.as_slice() {
        [] => "no step is done yet".to_owned(),
        all => format!("done already: {}", all.join(", ")),
    };
    let message = format!(
        "{PEER} started this job; this operator carries it on from what the cluster shows, without a workflow, whatever \
         config.workflow.engine says; {done}; hooks that ran are not run again"
    );
    draft.condition(types::TAKEN_OVER, true, reasons::STARTED_BY_PEER, message.clone());
    draft.notice(false, types::TAKEN_OVER, message.clone());
    draft.say(message);
}
