//! What the operator has seen of drains: as it is in no object, decisions get it beside the snapshot.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::BlockingPod;
use crate::{
    api::{UpgradeJob, blocker::Blocker},
    openshift::node::NodeView,
};

/// A look at a node counts for so long; then its pods are read again.
const COUNTS_FOR: SignedDuration = SignedDuration::from_secs(60);

/// What the operator has seen of drains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drains {
    nodes: BTreeMap<String, Seen>,
}

/// What was seen of a node's drain.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    wanted: String,
    since: Timestamp,
    look: Option<Look>,
}

/// A look at the pods of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// When it was taken.
    pub at: Timestamp,
    /// What was seen, or why nothing was, for people.
    pub said: Result<Sight, String>,
}

/// What is left on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sight {
    /// How many pods are left.
    pub left: usize,
    /// There are more of them, which were not read.
    pub is_cut: bool,
    /// Those that are told of, what matters most first.
    pub pods: Vec<BlockingPod>,
}

impl Drains {
    /// Takes note of which nodes are drained `now`, and forgets the others.
    ///
    /// A drain began when it was seen first; for an operator that was started since, jobs have that on record.
    pub fn see(&mut self, nodes: &[NodeView], jobs: &[UpgradeJob], now: Timestamp) {
        let mut before = std::mem::take(&mut self.nodes);
        for node in nodes {
            let Some(drain) = &node.drain else { continue };
            let known = before.remove(&node.name).filter(|s| s.wanted == drain.wanted);
            let seen = known.unwrap_or_else(|| Seen {
                wanted: drain.wanted.clone(),
                since: recorded(jobs, &node.name).unwrap_or(now),
                look: None,
            });
            self.nodes.insert(node.name.clone(), seen);
        }
    }

    /// Keeps a look at a node, if that is still drained.
    pub fn keep(&mut self, node: &str, look: Look) {
        if let Some(seen) = self.nodes.get_mut(node) {
            seen.look = Some(look);
        }
    }

    /// Since when a node is drained.
    pub fn since(&self, node: &str) -> Option<Timestamp> {
        self.nodes.get(node).map(|s| s.since)
    }

    /// The last look at a node, and until when it counts.
    pub fn look(&self, node: &str) -> Option<(&Look, Timestamp)> {
        let look = self.nodes.get(node)?.look.as_ref()?;
        Some((look, look.at.saturating_add(COUNTS_FOR).unwrap_or(Timestamp::MAX)))
    }
}

/// Since when the node is drained, as a job under way has it on record.
fn recorded(jobs: &[UpgradeJob], node: &str) -> Option<Timestamp> {
    let under_way = jobs.iter().filter(|j| j.is_started() && !j.is_finished());
    let statuses = under_way.filter_map(|j| j.status.as_ref());
    let of_node = |b: &&Blocker| b.node == node;
    let blockers = statuses.flat_map(|s| s.blockers.iter().filter(of_node));
    blockers.map(|b| b.draining_since.0).min()
}
