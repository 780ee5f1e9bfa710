//! The machine-config operator: renders the pools' configurations, hands them to the nodes within `maxUnavailable`,
//! and reports the pools' status. What then happens on a node is in [`super::node_update`].

use std::borrow::Cow;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::util::intstr::IntOrString};
use kube::ResourceExt;

use super::{
    Cluster, Context, MACHINE_CONFIG, Step, UPDATING_TO, annotate, annotation, cluster_operators::Turn,
    conditions, node_update, write,
};
use crate::{
    api::{label_selector::label_selector_matches, names},
    openshift::{
        cluster_operator::ClusterOperator,
        machine_config::{MachineConfig, MachineConfigSpec, RELEASE_VERSION},
        machine_config_pool::{Configuration, MachineConfigPool, MachineConfigPoolStatus},
        node::{CURRENT_CONFIG, DESIRED_CONFIG, REASON, STATE},
    },
};

/// One reconciliation of all pools and nodes.
pub(super) fn sync(context: Context<'_>, step: &mut Step) {
    for (index, pool) in context.cluster.pools.iter().enumerate() {
        let mut new = pool.clone();
        render(context, pool, &mut new, step);
        new.status = Some(status(context, index, pool));
        step.update(pool, &new);
    }
    // Of many nodes few are updated at a time: only what is changed is copied.
    let mut nodes: Vec<Cow<'_, Node>> = context.cluster.nodes.iter().map(Cow::Borrowed).collect();
    if !context.faults.hold.pools {
        for (node, pool) in nodes.iter_mut().zip(&context.members.0) {
            if !node_update::is_at_rest(context, node, step) {
                node_update::advance(context, node.to_mut(), context.pool_name(*pool), step);
            }
        }
        for (index, pool) in context.cluster.pools.iter().enumerate() {
            if !pool.spec.paused {
                assign(context, index, pool, &mut nodes);
            }
        }
    }
    for ((old, node), pool) in context
        .cluster
        .nodes
        .iter()
        .zip(&mut nodes)
        .zip(&context.members.0)
    {
        if !node_update::is_at_rest(context, node, step) {
            let node = node.to_mut();
            adopt(context, *pool, node);
            node_update::report_ready(context, node, context.pool_name(*pool), step);
        }
        if let Cow::Owned(node) = node {
            step.update(old, node);
        }
    }
}

/// The pool of each node, as an index into the pools: worked out once, since everything asks for it.
pub(super) struct Members(Vec<Option<usize>>);

impl Members {
    pub(super) fn of(cluster: &Cluster) -> Self {
        let index = |node: &Node| {
            let pool = pool_of(&cluster.pools, node)?;
            cluster.pools.iter().position(|p| std::ptr::eq(p, pool))
        };
        Self(cluster.nodes.iter().map(index).collect())
    }

    /// Those of `nodes` (all nodes of the cluster, in its order) that are in the pool.
    fn filter<'a, T: 'a>(
        &'a self,
        pool: usize,
        nodes: impl Iterator<Item = T> + 'a,
    ) -> impl Iterator<Item = T> + 'a {
        let with_pool = nodes.zip(&self.0);
        with_pool
            .filter(move |(_, of)| **of == Some(pool))
            .map(|(node, _)| node)
    }
}

impl<'a> Context<'a> {
    fn pool_name(self, pool: Option<usize>) -> &'a str {
        let pool = pool.and_then(|index| self.cluster.pools.get(index));
        pool.and_then(|p| p.metadata.name.as_deref()).unwrap_or_default()
    }
}

/// Sets `spec.configuration` of a pool to the MachineConfig of the release that the machine-config operator runs.
fn render(context: Context<'_>, pool: &MachineConfigPool, new: &mut MachineConfigPool, step: &mut Step) {
    if context.faults.degraded_pools.contains_key(&pool.name_any()) {
        return;
    }
    let Some(version) = release_to_render(context, pool) else {
        return;
    };
    let name = rendered_name(&pool.name_any(), &version);
    if !context
        .cluster
        .machine_configs
        .iter()
        .any(|c| c.name_any() == name)
    {
        step.writes.extend(write::create(&rendered(&name, &version)));
        return;
    }
    new.spec.configuration.name = name;
}

fn rendered_name(pool: &str, version: &str) -> String {
    format!(
        "rendered-{pool}-{}",
        names::hash(&format!("{pool} {version}"), 32)
    )
}

fn rendered(name: &str, version: &str) -> MachineConfig {
    let mut config = MachineConfig::new(name, MachineConfigSpec::default());
    annotate(&mut config, RELEASE_VERSION, version);
    let controller = "machineconfiguration.openshift.io/generated-by-controller-version";
    annotate(&mut config, controller, names::hash(version, 40));
    config
}

/// The release that a pool is to be rendered for; `None` leaves the pool as it is.
///
/// The new machine-config operator renders in the middle of its turn: until then a pool that knows nothing of the new
/// release says Updated, which fools whoever reads the pools alone.
fn release_to_render(context: Context<'_>, pool: &MachineConfigPool) -> Option<String> {
    let operators = &context.cluster.operators;
    let operator = operators.iter().find(|o| o.name_any() == MACHINE_CONFIG)?;
    let runs = operator.operator_version()?;
    let next = annotation(operator, UPDATING_TO);
    if next.is_empty() || next == runs {
        return Some(runs.to_owned());
    }
    let turn = Turn::present(context, MACHINE_CONFIG);
    if !context.faults.hold.control_plane && turn.is_some_and(|turn| turn.is_half_done()) {
        return Some(next.to_owned());
    }
    pool.spec.configuration.name.is_empty().then(|| runs.to_owned())
}

/// The pool of a node: master, else the first custom pool that selects it, else worker.
pub(super) fn pool_of<'a>(pools: &'a [MachineConfigPool], node: &Node) -> Option<&'a MachineConfigPool> {
    let selects = |p: &&MachineConfigPool| {
        let selector = p.spec.node_selector.as_ref();
        selector.is_some_and(|s| label_selector_matches(s, node.labels()))
    };
    let rank = |p: &&MachineConfigPool| match p.name_any().as_str() {
        "master" => 0,
        "worker" => 2,
        _ => 1,
    };
    pools.iter().filter(selects).min_by_key(rank)
}

/// A node that has just joined was installed with its pool's configuration.
fn adopt(context: Context<'_>, pool: Option<usize>, node: &mut Node) {
    if node.annotations().contains_key(STATE) {
        return;
    }
    let pool = pool.and_then(|index| context.cluster.pools.get(index));
    let config = pool.map_or("", |p| p.spec.configuration.name.as_str());
    if !config.is_empty() {
        node_update::install(node, config);
    }
}

/// Hands the pool's configuration to as many nodes as may be away.
fn assign(context: Context<'_>, index: usize, pool: &MachineConfigPool, nodes: &mut [Cow<'_, Node>]) {
    let wanted = &pool.spec.configuration.name;
    let mut members: Vec<&mut Cow<'_, Node>> = context.members.filter(index, nodes.iter_mut()).collect();
    if wanted.is_empty() {
        return;
    }
    let away = members.iter().filter(|n| !node_update::is_available(n)).count();
    let limit = max_unavailable(pool, members.len());
    let candidates = members
        .iter_mut()
        .filter(|n| node_update::is_done(n) && annotation(n.as_ref(), CURRENT_CONFIG) != wanted);
    // A node that is away already may be updated without another one going away.
    let (gone, here): (Vec<_>, Vec<_>) = candidates.partition(|n| !node_update::is_available(n));
    let capacity = limit.saturating_sub(away);
    let of_the_gone = gone.into_iter().take(limit);
    for node in of_the_gone.chain(here.into_iter().take(capacity)) {
        annotate(node.to_mut(), DESIRED_CONFIG, wanted);
    }
}

/// `spec.maxUnavailable` in nodes: default 1; a percentage is rounded down, to 1 at least.
fn max_unavailable(pool: &MachineConfigPool, count: usize) -> usize {
    match &pool.spec.max_unavailable {
        None => 1,
        Some(IntOrString::Int(n)) => usize::try_from(*n).unwrap_or(0),
        Some(IntOrString::String(text)) => {
            let percent = text.trim_end_matches('%').parse::<usize>().unwrap_or(0);
            (percent * count / 100).max(1)
        }
    }
}

/// The status of a pool, which follows from its spec and its nodes.
fn status(context: Context<'_>, index: usize, pool: &MachineConfigPool) -> MachineConfigPoolStatus {
    let (now, wanted) = (context.now, &pool.spec.configuration.name);
    let members: Vec<&Node> = context
        .members
        .filter(index, context.cluster.nodes.iter())
        .collect();
    let count = |f: &dyn Fn(&Node) -> bool| {
        i64::try_from(members.iter().filter(|n| f(n)).count()).unwrap_or(i64::MAX)
    };
    let updated = |n: &Node| node_update::is_done(n) && annotation(n, CURRENT_CONFIG) == wanted;
    let mut status = pool.state();
    status.observed_generation = pool.metadata.generation.unwrap_or_default();
    status.machine_count = count(&|_| true);
    status.updated_machine_count = count(&updated);
    status.ready_machine_count = count(&|n| updated(n) && node_update::is_available(n));
    status.unavailable_machine_count = count(&|n| !node_update::is_available(n));
    status.degraded_machine_count = count(&node_update::is_degraded);
    let all = &mut status.conditions;
    let is_updated = status.updated_machine_count == status.machine_count
        && status.ready_machine_count == status.machine_count
        && status.unavailable_machine_count == 0;
    let line = format!("MachineConfig {wanted}");
    if is_updated {
        let message = format!("All nodes are updated with {line}");
        conditions::set(all, "Updated", "True", "", &message, now);
        conditions::set(all, "Updating", "False", "", "", now);
        status.configuration = Configuration {
            name: wanted.clone(),
            ..status.configuration
        };
    } else {
        conditions::set(all, "Updated", "False", "", "", now);
        let message = if pool.spec.paused {
            format!("Pool is paused; will not update to {line}")
        } else {
            format!("All nodes are updating to {line}")
        };
        let updating = conditions::truth(!pool.spec.paused);
        conditions::set(all, "Updating", updating, "", &message, now);
    }
    let render = context.faults.degraded_pools.get(&pool.name_any());
    let degraded = conditions::truth(render.is_some() || status.degraded_machine_count > 0);
    conditions::set(&mut status.conditions, "Degraded", degraded, "", "", now);
    let (value, reason, message) = match render {
        None => ("False", "", ""),
        Some(fault) => ("True", fault.reason.as_str(), fault.message.as_str()),
    };
    let all = &mut status.conditions;
    conditions::set(all, "RenderDegraded", value, reason, message, now);
    report_nodes(&members, &mut status, now);
    status
}

fn report_nodes(members: &[&Node], status: &mut MachineConfigPoolStatus, now: jiff::Timestamp) {
    let count = status.degraded_machine_count;
    let all = &mut status.conditions;
    if count == 0 {
        conditions::set(all, "NodeDegraded", "False", "", "", now);
        return;
    }
    let reasons: Vec<String> = members
        .iter()
        .filter(|n| node_update::is_degraded(n))
        .map(|n| format!("Node {} is reporting: {:?}", n.name_any(), annotation(*n, REASON)))
        .collect();
    let reason = format!("{count} nodes are reporting degraded status on sync");
    conditions::set(all, "NodeDegraded", "True", &reason, &reasons.join(", "), now);
}

/// What keeps the machine-config operator from reporting `version`: the first required pool that is not there yet.
pub(super) fn unfinished_required_pool(cluster: &Cluster, version: &str) -> Option<String> {
    let required = cluster.pools.iter().filter(|p| p.is_required_for_upgrade());
    required
        .filter(|pool| !has_reached(pool, version))
        .map(|pool| {
            let name = pool.name_any();
            if pool.spec.paused {
                format!("required MachineConfigPool {name} is paused and cannot sync until it is unpaused")
            } else {
                format!("waiting for required MachineConfigPool {name} to finish its update")
            }
        })
        .next()
}

fn has_reached(pool: &MachineConfigPool, version: &str) -> bool {
    let (name, status) = (rendered_name(&pool.name_any(), version), pool.state());
    pool.spec.configuration.name == name
        && status.configuration.name == name
        && Some(status.observed_generation) == pool.metadata.generation
        && status.updated_machine_count == status.machine_count
}

/// Whether every pool has its rendered configuration and a status, every node its annotations: the cluster is usable.
pub(super) fn is_settled(cluster: &Cluster) -> bool {
    let operators: &[ClusterOperator] = &cluster.operators;
    operators.iter().all(|o| !o.conditions().is_empty())
        && cluster
            .pools
            .iter()
            .all(|p| !p.conditions().is_empty() && !p.state().configuration.name.is_empty())
        && cluster
            .nodes
            .iter()
            .all(|n| n.annotations().contains_key(STATE) && node_update::has_condition(n))
}
