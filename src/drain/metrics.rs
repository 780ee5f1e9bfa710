//! Drains as metrics. Names and labels are the peer's where it has them (its `node_collector.go`).

use std::collections::BTreeMap;

use crate::{
    api::{UpgradeJob, blocker::BlockerCause},
    metrics::{Family, Series, Type},
    openshift::node::NodeView,
};

/// Which nodes are drained, and what keeps them from it: bounded by the nodes, and by what a job has on record.
pub fn metrics(nodes: &[NodeView], jobs: &[UpgradeJob]) -> Vec<Family> {
    let draining = nodes.iter().map(|node| Series {
        labels: vec![("node", node.name.clone())],
        value: if node.drain.is_some() { 1.0 } else { 0.0 },
    });
    let under_way = jobs.iter().filter(|j| j.is_started() && !j.is_finished());
    let mut blocked: BTreeMap<(&str, BlockerCause), f64> = BTreeMap::new();
    for blocker in under_way
        .filter_map(|j| j.status.as_ref())
        .flat_map(|s| &s.blockers)
    {
        *blocked.entry((&blocker.node, blocker.cause)).or_default() += 1.0;
    }
    let blocked = blocked.into_iter().map(|((node, cause), value)| Series {
        labels: vec![("node", node.to_owned()), ("cause", format!("{cause:?}"))],
        value,
    });
    vec![
        Family {
            name: "openshift_upgrade_controller_node_draining",
            help: "Whether the machine-config operator drains the node: 1 or 0.",
            type_: Type::Gauge,
            series: draining.collect(),
        },
        Family {
            name: "openshift_upgrade_controller_drain_blocking_pods",
            help: "Pods that keep the node from being drained, as status.blockers of the UpgradeJob under way has them, by cause.",
            type_: Type::Gauge,
            series: blocked.collect(),
        },
    ]
}
