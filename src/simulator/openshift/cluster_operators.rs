//! The ClusterOperators, which reach a release one after the other.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{
    Context, MACHINE_CONFIG, Patience, SINCE, Step, UPDATING_TO, annotate, annotation, conditions, instant,
    later, machine_config_operator,
};
use crate::openshift::{
    cluster_operator::{ClusterOperator, OperandVersion},
    cluster_version::History,
    condition,
};

/// Manifests of a release: what "D of T done" counts.
pub(super) const MANIFESTS: u32 = 901;
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

/// How far the control plane is.
pub(super) struct Progress {
    /// Manifests applied.
    pub(super) done: u32,
    /// The operator that is waited for; `None` = everything is at the target.
    pub(super) waiting: Option<Waiting>,
}

/// The operator that an update waits for.
pub(super) struct Waiting {
    pub(super) operator: String,
    pub(super) how: Patient,
}

/// How the cluster-version operator takes the wait (its `sync_worker.go` and `status.go`).
pub(super) enum Patient {
    /// As it should be.
    Calm,
    /// The operator is degraded, and that is a failure only after so long.
    UpTo(SignedDuration),
    /// It has taken longer than this: Failing=Unknown.
    Slow(SignedDuration),
    /// The upgrade fails, for this reason.
    Failing(&'static str, String),
}

/// Lets the ClusterOperators reach the target one by one; `None` = the release is applied.
pub(super) fn roll_out(context: Context<'_>, target: &History, step: &mut Step) -> Option<Progress> {
    let operators = in_order(&context.cluster.operators);
    let mut current = None;
    for (index, operator) in operators.iter().copied().enumerate() {
        let is_current = current.is_none() && !target.is_completed() && !is_at(context, operator, target);
        let mut new = operator.clone();
        if is_current {
            let turn = Turn::of(context, operator, &target.version, index, operators.len());
            current = Some(turn.told());
            advance(context, target, &turn, operator, &mut new, step);
        }
        describe(context, target, &mut new);
        step.update(operator, &new);
    }
    if target.is_completed() {
        return None;
    }
    let waiting = operators.iter().find(|o| !is_at(context, o, target));
    let waiting = waiting.map(|o| Waiting {
        operator: o.name_any(),
        how: patience_with(context, o, step),
    });
    current.map(|done| Progress { done, waiting })
}

/// How the wait for this operator is taken; asks to be woken when that changes.
fn patience_with(context: Context<'_>, operator: &ClusterOperator, step: &mut Step) -> Patient {
    let (Some(patience), name) = (context.settings.patience, operator.name_any()) else {
        return Patient::Calm;
    };
    let Patience {
        operator: slow,
        machine_config,
        degraded,
        ..
    } = patience;
    if context.faults.unavailable_operators.contains_key(&name) {
        let message = format!("Cluster operator {name} is not available");
        return Patient::Failing("ClusterOperatorNotAvailable", message);
    }
    let started = instant(operator, SINCE).unwrap_or(context.now);
    if context.faults.degraded_operators.contains_key(&name) {
        let told = condition(operator.conditions(), "Degraded").filter(|c| c.status == "True");
        let told = told.and_then(|c| c.last_transition_time.as_ref()).map(|t| t.0);
        // An operator that had reached the target before is waited for since it became degraded.
        if step.has_passed(started.max(told.unwrap_or(context.now)), degraded, context.now) {
            let message = format!("Cluster operator {name} is degraded");
            return Patient::Failing("ClusterOperatorDegraded", message);
        }
        return Patient::UpTo(degraded);
    }
    let limit = if name == MACHINE_CONFIG {
        machine_config
    } else {
        slow
    };
    if step.has_passed(started, limit, context.now) {
        Patient::Slow(limit)
    } else {
        Patient::Calm
    }
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
    fn of(
        context: Context<'_>,
        operator: &ClusterOperator,
        version: &str,
        index: usize,
        count: usize,
    ) -> Self {
        let others = u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX).max(1);
        let position = u32::try_from(index).unwrap_or(u32::MAX).min(others);
        let (from, to) = if operator.name_any() == MACHINE_CONFIG {
            (BEFORE_MACHINE_CONFIG, MANIFESTS)
        } else {
            let end = |n: u32| (BEFORE_MACHINE_CONFIG * n / others).min(MANIFESTS);
            (end(position), end(position + 1))
        };
        let slower = context.faults.slow_operators.get(&operator.name_any());
        let whole = control_plane(context, version);
        let duration = part(whole, to.saturating_sub(from), MANIFESTS)
            .saturating_add(slower.copied().unwrap_or_default());
        let elapsed =
            instant(operator, SINCE).map_or(SignedDuration::ZERO, |t| context.now.duration_since(t));
        let tick = tick(whole);
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

    /// The present turn of an operator, for whoever else needs to know how far it is; `None` if it has none.
    pub(super) fn present(context: Context<'_>, name: &str) -> Option<Self> {
        let operators = in_order(&context.cluster.operators);
        let index = operators.iter().position(|o| o.name_any() == name)?;
        let operator = operators.get(index)?;
        let version = annotation(*operator, UPDATING_TO);
        let is_updating = !version.is_empty() && operator.operator_version() != Some(version);
        is_updating.then(|| Self::of(context, operator, version, index, operators.len()))
    }

    /// How long it takes, from annotation [`SINCE`] on.
    pub(super) fn duration(&self) -> SignedDuration {
        self.duration
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

/// How long all operators together take for this release.
fn control_plane(context: Context<'_>, version: &str) -> SignedDuration {
    let settings = context.settings;
    settings
        .control_plane
        .draw(settings.seed, &["control plane", version])
}

fn tick(whole: SignedDuration) -> SignedDuration {
    part(whole, 1, PROGRESS_STEPS).max(SignedDuration::from_millis(1))
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
        step.wake(next_tick(context, &target.version, started));
        return;
    }
    let name = old.name_any();
    let is_sick = [
        &faults.degraded_operators,
        &faults.unavailable_operators,
        &faults.stuck_operators,
    ]
    .iter()
    .any(|sick| sick.contains_key(&name));
    let has_pools = name != MACHINE_CONFIG
        || machine_config_operator::unfinished_required_pool(context.cluster, &target.version).is_none();
    if turn.done == turn.to && !is_sick && has_pools {
        set_version(new, &target.version);
    }
}

/// The next instant at which the told progress changes.
fn next_tick(context: Context<'_>, version: &str, started: Timestamp) -> Timestamp {
    let tick = tick(control_plane(context, version));
    let elapsed = context.now.duration_since(started);
    let passed = elapsed
        .as_nanos()
        .checked_rem_euclid(tick.as_nanos())
        .unwrap_or(0);
    let rest = tick.as_nanos() - passed;
    later(
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
    let stuck = faults.stuck_operators.get(&name).map(|f| f.message.clone());
    let progressing = match stuck.or(pool) {
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
