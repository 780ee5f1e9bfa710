//! One node's update: Working, cordon, drain, Rebooting, uncordon, Done, as machine-config daemon and drain controller
//! do it together through the node's annotations.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::ResourceExt;

use super::{Context, SINCE, Step, annotate, annotation, conditions, drain, durations::Range, instant};
use crate::{
    api::duration,
    openshift::node::{CURRENT_CONFIG, DESIRED_CONFIG, DESIRED_DRAIN, LAST_APPLIED_DRAIN, REASON, STATE},
};

/// Ready, not cordoned, and not in the middle of an update.
pub fn is_available(node: &Node) -> bool {
    let cordoned = node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false);
    is_ready(node) && !cordoned && is_done(node)
}

/// At the configuration it was told to have.
pub fn is_done(node: &Node) -> bool {
    annotation(node, STATE) == "Done" && annotation(node, CURRENT_CONFIG) == annotation(node, DESIRED_CONFIG)
}

/// Its update failed.
pub fn is_degraded(node: &Node) -> bool {
    matches!(annotation(node, STATE), "Degraded" | "Unreconcilable")
}

/// In the middle of a reboot.
pub(super) fn is_rebooting(node: &Node) -> bool {
    annotation(node, STATE) == "Rebooting"
}

/// Condition Ready is True.
pub fn is_ready(node: &Node) -> bool {
    ready_condition(node).is_some_and(|c| c.status == "True")
}

/// Whether the kubelet has reported at all.
pub fn has_condition(node: &Node) -> bool {
    ready_condition(node).is_some()
}

fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    let all = node.status.as_ref()?.conditions.as_ref()?;
    all.iter().find(|c| c.type_ == "Ready")
}

/// A node fresh from its installation.
pub fn install(node: &mut Node, config: &str) {
    annotate(node, CURRENT_CONFIG, config);
    annotate(node, DESIRED_CONFIG, config);
    annotate(node, DESIRED_DRAIN, format!("uncordon-{config}"));
    annotate(node, LAST_APPLIED_DRAIN, format!("uncordon-{config}"));
    annotate(node, REASON, "");
    annotate(node, STATE, "Done");
}

/// Whether there is nothing to be done about a node: it has what it was told to have, is ready, and need not say so again.
/// The rest of this file would find the same, at a greater cost.
pub(super) fn is_at_rest(context: Context<'_>, node: &Node, step: &mut Step) -> bool {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    is_done(node)
        && is_ready(node)
        && annotation(node, DESIRED_DRAIN) == annotation(node, LAST_APPLIED_DRAIN)
        && !context.faults.not_ready_nodes.contains_key(name)
        && !is_stale(context, node, step)
}

/// Takes the next step of a node's update, if one is due.
pub(super) fn advance(context: Context<'_>, node: &mut Node, pool: &str, step: &mut Step) {
    let (now, name) = (context.now, node.name_any());
    let desired = annotation(node, DESIRED_CONFIG).to_owned();
    let is_behind = annotation(node, CURRENT_CONFIG) != desired;
    let since = instant(node, SINCE).unwrap_or(now);
    let drained = annotation(node, LAST_APPLIED_DRAIN).to_owned();
    let state = annotation(node, STATE).to_owned();
    let times = Times::of(context, node, pool);
    // Only a drain that is under way can take too long.
    let drains = is_behind && state != "Done" && drained != format!("drain-{desired}");
    let failure = failure(context, &name, drains.then_some(since), step);
    let is_lost = context.faults.lost_nodes.contains_key(&name);
    match state.as_str() {
        "Done" if is_behind => {
            annotate(node, STATE, "Working");
            annotate(node, DESIRED_DRAIN, format!("drain-{desired}"));
            annotate(node, SINCE, now.to_string());
        }
        "Working" if is_behind && failure.is_some() => {
            annotate(node, REASON, failure.unwrap_or_default());
            annotate(node, STATE, "Degraded");
        }
        "Degraded" if failure.is_none() => {
            annotate(node, REASON, "");
            annotate(node, STATE, "Working");
        }
        "Working"
            if is_behind
                && drained == format!("drain-{desired}")
                && step.has_passed(since, times.drain, now) =>
        {
            annotate(node, STATE, "Rebooting");
            annotate(node, SINCE, now.to_string());
        }
        "Rebooting" if !is_lost && step.has_passed(since, times.reboot, now) => {
            annotate(node, CURRENT_CONFIG, &desired);
            annotate(node, STATE, "Working");
            annotate(node, DESIRED_DRAIN, format!("uncordon-{desired}"));
        }
        "Working" if !is_behind && drained == format!("uncordon-{desired}") => {
            annotate(node, STATE, "Done");
            node.annotations_mut().remove(SINCE);
        }
        _ => {}
    }
    // The drain controller answers what was asked before, not what is being asked now.
    if annotation(node, STATE) == state {
        drain::sync(context, node, step);
    }
}

/// Why a node's update does not go on, if it does not: a fault, or a drain that takes too long.
fn failure(
    context: Context<'_>,
    name: &str,
    drains_since: Option<Timestamp>,
    step: &mut Step,
) -> Option<String> {
    if let Some(fault) = context.faults.degraded_nodes.get(name) {
        return Some(format!("{}: {}", fault.reason, fault.message));
    }
    let limit = context.settings.patience?.drain;
    step.has_passed(drains_since?, limit, context.now).then(|| {
        format!(
            "failed to drain node: {name} after {}. Please see machine-config-controller logs for more information",
            duration::format(limit)
        )
    })
}

/// How long the parts of a node's update take.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// At least, also where there is nothing to evict.
    drain: SignedDuration,
    /// Exactly.
    pub(super) reboot: SignedDuration,
}

impl Times {
    pub(super) fn of(context: Context<'_>, node: &Node, pool: &str) -> Self {
        let settings = context.settings;
        let range = settings.node_of_pool.get(pool).unwrap_or(&settings.node);
        let about = [
            "node",
            node.metadata.name.as_deref().unwrap_or_default(),
            annotation(node, DESIRED_CONFIG),
        ];
        let whole = range.draw(settings.seed, &about);
        let drain = whole / 4;
        Self {
            drain,
            reboot: whole - drain,
        }
    }
}

/// What the kubelet says: Ready, but for a reboot or a fault, and again every heartbeat.
pub(super) fn report_ready(context: Context<'_>, node: &mut Node, pool: &str, step: &mut Step) {
    let now = conditions::time(context.now);
    let (faults, name) = (context.faults, node.name_any());
    let is_rebooting = is_rebooting(node);
    let lost = faults.lost_nodes.get(&name).filter(|_| is_rebooting);
    let is_overdue = lost.is_some() && {
        let since = instant(node, SINCE).unwrap_or(context.now);
        step.has_passed(since, Times::of(context, node, pool).reboot, context.now)
    };
    let (status, reason, message) = match (lost, faults.not_ready_nodes.get(&name)) {
        (Some(fault), _) if is_overdue => ("Unknown", "NodeStatusUnknown", fault.message.as_str()),
        _ if is_rebooting => ("False", "KubeletNotReady", "the simulated node reboots"),
        (_, Some(fault)) => ("Unknown", "NodeStatusUnknown", fault.message.as_str()),
        (_, None) => ("True", "KubeletReady", "kubelet is posting ready status"),
    };
    let old = ready_condition(node).cloned();
    let same = old.as_ref().filter(|c| c.status == status);
    let is_stale = status == "True" && is_stale(context, node, step);
    if same.is_some() && !is_stale {
        return;
    }
    let since = same.and_then(|c| c.last_transition_time.clone());
    let condition = NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(since.unwrap_or(now)),
    };
    set_condition(node, condition);
}

/// Whether the kubelet is to say again that it is there. Each at a time of its own: a thousand at once are a flood.
fn is_stale(context: Context<'_>, node: &Node, step: &mut Step) -> bool {
    let settings = context.settings;
    let Some(heartbeat) = settings.heartbeat else {
        return false;
    };
    let last_seen = ready_condition(node).and_then(|c| c.last_heartbeat_time.as_ref());
    let last_seen = last_seen.map_or(Timestamp::MIN, |t| t.0);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let within = Range {
        min: heartbeat / 2,
        max: heartbeat,
    };
    step.has_passed(
        last_seen,
        within.draw(settings.seed, &["heartbeat", name]),
        context.now,
    )
}

fn set_condition(node: &mut Node, condition: NodeCondition) {
    let status = node.status.get_or_insert_default();
    let all = status.conditions.get_or_insert_default();
    match all.iter_mut().find(|c| c.type_ == condition.type_) {
        Some(old) => *old = condition,
        None => all.push(condition),
    }
    // What a scheduler and `kubectl get nodes` want to see.
    let info = status.node_info.get_or_insert_default();
    if info.kubelet_version.is_empty() {
        "v1.31.0+simulated".clone_into(&mut info.kubelet_version);
    }
}
