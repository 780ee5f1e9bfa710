//! One node's update: Working, cordon, drain, Rebooting, uncordon, Done, as machine-config daemon and drain controller
//! do it together through the node's annotations.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::ResourceExt;

use super::{Context, SINCE, Step, annotate, annotation, conditions, drain, instant};
use crate::openshift::node::{CURRENT_CONFIG, DESIRED_CONFIG, STATE};

/// Annotation: why a node is degraded.
pub const REASON: &str = "machineconfiguration.openshift.io/reason";
/// Annotation: what the daemon wants of the drain controller, `drain-<config>` or `uncordon-<config>`.
pub const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
/// Annotation: what the drain controller did last.
pub const LAST_APPLIED_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";

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

/// Takes the next step of a node's update, if one is due.
pub(super) fn advance(context: Context<'_>, node: &mut Node, step: &mut Step) {
    let now = context.now;
    let desired = annotation(node, DESIRED_CONFIG).to_owned();
    let is_behind = annotation(node, CURRENT_CONFIG) != desired;
    let fault = context.faults.degraded_nodes.get(&node.name_any());
    let since = instant(node, SINCE).unwrap_or(now);
    let drained = annotation(node, LAST_APPLIED_DRAIN).to_owned();
    let state = annotation(node, STATE).to_owned();
    match state.as_str() {
        "Done" if is_behind => {
            annotate(node, STATE, "Working");
            annotate(node, DESIRED_DRAIN, format!("drain-{desired}"));
            annotate(node, SINCE, now.to_string());
        }
        "Working" if is_behind && fault.is_some() => {
            let message = fault.map(|f| format!("{}: {}", f.reason, f.message));
            annotate(node, REASON, message.unwrap_or_default());
            annotate(node, STATE, "Degraded");
        }
        "Degraded" if fault.is_none() => {
            annotate(node, REASON, "");
            annotate(node, STATE, "Working");
        }
        "Working"
            if is_behind
                && drained == format!("drain-{desired}")
                && step.has_passed(since, drain_time(context), now) =>
        {
            annotate(node, STATE, "Rebooting");
            annotate(node, SINCE, now.to_string());
        }
        "Rebooting" if step.has_passed(since, context.settings.node - drain_time(context), now) => {
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

/// The shortest time that a drain takes, also where there is nothing to evict.
fn drain_time(context: Context<'_>) -> SignedDuration {
    context.settings.node / 4
}

/// What the kubelet says: Ready, but for a reboot or a fault, and again every heartbeat.
pub(super) fn report_ready(context: Context<'_>, node: &mut Node, step: &mut Step) {
    let now = conditions::time(context.now);
    let is_rebooting = annotation(node, STATE) == "Rebooting";
    let (status, reason, message) = match context.faults.not_ready_nodes.get(&node.name_any()) {
        _ if is_rebooting => ("False", "KubeletNotReady", "the simulated node reboots"),
        Some(fault) => ("Unknown", "NodeStatusUnknown", fault.message.as_str()),
        None => ("True", "KubeletReady", "kubelet is posting ready status"),
    };
    let old = ready_condition(node).cloned();
    let same = old.as_ref().filter(|c| c.status == status);
    let last_seen = old
        .as_ref()
        .and_then(|c| c.last_heartbeat_time.as_ref())
        .map(|t| t.0);
    let is_stale = status == "True" && is_stale(context, last_seen, step);
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

fn is_stale(context: Context<'_>, last_seen: Option<Timestamp>, step: &mut Step) -> bool {
    let Some(heartbeat) = context.settings.heartbeat else {
        return false;
    };
    let last_seen = last_seen.unwrap_or(Timestamp::MIN);
    step.has_passed(last_seen, heartbeat, context.now)
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
