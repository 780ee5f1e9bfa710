//! When the API server is away because of the upgrade itself.

use jiff::Timestamp;

use super::{
    Context, SINCE, Step,
    cluster_operators::Turn,
    instant, later,
    node_update::{self, Times},
};

/// The ClusterOperator that replaces the API server in its turn.
const KUBE_APISERVER: &str = "kube-apiserver";

/// Until when the API server answers nobody; asks to be woken when that begins.
pub(super) fn away_until(context: Context<'_>, step: &mut Step) -> Option<Timestamp> {
    while_it_is_replaced(context, step).max(while_its_only_node_reboots(context))
}

/// In the middle of its operator's turn.
fn while_it_is_replaced(context: Context<'_>, step: &mut Step) -> Option<Timestamp> {
    let away = context.settings.api_server_away;
    if !away.is_positive() {
        return None;
    }
    let turn = Turn::present(context, KUBE_APISERVER)?;
    let operators = &context.cluster.operators;
    let operator = operators
        .iter()
        .find(|o| o.metadata.name.as_deref() == Some(KUBE_APISERVER))?;
    let from = later(instant(operator, SINCE)?, turn.duration() / 2);
    let until = later(from, away);
    if context.now < from {
        step.wake(from);
        return None;
    }
    (context.now < until).then_some(until)
}

/// With one machine there is no other API server.
fn while_its_only_node_reboots(context: Context<'_>) -> Option<Timestamp> {
    if !context.cluster.is_single_node() {
        return None;
    }
    let nodes = context.cluster.nodes.iter();
    let rebooting = nodes.filter(|n| node_update::is_rebooting(n)).filter_map(|node| {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if context.faults.lost_nodes.contains_key(name) {
            return Some(Timestamp::MAX);
        }
        let reboot = Times::of(context, node, "master").reboot;
        Some(later(instant(node, SINCE)?, reboot))
    });
    rebooting.max().filter(|until| context.now < *until)
}
