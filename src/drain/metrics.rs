//! Drains as metrics. Names and labels are the peer's where it has them (its `node_collector.go`).

use std::collections::BTreeMap;

use crate::{
    api::{UpgradeJob, blocker::BlockerCause},
    metrics::{Family, Series},
    openshift::node::NodeView,
};

/// Which nodes are drained, and what keeps them from it: bounded by the nodes, and by what a job has on record.
pub fn metrics(nodes: &[NodeView], jobs: &[UpgradeJob]) -> Vec<Family> {
    let draining = nodes
        .iter()
        .map(|node| Series::new(vec![("node", node.name.clone())], node.drain.is_some()));
    let under_way = jobs.iter().filter(|j| j.is_started() && !j.is_finished());
    let mut blocked: BTreeMap<(&str, BlockerCause), f64> = BTreeMap::new();
    for blocker in under_way
        .filter_map(|j| j.status.as_ref())
        .flat_map(|s| &s.blockers)
    {
        *blocked.entry((&blocker.node, blocker.cause)).or_default() += 1.0;
    }
    let blocked = blocked.into_iter().map(|((node, cause), count)| {
        let labels = vec![("node", node.to_owned()), ("cause", format!("{cause:?}"))];
        Series::new(labels, count)
    });
    vec![
        Family::gauge(
            "openshift_upgrade_controller_node_draining",
            "Whether the machine-config operator drains the node: 1 or 0.",
            draining,
        ),
        Family::gauge(
            "openshift_upgrade_controller_drain_blocking_pods",
            "Pods that keep the node from being drained, as status.blockers of the UpgradeJob under way has them, by cause.",
            blocked,
        ),
    ]
}
