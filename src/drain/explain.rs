//! What is told of drains that take long.

use std::{collections::BTreeSet, fmt::Write};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{BlockingPod, Drains, Reference, Sight};
use crate::{
    api::{
        blocker::{Blocker, BlockerCause},
        conditions::whole_seconds,
    },
    openshift::node::NodeView,
    text,
};

/// Most entries of `status.blockers`.
pub const MAX_BLOCKERS: usize = 20;
/// Of so many nodes of a pool the pods are read, those that drain longest.
const MAX_NODES: usize = 3;
/// Most pods of a node in a message.
const MAX_SHOWN: usize = 3;
/// Longest reason for not knowing the pods in a message, in characters.
const MAX_TEXT: usize = 200;

/// What is told of the drains of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explained {
    /// For the message of a step; `None` while nothing drains for long.
    pub text: Option<String>,
    /// The pods that are in the way.
    pub findings: Vec<Finding>,
    /// Nodes whose pods are to be read before that can be told.
    pub looks: BTreeSet<String>,
    /// When time alone changes what is told.
    pub wake_at: Option<Timestamp>,
}

/// A pod that is in the way, and what controls it.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// As it is recorded.
    pub blocker: Blocker,
    /// What controls the pod; `None` also for what was found earlier.
    pub controller: Option<Reference>,
}

/// What is known of the drains of a pool's nodes that take longer than `report_after`. `stored`: what the job has on record.
pub fn explain(
    drains: &Drains,
    nodes: &[NodeView],
    pool: &str,
    stored: &[Blocker],
    report_after: SignedDuration,
    now: Timestamp,
) -> Explained {
    let mut told = Explained::default();
    let mut long = Vec::new();
    for node in nodes
        .iter()
        .filter(|n| n.drain.is_some() && n.pool() == Some(pool))
    {
        let Some(since) = drains.since(&node.name) else {
            continue;
        };
        let due = since.saturating_add(report_after).unwrap_or(Timestamp::MAX);
        if now < due {
            told.wake(due);
        } else {
            long.push((since, node.name.as_str()));
        }
    }
    long.sort_unstable();
    let mut texts = Vec::new();
    for (since, node) in long.iter().take(MAX_NODES) {
        let look = drains.look(node);
        match look {
            Some((_, until)) if now < until => told.wake(until),
            Some(_) | None => drop(told.looks.insert((*node).to_owned())),
        }
        let mut line = format!("{node} draining for {}", age(now.duration_since(*since)));
        match look.map(|(look, _)| &look.said) {
            Some(Ok(sight)) => {
                line.push_str(&left(sight));
                let found = sight
                    .pods
                    .iter()
                    .map(|pod| finding(node, *since, pod, stored, now));
                told.findings.extend(found);
            }
            Some(Err(why)) => {
                // What was seen before still holds for all that is known.
                let kept = stored.iter().filter(|b| b.node == *node).cloned();
                told.findings.extend(kept.map(|blocker| Finding {
                    blocker,
                    controller: None,
                }));
                let _ = write!(line, ": cannot tell why: {}", text::line(why, MAX_TEXT));
            }
            None => {}
        }
        texts.push(line);
    }
    match long.len().saturating_sub(MAX_NODES) {
        0 => {}
        1 => texts.push("1 more node drains as long".to_owned()),
        more => texts.push(format!("{more} more nodes drain as long")),
    }
    told.text = Some(texts.join("; ")).filter(|t| !t.is_empty());
    told
}

impl Explained {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |t| t.min(at)));
    }
}

/// What is left on a node, as it goes on after the node's name.
fn left(sight: &Sight) -> String {
    let count = match (sight.left, sight.is_cut) {
        (0, _) => return ", no pods left".to_owned(),
        (1, false) => "1 pod left".to_owned(),
        (n, false) => format!("{n} pods left"),
        (n, true) => format!("more than {n} pods left"),
    };
    let shown: Vec<String> = sight
        .pods
        .iter()
        .take(MAX_SHOWN)
        .map(|p| format!("{}/{} {}", p.namespace, p.name, p.short))
        .collect();
    let more = match sight.left.saturating_sub(shown.len()) {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    format!(" ({count}): {}{more}", shown.join(", "))
}

fn finding(
    node: &str,
    draining_since: Timestamp,
    pod: &BlockingPod,
    stored: &[Blocker],
    now: Timestamp,
) -> Finding {
    let same = |b: &&Blocker| {
        b.node == node && b.namespace == pod.namespace && b.pod == pod.name && b.cause == pod.cause
    };
    let since = stored
        .iter()
        .find(same)
        .map_or(Time(whole_seconds(now)), |b| b.since.clone());
    let blocker = Blocker {
        node: node.to_owned(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        cause: pod.cause,
        message: format!("{}; {}", pod.short, pod.advice),
        owner: pod.owner.clone(),
        draining_since: Time(whole_seconds(draining_since)),
        since,
    };
    Finding {
        blocker,
        controller: pod.controller.clone(),
    }
}

/// In minutes, and later in steps of five: who waits for an hour does not count them, and each change is written.
fn age(d: SignedDuration) -> String {
    let minutes = d.as_mins();
    let step = if minutes < 30 { 1 } else { 5 };
    text::duration(SignedDuration::from_mins(minutes / step * step))
}

/// What is recorded of these findings: no pod twice, what matters most if there are too many, in the order of their keys.
pub fn merged(mut findings: Vec<Finding>) -> Vec<Finding> {
    let key = |f: &Finding| {
        let Blocker {
            node, namespace, pod, ..
        } = &f.blocker;
        (node.clone(), namespace.clone(), pod.clone())
    };
    findings.sort_by_cached_key(key);
    findings.dedup_by_key(|f| key(f));
    findings.sort_by_key(|f| f.blocker.cause);
    findings.truncate(MAX_BLOCKERS);
    findings.sort_by_cached_key(key);
    findings
}

impl Finding {
    /// What an Event says of it; `None` for what passes by itself.
    pub fn note(&self) -> Option<String> {
        let Blocker {
            node,
            namespace,
            pod,
            cause,
            message,
            owner,
            ..
        } = &self.blocker;
        if *cause == BlockerCause::EvictionPending {
            return None;
        }
        let owner = owner
            .as_ref()
            .map(|o| format!(" of {} {}", o.kind, o.name))
            .unwrap_or_default();
        Some(format!(
            "node {node} cannot be drained for its update: pod {namespace}/{pod}{owner} {message}"
        ))
    }
}
