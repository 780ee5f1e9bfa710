//! What is due: nodes by the age of their drain, pods by what was done to them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt;

use crate::{
    api::{
        GoDuration, NodeForceDrain,
        conditions::{self, reasons, types},
        label_selector::{label_selector_matches, label_selector_problem},
        node_force_drain::{NodeForceDrainStatus, ObservedNodeDrain},
    },
    drain::{is_exempt, is_over},
    openshift::node::NodeView,
};

/// While pods are being deleted from a node, it is looked at this often.
const RE_CHECK: SignedDuration = SignedDuration::from_secs(60);

/// The nodes of a NodeForceDrain.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// The status as it shall be. It is to be written before anything is done: it is the memory of when drains began.
    pub status: NodeForceDrainStatus,
    /// Nodes whose grace period is over.
    pub due: Vec<DueNode>,
    /// When time alone changes that.
    pub wake_at: Option<Timestamp>,
}

/// A node whose grace period is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueNode {
    /// Its name.
    pub name: String,
    /// What is asked for there: it must still be when pods are deleted.
    pub wanted: String,
}

/// A pod to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, a precondition.
    pub uid: String,
    /// Its resourceVersion, a precondition.
    pub revision: String,
    /// How.
    pub stage: Stage,
}

/// How a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// With its own grace period, past its budgets.
    Delete,
    /// Again, with a grace of 1 second: 0 would leave its containers running on the node.
    Terminate,
}

impl NodeForceDrain {
    /// What is wrong with its selectors, beside what only jq can tell.
    fn problem(&self) -> Option<String> {
        let spec = &self.spec;
        let of = |field: &str, problem: Option<String>| problem.map(|p| format!("spec.{field}: {p}"));
        let bad = |d: &GoDuration| d.get().err().map(|e| e.to_string());
        of("nodeSelector", label_selector_problem(&spec.node_selector))
            .or_else(|| {
                of(
                    "namespaceSelector",
                    label_selector_problem(&spec.namespace_selector),
                )
            })
            .or_else(|| of("nodeDrainGracePeriod", bad(&spec.node_drain_grace_period)))
            .or_else(|| {
                of(
                    "podForceDeleteGracePeriod",
                    bad(&spec.pod_force_delete_grace_period),
                )
            })
    }
}

/// Takes note of drains, and tells what is due. `bad_jq`: why the jq expression is none.
pub fn survey(fd: &NodeForceDrain, nodes: &[NodeView], bad_jq: Option<&str>, now: Timestamp) -> Survey {
    let mut status = fd.status.clone().unwrap_or_default();
    status.observed_generation = fd.metadata.generation;
    let problem = fd.problem().or_else(|| bad_jq.map(|p| format!("spec.{p}")));
    let (valid, reason, message) = match &problem {
        Some(problem) => (
            false,
            reasons::INVALID,
            format!("{problem}; until then no pod is deleted"),
        ),
        None => (true, reasons::VALID, "the NodeForceDrain is valid".to_owned()),
    };
    let generation = fd.metadata.generation;
    conditions::set(
        &mut status.conditions,
        types::VALID,
        valid,
        reason,
        message,
        generation,
        now,
    );
    let mut survey = Survey {
        status,
        due: Vec::new(),
        wake_at: None,
    };
    if !valid || fd.metadata.deletion_timestamp.is_some() {
        return survey;
    }
    // Of a node that is gone nothing is remembered.
    let known = &mut survey.status.last_observed_node_drain;
    known.retain(|o| nodes.iter().any(|n| n.name == o.node_name));
    for node in nodes {
        let Some(drain) = &node.drain else { continue };
        if !label_selector_matches(&fd.spec.node_selector, &node.labels) {
            continue;
        }
        let known = &mut survey.status.last_observed_node_drain;
        let since = observed(known, &node.name, &drain.last_applied, now);
        let Some(after) = fd.spec.delete_after() else {
            continue;
        };
        let due = since.saturating_add(after).unwrap_or(Timestamp::MAX);
        let wake = if now < due {
            due
        } else {
            survey.due.push(DueNode {
                name: node.name.clone(),
                wanted: drain.wanted.clone(),
            });
            now.saturating_add(RE_CHECK).unwrap_or(Timestamp::MAX)
        };
        survey.wake_at = Some(survey.wake_at.map_or(wake, |t| t.min(wake)));
    }
    survey
}

/// Since when the node's drain is known; a new one is taken note of.
fn observed(all: &mut Vec<ObservedNodeDrain>, node: &str, id: &str, now: Timestamp) -> Timestamp {
    let new = ObservedNodeDrain {
        node_name: node.to_owned(),
        drain_id: id.to_owned(),
        observed_time: Time(conditions::whole_seconds(now)),
    };
    match all.iter_mut().find(|o| o.node_name == node) {
        Some(known) if known.drain_id == id => known.observed_time.0,
        Some(other) => {
            *other = new;
            now
        }
        None => {
            all.push(new);
            now
        }
    }
}

/// What is to be done about the pods of a node whose grace period is over; those that no selector means are not among them.
/// Also when the next one is due.
pub fn choose(fd: &NodeForceDrain, pods: &[&Pod], now: Timestamp) -> (Vec<Deletion>, Option<Timestamp>) {
    let mut due = Vec::new();
    let mut wake: Option<Timestamp> = None;
    for pod in pods.iter().filter(|p| !is_exempt(p) && !is_over(p)) {
        let stage = match (&pod.metadata.deletion_timestamp, fd.spec.kill_after()) {
            (None, _) => Stage::Delete,
            (Some(_), None) => continue,
            (Some(ends), Some(after)) => {
                let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
                if grace <= 1 {
                    // Told so already, by us or by others: the kubelet or a finalizer keeps it.
                    continue;
                }
                let at = ends
                    .0
                    .saturating_sub(SignedDuration::from_secs(grace))
                    .unwrap_or(ends.0);
                let at = at.saturating_add(after).unwrap_or(Timestamp::MAX);
                if now < at {
                    wake = Some(wake.map_or(at, |t| t.min(at)));
                    continue;
                }
                Stage::Terminate
            }
        };
        let (Some(uid), Some(revision)) = (pod.uid(), pod.resource_version()) else {
            continue;
        };
        due.push(Deletion {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid,
            revision,
            stage,
        });
    }
    due.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    (due, wake)
}
