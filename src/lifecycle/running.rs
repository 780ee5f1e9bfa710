//! A started job: advance its steps, and watch for every ending that is not a step's own.

use jiff::{SignedDuration, Timestamp};

use super::{
    EngineState, RunState, attempt, draft::Draft, drive, lock, native, passed_over, pending, stall, takeover,
};
use crate::{
    api::{
        conditions::{reasons, types},
        duration,
        upgrade_job::{JobPhase, StepPhase},
        validation,
    },
    engine::{Node, NodePhase, Run, StopRequest, run_name},
    plan::{Part, Plan, PlanStep},
    pools::{self, Pause},
    steps,
    target::changed_by_someone,
    text,
};

/// How long the next step may take to be recorded when the cluster is done already.
const RECORDING: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn decide(draft: &mut Draft<'_>) {
    let plan = match draft.plan() {
        Ok(Some(plan)) => plan,
        Ok(None) if takeover::is_of_peer(draft) => return takeover::decide(draft),
        Ok(None) => return unreadable(draft, "status.plan is missing: was it removed by hand?"),
        Err(error) => return unreadable(draft, &error.to_string()),
    };
    if !has_lock(draft) {
        return;
    }
    // Delays and timeouts may be edited meanwhile: what is wrong with them is said, and the upgrade goes on.
    let problems: Vec<String> = validation::upgrade_job(draft.input.job, &draft.input.world.pools)
        .iter()
        .map(ToString::to_string)
        .collect();
    draft.judge(&problems);
    if expire(draft, &plan) {
        return;
    }
    claim_hooks(draft);
    let followed = draft.status.workflow.clone();
    match draft.input.run {
        RunState::Absent => absent(draft, &plan),
        RunState::Gone { run } => {
            // Whoever stopped it wanted no more, however soon it was deleted after that.
            if !stopped(draft, run) {
                absent(draft, &plan);
            }
        }
        RunState::Foreign => attempt::another(
            draft,
            &plan,
            "there is a workflow of that name, and it is not (or not any more) labelled as that of this job",
        ),
        RunState::Present { uid, run } => present(draft, &plan, uid, run),
    }
    if draft.status.finished_at.is_none() && draft.status.workflow == followed {
        stall::watch(draft, &plan);
    }
    if draft.status.finished_at.is_none() {
        deadline(draft);
    }
}

/// Whether the job has its lock. One that lost it has failed: nothing of it may go on.
pub(super) fn has_lock(draft: &mut Draft<'_>) -> bool {
    match lock::state(draft.input.world, draft.input.job) {
        lock::Lock::Ours => return true,
        lock::Lock::Unknown => wait(draft, "the ClusterVersion is not known"),
        lock::Lock::Free => draft.fail(
            reasons::LOCK_LOST,
            "someone removed our lock from the ClusterVersion",
        ),
        lock::Lock::Held(by) => draft.fail(
            reasons::LOCK_LOST,
            format!("the lock on the ClusterVersion was taken by {by}"),
        ),
    }
    false
}

/// A job of which nothing has begun is not run late, whoever was away: the engine, the operator, or a person who paused the
/// workflow. Whether it has ended by that.
fn expire(draft: &mut Draft<'_>, plan: &Plan) -> bool {
    let is_stopped = match draft.input.run {
        RunState::Present { run, .. } | RunState::Gone { run } => run.stopped_in_its_course().is_some(),
        RunState::Absent | RunState::Foreign => false,
    };
    let Some(limit) = stall::too_late_at(draft, plan).filter(|_| !is_stopped) else {
        return false;
    };
    if draft.now() < limit {
        draft.wake_at(limit);
        return false;
    }
    let obstacle = match stall::watch(draft, plan) {
        Some(why) => Some(pending::Obstacle::new(reasons::ENGINE_STALLED, why)),
        None => paused(draft),
    };
    pending::expire(draft, obstacle);
    true
}

fn paused(draft: &Draft<'_>) -> Option<pending::Obstacle> {
    let RunState::Present { run, .. } = draft.input.run else {
        return None;
    };
    let followed = draft.status.workflow.as_ref().filter(|_| run.suspended)?;
    let why = format!("workflow {} was suspended by a person", followed.name);
    Some(pending::Obstacle::new(reasons::WORKFLOW_SUSPENDED, why))
}

/// Nothing can be decided without the plan; the deadline still counts.
fn unreadable(draft: &mut Draft<'_>, problem: &str) {
    draft.condition(types::VALID, false, reasons::INVALID, problem);
    draft.say(problem);
    deadline(draft);
}

/// Says what the job waits for; the deadline still counts.
pub(super) fn wait(draft: &mut Draft<'_>, why: &str) {
    draft.say(why);
    deadline(draft);
}

/// Hooks with `run: Next` are claimed at the start; also those that appear, or were missed by a crash, while the job runs.
fn claim_hooks(draft: &mut Draft<'_>) {
    let claims = crate::hooks::select::claims(&draft.input.world.hooks, draft.input.job);
    let actions: Vec<_> = claims
        .into_iter()
        .map(|h| steps::Action::ClaimHook {
            hook: kube::ResourceExt::name_any(h),
        })
        .collect();
    draft.actions.extend(actions);
}

fn absent(draft: &mut Draft<'_>, plan: &Plan) {
    let is_done = |s: &PlanStep| draft.step_phase(&s.name).is_some_and(StepPhase::is_finished);
    if plan.part(Part::Main).all(is_done) {
        // Nothing is left that a workflow would have to order.
        return succeed(draft);
    }
    match &draft.status.workflow {
        Some(workflow) if workflow.uid.is_some() => attempt::another(draft, plan, "the workflow was deleted"),
        Some(_) => create(draft),
        None => {
            let name = run_name(draft.input.job, plan.run);
            attempt::follow(draft, name);
            create(draft);
        }
    }
}

fn create(draft: &mut Draft<'_>) {
    match draft.input.engine {
        EngineState::Ready(_) => draft.actions.push(steps::Action::CreateWorkflow),
        EngineState::Missing(why) => draft.say(why.clone()),
    }
}

fn present(draft: &mut Draft<'_>, plan: &Plan, uid: &str, run: &Run) {
    record_workflow(draft, uid, run);
    if let Some(problem) = &run.unsupported {
        return stall::unsupported(draft, plan, problem);
    }
    if stopped(draft, run) {
        return;
    }
    if let Some(why) = superseded(draft) {
        return draft.succeed(JobPhase::Skipped, reasons::SKIPPED, why);
    }
    keep_pauses(draft, plan);
    match drive::main_part(draft, plan, run) {
        drive::Driven::Failed { reason, message } => draft.fail(reason, message),
        drive::Driven::Done => {
            stall::at_work(draft);
            succeed(draft);
        }
        drive::Driven::Broken(why) => attempt::another(draft, plan, &why),
        drive::Driven::Going if run.finished => {
            native::blame(draft, plan, run);
            let text = run.message.clone().unwrap_or_default();
            attempt::another(
                draft,
                plan,
                &format!("the workflow ended by itself ({}: {text})", run.phase),
            );
        }
        drive::Driven::Going => {
            let waits = |n: &Node| n.phase == NodePhase::Running;
            if run.suspended && !run.nodes.iter().any(waits) {
                let message = drive::pause(draft);
                draft.say(message);
            }
            endings(draft, plan);
        }
    }
}

/// Whoever stops a workflow of a job, also that of its hooks of Create, wants no upgrade: the job fails. Whether it has.
pub(super) fn stopped(draft: &mut Draft<'_>, run: &Run) -> bool {
    let how = match run.stopped_in_its_course() {
        Some(StopRequest::Stop) => "stopped",
        Some(StopRequest::Terminate) => "terminated",
        None => return false,
    };
    let who = run.stopped_by.as_deref().unwrap_or("a person");
    draft.fail(
        reasons::WORKFLOW_STOPPED,
        format!("the workflow was {how} by {who}"),
    );
    true
}

/// Somebody upgraded the cluster beyond our version while the job waited: it must not go back.
fn superseded(draft: &Draft<'_>) -> Option<String> {
    if draft
        .step_phase("set-desired-update")
        .is_none_or(StepPhase::is_finished)
    {
        return None;
    }
    passed_over::superseded(draft)
}

pub(super) fn record_workflow(draft: &mut Draft<'_>, uid: &str, run: &Run) {
    if let Some(workflow) = &mut draft.status.workflow {
        workflow.uid = Some(uid.to_owned());
        workflow.phase = Some(run.phase.clone()).filter(|p| !p.is_empty());
    }
}

/// Pools that joined a held group after `pause-pools` are paused before their first node moves.
fn keep_pauses(draft: &mut Draft<'_>, plan: &Plan) {
    if !draft
        .step_phase("pause-pools")
        .is_some_and(StepPhase::is_finished)
    {
        return;
    }
    // Still to be paused: groups whose unpausing has not begun. One without a step in this plan was released in an
    // earlier attempt.
    let kept: Vec<usize> = plan
        .steps
        .iter()
        .filter(|s| draft.step_phase(&s.name).is_none_or(|p| p == StepPhase::Pending))
        .filter_map(|s| s.action.unpauses())
        .collect();
    let pauses = steps::pauses_due(&draft.scene(draft.now()), |g| !kept.contains(&g));
    draft.actions.extend(pauses);
}

fn succeed(draft: &mut Draft<'_>) {
    let behind: Vec<String> = draft
        .input
        .world
        .pools
        .iter()
        .filter(|p| {
            matches!(
                pools::pause(draft.input.job, p),
                Pause::Foreign | Pause::OtherJob(_)
            )
        })
        .filter(|p| pools::is_pending(draft.input.world, p))
        .map(kube::ResourceExt::name_any)
        .collect();
    if !behind.is_empty() {
        draft.foreign_pause = Some(format!(
            "all done but {}, paused by someone else; the job ends when the pool is unpaused and updated",
            behind.join(", ")
        ));
        return;
    }
    // Whatever was edited or unpaused meanwhile: a job whose pools are not done has not succeeded.
    let rolling: Vec<String> = draft
        .input
        .world
        .pools
        .iter()
        .filter_map(|p| pools::unfinished(draft.input.world, p))
        .collect();
    if !rolling.is_empty() {
        return draft.say(format!("all done but {}", rolling.join("; ")));
    }
    let wanted = draft.input.job.spec.desired_version.as_ref();
    let version = wanted.map(|v| v.version.as_deref().unwrap_or("the given image"));
    let message = match version {
        Some(version) if draft.status.desired_update.is_some() => format!("Upgrade to {version} succeeded"),
        Some(version) => format!("{version} was there already; hooks and pools are done"),
        None => "Maintenance without an update succeeded".to_owned(),
    };
    draft.succeed(JobPhase::Succeeded, reasons::SUCCEEDED, message);
}

/// Endings that belong to no single step.
fn endings(draft: &mut Draft<'_>, plan: &Plan) {
    if let Some(problem) = changed_target(draft) {
        return draft.fail(reasons::DESIRED_UPDATE_CHANGED, problem);
    }
    for step in &plan.steps {
        let Some(index) = step.action.unpauses() else {
            continue;
        };
        if draft.step_phase(&step.name).is_some_and(StepPhase::is_finished) {
            continue;
        }
        let Some(group) = pools::held_group(draft.input.job, index, &draft.input.world.pools) else {
            continue;
        };
        let Some(limit) = group.not_after else { continue };
        draft.wake_at(after(limit));
        if draft.now() > limit && is_any_paused(draft, index) {
            let held_by = held_by(draft, plan, index);
            let by = text::time(limit, draft.input.settings.zone());
            return draft.fail(
                reasons::UNPAUSING_POOLS_EXPIRED,
                format!(
                    "{} could not be unpaused by {by}; it was held by {held_by}",
                    group.name
                ),
            );
        }
    }
}

/// The first instant that is later: what is due at `limit` itself is still in time.
fn after(limit: Timestamp) -> Timestamp {
    limit
        .saturating_add(SignedDuration::from_millis(1))
        .unwrap_or(limit)
}

/// Someone asks for another release although ours was set: never fight.
fn changed_target(draft: &Draft<'_>) -> Option<String> {
    draft.status.desired_update.as_ref()?;
    // Before this step is done, `desiredUpdate` may still be what it was before.
    if !draft
        .step_phase("set-desired-update")
        .is_some_and(StepPhase::is_finished)
    {
        return None;
    }
    let target = draft.scene(draft.now()).target()?;
    let desired = draft
        .input
        .world
        .cluster_version
        .as_ref()?
        .spec
        .desired_update
        .as_ref()?;
    if target.is_asked_by(desired) {
        return None;
    }
    Some(changed_by_someone(&target, desired))
}

fn is_any_paused(draft: &Draft<'_>, index: usize) -> bool {
    pools::members(draft.input.job, index, &draft.input.world.pools)
        .iter()
        .any(|p| matches!(pools::pause(draft.input.job, p), Pause::Ours(_)))
}

/// The running step that keeps a group from being unpaused, with its message.
fn held_by(draft: &Draft<'_>, plan: &Plan, index: usize) -> String {
    let of_group = |name: &str| {
        plan.step(name)
            .is_some_and(|s| s.action.holds_back() == Some(index))
    };
    let running: Vec<_> = draft
        .status
        .steps
        .iter()
        .filter(|s| s.phase == StepPhase::Running)
        .collect();
    let held = running
        .iter()
        .find(|s| of_group(&s.name))
        .or_else(|| running.first());
    held.map_or_else(
        || "steps that were not reached".to_owned(),
        |s| format!("{} ({})", s.name, s.message.as_deref().unwrap_or("no message")),
    )
}

/// Done beats Failed: the cluster is done, and only the record lags behind because nobody could look before.
fn is_about_to_succeed(draft: &mut Draft<'_>) -> bool {
    let (world, now) = (draft.input.world, draft.now());
    let recently = now.saturating_sub(RECORDING).unwrap_or(Timestamp::MIN);
    let progressed = draft
        .status
        .steps
        .iter()
        .any(|s| s.finished_at.as_ref().is_some_and(|t| t.0 >= recently));
    let done = draft.scene(now).control_plane_done()
        && world.pools.iter().all(|p| pools::unfinished(world, p).is_none());
    if progressed && done {
        draft.wake_at(now.saturating_add(RECORDING).unwrap_or(Timestamp::MAX));
    }
    progressed && done
}

/// `upgradeTimeout`, counted from `startAfter`; judged after everything else, so Done beats Failed.
fn deadline(draft: &mut Draft<'_>) {
    let limit = draft.input.job.spec.upgrade_deadline();
    draft.wake_at(limit);
    if draft.now() < limit || is_about_to_succeed(draft) {
        return;
    }
    let took = limit.duration_since(draft.input.job.spec.start_after.0);
    let at: Vec<String> = draft
        .status
        .steps
        .iter()
        .filter(|s| s.phase == StepPhase::Running)
        .map(|s| format!("{} ({})", s.name, s.message.as_deref().unwrap_or("no message")))
        .collect();
    let at = if at.is_empty() {
        draft.status.message.clone().unwrap_or_default()
    } else {
        format!("was at {}", at.join("; "))
    };
    draft.fail(
        reasons::TIMED_OUT,
        format!("not done {} after startAfter; {at}", duration::format(took)),
    );
}
