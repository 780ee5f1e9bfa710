//! The cluster-version operator: ClusterVersion status and the ClusterOperators, one after the other.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{
    Context, MACHINE_CONFIG, SINCE, Step, UPDATING_TO, annotate, annotation, conditions, instant,
    machine_config_operator, releases,
    releases::{Wanted, identity},
};
use crate::openshift::{
    cluster_operator::{ClusterOperator, OperandVersion},
    cluster_version::{ClusterVersion, ClusterVersionStatus, History, Release},
    condition,
};

/// Manifests of a release: what "D of T done" counts.
const MANIFESTS: u32 = 901;
/// How many of them are applied before the turn of the machine-config operator.
const BEFORE_MACHINE_CONFIG: u32 = 757;
/// Progress is told in steps of this fraction of the control plane's duration, so that a status is not written for
/// every millisecond that passes.
const PROGRESS_STEPS: u32 = 40;
/// ClusterOperators in the order of their run levels; unknown ones come after these, machine-config last.
pub const ORDER: [&str; 5] = [
    "etcd",
    "kube-apiserver",
    "authentication",
    "ingress",
    "monitoring",
];
/// Longest history that is kept.
const MAX_HISTORY: usize = 100;

/// How far the control plane is.
struct Progress {
    /// Manifests applied.
    done: u32,
    /// Operators that are waited for; empty = everything is at the target.
    waiting: Vec<String>,
}

/// One reconciliation.
pub(super) fn sync(context: Context<'_>, step: &mut Step) {
    let Some(cluster_version) = &context.cluster.cluster_version else {
        return;
    };
    let mut status = cluster_version.status.clone().unwrap_or_default();
    if status.history.is_empty() {
        // The initial status is not written yet.
        return;
    }
    status.observed_generation = cluster_version.metadata.generation.unwrap_or_default();
    let invalid = accept(context, cluster_version, &mut status, step);
    let target = status.history.first().cloned();
    if let Some(target) = target {
        let progress = roll_out(context, &target, step);
        report(
            context,
            &target,
            progress.as_ref(),
            invalid.as_deref(),
            &mut status,
        );
    }
    let channel = cluster_version.spec.channel.as_deref().unwrap_or_default();
    let current = status.desired.version.clone();
    releases::retrieve_updates(channel, &current, context.faults, &mut status, context.now);
    let new = ClusterVersion {
        status: Some(status),
        ..cluster_version.clone()
    };
    step.update(cluster_version, &new);
}

/// Decides on `spec.desiredUpdate`; returns the validation error if there is one.
fn accept(
    context: Context<'_>,
    cluster_version: &ClusterVersion,
    status: &mut ClusterVersionStatus,
    step: &mut Step,
) -> Option<String> {
    let now = context.now;
    let installed = status.desired.clone();
    let release = match releases::wanted(cluster_version, status) {
        Wanted::Nothing => installed.clone(),
        Wanted::Release(release) => release,
        Wanted::Invalid(problem) => {
            let message = format!("The cluster version is invalid: {problem}");
            let all = &mut status.conditions;
            conditions::set(all, "Invalid", "True", "InvalidClusterVersion", &message, now);
            loaded(status, &installed, now);
            return Some(message);
        }
    };
    conditions::remove(&mut status.conditions, "Invalid");
    let same = release.version == installed.version && release.image == installed.image;
    if same {
        loaded(status, &installed, now);
        return None;
    }
    if context.faults.hold.control_plane || !is_retrieved(context, &release, status, step) {
        return None;
    }
    let update = cluster_version.spec.desired_update.as_ref();
    let force = update
        .and_then(|u| u.other.get("force"))
        .and_then(serde_json::Value::as_bool);
    if let Err(refusal) = releases::verify(&release, force.unwrap_or(false), status, context.faults) {
        let all = &mut status.conditions;
        conditions::set(
            all,
            "ReleaseAccepted",
            "False",
            &refusal.reason,
            &refusal.message,
            now,
        );
        return None;
    }
    loaded(status, &release, now);
    begin(status, release, now);
    None
}

fn loaded(status: &mut ClusterVersionStatus, release: &Release, now: Timestamp) {
    let message = format!("Payload loaded {} architecture=\"amd64\"", identity(release));
    conditions::set(
        &mut status.conditions,
        "ReleaseAccepted",
        "True",
        "PayloadLoaded",
        &message,
        now,
    );
}

/// Retrieving takes a while; a release that was refused before has been retrieved.
fn is_retrieved(
    context: Context<'_>,
    release: &Release,
    status: &mut ClusterVersionStatus,
    step: &mut Step,
) -> bool {
    let message = format!("Retrieving and verifying payload {}", identity(release));
    let accepted = condition(&status.conditions, "ReleaseAccepted");
    let text = accepted.and_then(|c| c.message.as_deref()).unwrap_or_default();
    let since = accepted
        .and_then(|c| c.last_transition_time.as_ref())
        .map(|t| t.0);
    match accepted.map(|c| c.status.as_str()) {
        Some("False") if text.contains(&identity(release)) => true,
        Some("Unknown") if text == message => step.has_passed(
            since.unwrap_or(context.now),
            context.settings.retrieve,
            context.now,
        ),
        Some(_) | None => {
            // A new retrieval starts its own clock, even if one was under way for another release.
            conditions::remove(&mut status.conditions, "ReleaseAccepted");
            let all = &mut status.conditions;
            conditions::set(
                all,
                "ReleaseAccepted",
                "Unknown",
                "RetrievePayload",
                &message,
                context.now,
            );
            step.has_passed(context.now, context.settings.retrieve, context.now)
        }
    }
}

fn begin(status: &mut ClusterVersionStatus, release: Release, now: Timestamp) {
    if let Some(last) = status.history.first_mut()
        && last.completion_time.is_none()
    {
        last.completion_time = Some(conditions::time(now));
    }
    let entry = History {
        state: "Partial".to_owned(),
        started_time: conditions::time(now),
        completion_time: None,
        version: release.version.clone(),
        image: release.image.clone(),
        verified: true,
    };
    status.history.insert(0, entry);
    status.history.truncate(MAX_HISTORY);
    status.desired = release;
}

/// Sets Available, Progressing, Failing and Upgradeable, and completes the history.
fn report(
    context: Context<'_>,
    target: &History,
    progress: Option<&Progress>,
    invalid: Option<&str>,
    status: &mut ClusterVersionStatus,
) {
    let (now, version) = (context.now, &target.version);
    if progress.is_none()
        && let Some(newest) = status.history.first_mut()
        && !newest.is_completed()
    {
        "Completed".clone_into(&mut newest.state);
        newest.completion_time = Some(conditions::time(now));
    }
    let all = &mut status.conditions;
    if progress.is_none() {
        conditions::set(
            all,
            "Available",
            "True",
            "",
            &format!("Done applying {version}"),
            now,
        );
    }
    let failing = context.faults.failing.as_ref();
    // A slow operator is not a failure, and does not change the text of Progressing.
    let is_slow = failing.is_some_and(|f| f.reason == "SlowClusterOperator");
    match failing {
        Some(f) => {
            let value = if is_slow { "Unknown" } else { "True" };
            conditions::set(all, "Failing", value, &f.reason, &f.message, now);
        }
        None => conditions::set(all, "Failing", "False", "", "", now),
    }
    let failing = failing.filter(|_| !is_slow);
    let reason = match (failing, invalid) {
        (Some(f), _) => f.reason.as_str(),
        (None, Some(_)) => "InvalidClusterVersion",
        (None, None) => "",
    };
    let message = match (progress, failing, invalid) {
        (None, Some(f), _) => format!("Error while reconciling {version}: {}", f.message),
        (None, None, Some(_)) => format!("Stopped at {version}: the cluster version is invalid"),
        (None, None, None) => format!("Cluster version is {version}"),
        (Some(_), Some(f), _) => format!("Unable to apply {version}: {}", f.message),
        (Some(_), None, Some(_)) => format!("Reconciling {version}: the cluster version is invalid"),
        (Some(p), None, None) => working_towards(version, p),
    };
    conditions::set(
        all,
        "Progressing",
        conditions::truth(progress.is_some()),
        reason,
        &message,
        now,
    );
    match &context.faults.not_upgradeable {
        Some(f) => conditions::set(all, "Upgradeable", "False", &f.reason, &f.message, now),
        None => conditions::remove(all, "Upgradeable"),
    }
}

fn working_towards(version: &str, progress: &Progress) -> String {
    let Progress { done, waiting } = progress;
    if *done == 0 {
        return format!("Working towards {version}");
    }
    let percent = done * 100 / MANIFESTS;
    let waiting = if waiting.is_empty() {
        String::new()
    } else {
        format!(", waiting on {}", waiting.join(", "))
    };
    format!("Working towards {version}: {done} of {MANIFESTS} done ({percent}% complete){waiting}")
}

/// Lets the ClusterOperators reach the target one by one; `None` = the release is applied.
fn roll_out(context: Context<'_>, target: &History, step: &mut Step) -> Option<Progress> {
    let operators = in_order(&context.cluster.operators);
    let mut current = None;
    for (index, operator) in operators.iter().copied().enumerate() {
        let is_current = current.is_none() && !target.is_completed() && !is_at(context, operator, target);
        let mut new = operator.clone();
        if is_current {
            let turn = Turn::of(context, operator, index, operators.len());
            current = Some(turn.told());
            advance(context, target, &turn, operator, &mut new, step);
        }
        describe(context, target, &mut new);
        step.update(operator, &new);
    }
    if target.is_completed() {
        return None;
    }
    let waiting = operators
        .iter()
        .filter(|o| !is_at(context, o, target))
        .map(|o| o.name_any());
    current.map(|done| Progress {
        done,
        waiting: waiting.take(1).collect(),
    })
}

fn in_order(operators: &[ClusterOperator]) -> Vec<&ClusterOperator> {
    let mut all: Vec<_> = operators.iter().collect();
    all.sort_by_key(|o| {
        let name = o.name_any();
        let known = ORDER.iter().position(|n| *n == name).unwrap_or(ORDER.len());
        (name == MACHINE_CONFIG, known, name)
    });
    all
}

/// At the target, available and not degraded: the cluster-version operator waits for all three.
fn is_at(context: Context<'_>, operator: &ClusterOperator, target: &History) -> bool {
    let name = operator.name_any();
    operator.operator_version() == Some(&target.version)
        && !context.faults.degraded_operators.contains_key(&name)
        && !context.faults.unavailable_operators.contains_key(&name)
}

/// One operator's part of the roll-out, in manifests.
pub(super) struct Turn {
    from: u32,
    to: u32,
    /// Manifests applied, `from..=to`; never past a stall.
    done: u32,
    duration: SignedDuration,
}

impl Turn {
    fn of(context: Context<'_>, operator: &ClusterOperator, index: usize, count: usize) -> Self {
        let others = u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX).max(1);
        let position = u32::try_from(index).unwrap_or(u32::MAX).min(others);
        let (from, to) = if operator.name_any() == MACHINE_CONFIG {
            (BEFORE_MACHINE_CONFIG, MANIFESTS)
        } else {
            let end = |n: u32| (BEFORE_MACHINE_CONFIG * n / others).min(MANIFESTS);
            (end(position), end(position + 1))
        };
        let duration = part(context.settings.control_plane, to.saturating_sub(from), MANIFESTS);
        let elapsed =
            instant(operator, SINCE).map_or(SignedDuration::ZERO, |t| context.now.duration_since(t));
        let tick = tick(context);
        let ticks = elapsed.max(SignedDuration::ZERO).as_nanos() / tick.as_nanos();
        let passed = if elapsed >= duration {
            to
        } else {
            // How many manifests go into the ticks that have passed.
            let nanos = ticks * tick.as_nanos() * i128::from(to - from) / duration.as_nanos();
            from + u32::try_from(nanos).unwrap_or_default()
        };
        let stall = stall(context).unwrap_or(MANIFESTS);
        Self {
            from,
            to,
            done: passed.min(stall).clamp(from, to),
            duration,
        }
    }

    /// The turn of the machine-config operator, for whoever else needs to know how far it is.
    pub(super) fn of_machine_config(context: Context<'_>, operator: &ClusterOperator) -> Self {
        let count = context.cluster.operators.len();
        Self::of(context, operator, count.saturating_sub(1), count)
    }

    /// Whether half of it is done.
    pub(super) fn is_half_done(&self) -> bool {
        self.done >= self.from.midpoint(self.to)
    }

    /// What is told: never all, because the release is not applied yet.
    fn told(&self) -> u32 {
        self.done.min(MANIFESTS - 1)
    }
}

/// `whole * numerator / denominator`.
fn part(whole: SignedDuration, numerator: u32, denominator: u32) -> SignedDuration {
    let nanos = whole.as_nanos() * i128::from(numerator) / i128::from(denominator.max(1));
    SignedDuration::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
}

fn tick(context: Context<'_>) -> SignedDuration {
    part(context.settings.control_plane, 1, PROGRESS_STEPS).max(SignedDuration::from_millis(1))
}

/// The number of manifests at which the roll-out stalls, so that the told percentage is the wanted one.
fn stall(context: Context<'_>) -> Option<u32> {
    let percent = u32::from(context.faults.stall_at?);
    Some((percent * MANIFESTS).div_ceil(100))
}

/// Starts the turn of an operator, or ends it.
fn advance(
    context: Context<'_>,
    target: &History,
    turn: &Turn,
    old: &ClusterOperator,
    new: &mut ClusterOperator,
    step: &mut Step,
) {
    let faults = context.faults;
    if faults.hold.control_plane {
        return;
    }
    if annotation(old, UPDATING_TO) != target.version {
        if stall(context).is_none_or(|at| at > turn.from) {
            annotate(new, UPDATING_TO, &target.version);
            annotate(new, SINCE, context.now.to_string());
        }
        return;
    }
    let started = instant(old, SINCE).unwrap_or(context.now);
    if !step.has_passed(started, turn.duration, context.now) {
        step.wake(next_tick(context, started));
        return;
    }
    let name = old.name_any();
    let is_sick =
        faults.degraded_operators.contains_key(&name) || faults.unavailable_operators.contains_key(&name);
    let has_pools = name != MACHINE_CONFIG
        || machine_config_operator::unfinished_required_pool(context.cluster, &target.version).is_none();
    if turn.done == turn.to && !is_sick && has_pools {
        set_version(new, &target.version);
    }
}

/// The next instant at which the told progress changes.
fn next_tick(context: Context<'_>, started: Timestamp) -> Timestamp {
    let (tick, elapsed) = (tick(context), context.now.duration_since(started));
    let passed = elapsed
        .as_nanos()
        .checked_rem_euclid(tick.as_nanos())
        .unwrap_or(0);
    let rest = tick.as_nanos() - passed;
    super::later(
        context.now,
        SignedDuration::from_nanos(i64::try_from(rest).unwrap_or(i64::MAX)),
    )
}

fn set_version(operator: &mut ClusterOperator, version: &str) {
    let status = operator.status.get_or_insert_default();
    status.versions.retain(|v| v.name != "operator");
    let operand = OperandVersion {
        name: "operator".to_owned(),
        version: version.to_owned(),
    };
    status.versions.insert(0, operand);
}

/// The conditions of a ClusterOperator.
fn describe(context: Context<'_>, target: &History, operator: &mut ClusterOperator) {
    let name = operator.name_any();
    let (now, faults) = (context.now, context.faults);
    let version = operator.operator_version().unwrap_or_default().to_owned();
    let is_updating = annotation(operator, UPDATING_TO) == target.version && version != target.version;
    let pool = (name == MACHINE_CONFIG && is_updating)
        .then(|| machine_config_operator::unfinished_required_pool(context.cluster, &target.version))
        .flatten();
    let progressing = match pool {
        _ if !is_updating => format!("All is well at {version}"),
        None => format!("Working towards {}", target.version),
        Some(problem) => format!("Working towards {}: {problem}", target.version),
    };
    let all = &mut operator.status.get_or_insert_default().conditions;
    match faults.unavailable_operators.get(&name) {
        Some(f) => conditions::set(all, "Available", "False", &f.reason, &f.message, now),
        None => conditions::set(
            all,
            "Available",
            "True",
            "AsExpected",
            &format!("{name} is available"),
            now,
        ),
    }
    let reason = if is_updating { "Updating" } else { "AsExpected" };
    conditions::set(
        all,
        "Progressing",
        conditions::truth(is_updating),
        reason,
        &progressing,
        now,
    );
    match faults.degraded_operators.get(&name) {
        Some(f) => conditions::set(all, "Degraded", "True", &f.reason, &f.message, now),
        None => conditions::set(all, "Degraded", "False", "AsExpected", "", now),
    }
    conditions::set(all, "Upgradeable", "True", "AsExpected", "", now);
}
