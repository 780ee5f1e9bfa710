//! A job that has not started: the start window, the checks of design 5, lock, plan.

use std::borrow::Cow;

use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    EngineState, Stage, attempt, create_hooks, draft::Draft, held, judged_engine, lock, own_template,
    passed_over, runnable,
};
use crate::{
    api::{
        UpgradeJob,
        conditions::{self, reasons, types},
        upgrade_job::JobPhase,
        validation,
    },
    engine::run_name,
    openshift,
    outside::Hindrance,
    overlay, pinning,
    plan::build,
    target::Target,
    text,
    unreadable::{Kind, Unreadable},
};

/// How long a due job lets an earlier one go first.
const PATIENCE: jiff::SignedDuration = jiff::SignedDuration::from_mins(2);

/// Why a due job does not start; the reason of `Expired` if that lasts until `startBefore`.
pub(super) struct Obstacle {
    pub reason: Cow<'static, str>,
    pub message: String,
}

impl Obstacle {
    pub fn new(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
        }
    }
}

pub(super) fn decide(draft: &mut Draft<'_>) {
    draft.status.phase = Some(JobPhase::Pending);
    let spec = &draft.input.job.spec;
    let (start, limit) = (spec.start_after.0, spec.start_before.0);
    draft.wake_at(start);
    draft.wake_at(limit);

    let invalid = check_valid(draft);
    let skew = clock_skew(draft);
    let now = draft.now();
    if now >= start
        && skew.is_none()
        && let Some(why) = passed_over::why(draft)
    {
        return draft.succeed(JobPhase::Skipped, reasons::SKIPPED, why);
    }
    let known = invalid.is_some() || skew.is_some() || now >= limit || {
        let judged = judged_engine::forget_other(draft);
        // Both, so that all that has to be read is read at once.
        let all = [runnable::check(draft, judged), own_template::check(draft)];
        judged_engine::remember(draft);
        all.into_iter().all(|known| known)
    };
    if draft.status.finished_at.is_some() {
        return;
    }
    let create = if invalid.is_none() && skew.is_none() && known {
        create_hooks::drive_runs(draft)
    } else {
        None
    };
    if draft.status.finished_at.is_some() {
        return;
    }
    let announced = announce(draft);
    let as_pinned = config_invalid(draft);
    let unreadable = unreadable(draft);
    let invalid = skew.or(invalid);
    if now < start {
        let when = text::time(start, draft.input.settings.zone());
        let message = invalid.map_or_else(|| format!("starts at {when}"), |problem| problem.message);
        let all = [Some(message), announced, as_pinned, unreadable.map(|o| o.message)];
        draft.status.message = Some(all.into_iter().flatten().collect::<Vec<_>>().join("; "));
        return;
    }
    let obstacle = invalid.or(unreadable).or(create).or_else(|| obstacle(draft));
    if now >= limit {
        return expire(draft, obstacle);
    }
    match obstacle {
        Some(obstacle) => wait(draft, &obstacle),
        // Decided again as soon as that is read.
        None if !known => {}
        None => start_now(draft, as_pinned.as_deref()),
    }
}

/// The config was edited after the pin, and cannot be acted upon: whether it still wants this job, it does not say. So the
/// job, which has all it needs, goes on as it was pinned, and says so.
fn config_invalid(draft: &mut Draft<'_>) -> Option<String> {
    let input = draft.input;
    let config = passed_over::config_of(draft)?;
    let problems = pinning::problems(config, input.world, &input.settings.zones)?;
    let message = format!(
        "UpgradeConfig {} is invalid now ({problems}), so this job goes on as it was pinned; delete it if it is not to run",
        config.name_any()
    );
    let before = draft.status.message.as_deref();
    if before.is_none_or(|before| !before.contains(&message)) {
        draft.notice(true, reasons::CONFIG_INVALID, message.clone());
    }
    Some(message)
}

/// A change of the channel since the job was made, and until its start, is said ahead.
fn announce(draft: &mut Draft<'_>) -> Option<String> {
    let input = draft.input;
    let made = input.job.metadata.creation_timestamp.as_ref()?.0;
    let Some(change) = overlay::channel_change(input.world, made, input.job.spec.start_after.0) else {
        if conditions::get(&draft.status.conditions, types::CHANNEL_CHANGE_AHEAD).is_some() {
            let message = "no overlay changes the channel before this job starts";
            draft.condition(
                types::CHANNEL_CHANGE_AHEAD,
                false,
                reasons::NO_CHANNEL_CHANGE,
                message,
            );
        }
        return None;
    };
    let mut message = change.describe(input.settings.zone(), input.now);
    let version = input
        .job
        .spec
        .desired_version
        .as_ref()
        .and_then(|v| v.version.as_ref());
    if let Some(version) = version {
        message = format!("{message}: the job keeps {version}, which may not be offered any more then");
    }
    if draft.condition(
        types::CHANNEL_CHANGE_AHEAD,
        true,
        reasons::OVERLAY_DUE,
        message.clone(),
    ) {
        draft.notice(true, reasons::OVERLAY_DUE, message.clone());
    }
    Some(message)
}

fn wait(draft: &mut Draft<'_>, obstacle: &Obstacle) {
    let limit = text::time(draft.input.job.spec.start_before.0, draft.input.settings.zone());
    let message = format!(
        "{}; the job is skipped if it cannot start by {limit}",
        obstacle.message
    );
    if draft.status.message.as_deref() != Some(message.as_str()) {
        draft.notice(true, &obstacle.reason, message.clone());
    }
    draft.status.message = Some(message);
    // Whatever is in the way may go without an event that we see.
    let soon = draft
        .now()
        .saturating_add(jiff::SignedDuration::from_secs(30))
        .unwrap_or(Timestamp::MAX);
    draft.wake_at(soon);
}

pub(super) fn expire(draft: &mut Draft<'_>, obstacle: Option<Obstacle>) {
    let limit = text::time(draft.input.job.spec.start_before.0, draft.input.settings.zone());
    // Nothing is in the way now: then it was held until now, or nobody was there to start it.
    let held = held::until_now(draft).map(|(reason, message)| Obstacle::new(reason, message));
    let Obstacle { reason, message } = obstacle.or(held).unwrap_or_else(|| {
        Obstacle::new(
            reasons::OPERATOR_DOWN,
            "the operator was not running, or could not reach the API server, in the start window",
        )
    });
    let message = format!("Job could not be started before {limit}: {message}");
    draft.condition(types::EXPIRED, true, &reason, message.clone());
    draft.succeed(JobPhase::Skipped, reasons::SKIPPED, message);
}

/// Nothing is started by a clock that may be wrong.
fn clock_skew(draft: &Draft<'_>) -> Option<Obstacle> {
    let Hindrance { reason, message } = draft.input.world.outside.clock_skew()?;
    Some(Obstacle::new(reason, message))
}

fn check_valid(draft: &mut Draft<'_>) -> Option<Obstacle> {
    if let Some(unsupported) = unsupported_topology(draft) {
        return Some(unsupported);
    }
    let mut problems: Vec<String> = validation::upgrade_job(draft.input.job, &draft.input.world.pools)
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut unknown = None;
    if let (Some(desired), Some(cluster)) = (
        &draft.input.job.spec.desired_version,
        &draft.input.world.cluster_version,
    ) && problems.is_empty()
        && Target::of(draft.input.job, cluster).is_none()
    {
        // Unknown is not none: only a list that is true can say that there is no such release.
        if openshift::is_true(cluster.conditions(), "RetrievedUpdates") && cluster.is_observed() {
            problems.push(
                "spec.desiredVersion: version and image cannot be completed from availableUpdates, conditionalUpdates or \
                 the history of the ClusterVersion; give both"
                    .to_owned(),
            );
        } else {
            let wanted = desired.version.as_ref().or(desired.image.as_ref());
            unknown = Some(Obstacle::new(
                reasons::UPDATES_UNKNOWN,
                format!(
                    "the cluster does not know its updates, so {} cannot be completed to version and image: {}",
                    wanted.map_or("desiredVersion", String::as_str),
                    cluster.message_of("RetrievedUpdates")
                ),
            ));
        }
    }
    match draft.judge(&problems) {
        Some(message) => Some(Obstacle::new(reasons::INVALID, message)),
        None => unknown,
    }
}

/// Such a cluster is upgraded from outside, or not at all.
fn unsupported_topology(draft: &mut Draft<'_>) -> Option<Obstacle> {
    pinning::unsupported_topology(draft.input.world)?;
    let message = "the cluster has a hosted control plane or no MachineConfigPools: it is not upgraded by this operator";
    if draft.condition(types::VALID, false, reasons::UNSUPPORTED_TOPOLOGY, message) {
        draft.notice(true, reasons::UNSUPPORTED_TOPOLOGY, message);
    }
    Some(Obstacle::new(reasons::UNSUPPORTED_TOPOLOGY, message))
}

/// What cannot be read and may forbid this upgrade: any window, any hook, and the config that made the job (which may be
/// suspended, or have no such run any more). To wait costs a run at most; to start may break what they protect.
fn unreadable(draft: &Draft<'_>) -> Option<Obstacle> {
    let world = draft.input.world;
    let is_mine = |config: &&Unreadable| pinning::job::is_of(draft.input.job, &config.metadata);
    let config = world.unreadable_of(Kind::UpgradeConfig).find(is_mine);
    let object = world
        .unreadable_of(Kind::UpgradeSuspensionWindow)
        .next()
        .or(config)
        .or_else(|| world.unreadable_of(Kind::UpgradeJobHook).next())?;
    let (kind, name) = (object.kind.resource().kind, object.name());
    let message = format!(
        "{kind} {name} cannot be read ({}) and may forbid this upgrade: see its condition Valid, and mend or delete it",
        object.problem
    );
    Some(Obstacle::new(reasons::UNREADABLE, message))
}

/// What keeps a due job from starting.
fn obstacle(draft: &mut Draft<'_>) -> Option<Obstacle> {
    let world = draft.input.world;
    if let EngineState::Missing(why) = draft.input.engine {
        return Some(Obstacle::new("EngineMissing", why.clone()));
    }
    if let Some(other) = earlier(draft) {
        return Some(Obstacle::new(
            reasons::LOCK_HELD,
            format!("upgrade job {} is due earlier and goes first", other.name_any()),
        ));
    }
    match lock::state(world, draft.input.job) {
        lock::Lock::Ours | lock::Lock::Free => None,
        lock::Lock::Unknown => Some(Obstacle::new(
            "ClusterVersionUnknown",
            "the ClusterVersion is not known",
        )),
        lock::Lock::Held(by) => Some(Obstacle::new(
            reasons::LOCK_HELD,
            format!("upgrade job {by} has the lock"),
        )),
    }
}

/// Another due job that goes first: by (startAfter, creationTimestamp, name).
fn earlier<'a>(draft: &mut Draft<'a>) -> Option<&'a UpgradeJob> {
    let key = |j: &UpgradeJob| {
        (
            j.spec.start_after.0,
            j.metadata.creation_timestamp.as_ref().map(|t| t.0),
            j.name_any(),
        )
    };
    let now = draft.now();
    let can_start = |j: &UpgradeJob| {
        let all = j.status.as_ref().map_or(&[][..], |s| s.conditions.as_slice());
        let valid = conditions::get(all, types::VALID).is_none_or(|c| c.status == "True");
        Stage::of(j) == Stage::Pending && valid && j.spec.start_after.0 <= now && now < j.spec.start_before.0
    };
    // A job that is due earlier and cannot start must not take this one's window with it.
    let patience = draft
        .input
        .job
        .spec
        .start_after
        .0
        .saturating_add(PATIENCE)
        .unwrap_or(Timestamp::MAX);
    if now >= patience {
        return None;
    }
    draft.wake_at(patience);
    let mine = key(draft.input.job);
    draft
        .input
        .world
        .jobs
        .iter()
        .filter(|j| can_start(j) && key(j) < mine)
        .min_by_key(|j| key(j))
}

/// Finalizer, lock, then plan and `Started=True`, one after the other: each is on the cluster before the next.
fn start_now(draft: &mut Draft<'_>, note: Option<&str>) {
    if !lock::secure(draft) {
        return;
    }
    let plan = build::main_plan(
        draft.input.job,
        &draft.input.world.hooks,
        &draft.input.world.pools,
        1,
    );
    if !draft.store_plan(&plan) {
        return;
    }
    for step in &plan.steps {
        draft.step_mut(step);
    }
    let when = text::time(draft.now(), draft.input.settings.zone());
    let note = note.map_or_else(String::new, |note| format!("; {note}"));
    draft.status.started_at = Some(draft.time());
    draft.condition(
        types::STARTED,
        true,
        reasons::STARTED,
        format!("Upgrade started at {when}{note}"),
    );
    draft.status.message = Some("waiting for the workflow engine".to_owned());
    draft.status.workflow = None;
    let name = run_name(draft.input.job, plan.run);
    attempt::follow(draft, name);
    draft.notice(
        false,
        reasons::STARTED,
        format!("upgrade started, {} steps{note}", plan.steps.len()),
    );
}
