//! The drain controller: cordons, evicts through the eviction subresource, uncordons.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

use super::{
    Context, EVICTED_AT, Step, annotate, annotation, instant, later,
    write::{PodRef, Write},
};
use crate::openshift::node::{DESIRED_DRAIN, LAST_APPLIED_DRAIN};

/// Does what annotation `desiredDrain` asks for, one step at a time.
pub(super) fn sync(context: Context<'_>, node: &mut Node, step: &mut Step) {
    let wanted = annotation(node, DESIRED_DRAIN).to_owned();
    if wanted.is_empty() || wanted == annotation(node, LAST_APPLIED_DRAIN) {
        return;
    }
    if context.cluster.is_single_node() {
        // There is nowhere to go: neither cordoned nor drained.
        annotate(node, LAST_APPLIED_DRAIN, wanted);
        return;
    }
    let is_drain = wanted.starts_with("drain-");
    let spec = node.spec.get_or_insert_default();
    if spec.unschedulable.unwrap_or(false) != is_drain {
        // Set, not removed: a patch that removes what is gone already would be refused.
        spec.unschedulable = Some(is_drain);
        if is_drain {
            // Evicted in the next step: a pod evicted before the cordon might come right back.
            return;
        }
    }
    let name = node.name_any();
    if is_drain && context.faults.stuck_drains.contains_key(&name) {
        // A budget that allows nothing: the pod stays, and with it the node. When the line goes, so does the pod.
        return;
    }
    let pods: Vec<&Pod> = evictable(context, &name).collect();
    if !is_drain || pods.is_empty() {
        annotate(node, LAST_APPLIED_DRAIN, wanted);
        node.annotations_mut().remove(EVICTED_AT);
        return;
    }
    evict(context, node, &pods, step);
}

fn evict(context: Context<'_>, node: &mut Node, pods: &[&Pod], step: &mut Step) {
    let last = instant(node, EVICTED_AT).unwrap_or(jiff::Timestamp::MIN);
    if !step.has_passed(last, context.settings.evict_retry, context.now) {
        return;
    }
    annotate(node, EVICTED_AT, context.now.to_string());
    step.wake(later(context.now, context.settings.evict_retry));
    let alive = pods.iter().filter(|p| p.metadata.deletion_timestamp.is_none());
    step.writes
        .extend(alive.filter_map(|p| PodRef::of(p)).map(Write::Evict));
}

/// The node's pods, but for those of DaemonSets, mirror pods and finished ones.
fn evictable<'a>(context: Context<'a>, node: &str) -> impl Iterator<Item = &'a Pod> {
    let pods = context.cluster.pods.iter();
    pods.filter(move |pod| {
        let on_node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node);
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        let is_mirror = pod.annotations().contains_key("kubernetes.io/config.mirror");
        let of_daemon_set = pod.owner_references().iter().any(|o| o.kind == "DaemonSet");
        on_node && !matches!(phase, Some("Succeeded" | "Failed")) && !is_mirror && !of_daemon_set
    })
}

impl PodRef {
    /// Reference to a pod; `None` for one without UID.
    pub fn of(pod: &Pod) -> Option<Self> {
        Some(Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid()?,
        })
    }
}
