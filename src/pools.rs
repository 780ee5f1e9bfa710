//! MachineConfigPools: which are held, which are paused by whom, what is pending, what is done.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::{
    api::{UpgradeJob, annotations, names, upgrade_job::PauseReason},
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool, node::NodeView},
    target, text,
    world::World,
};

/// Most degraded nodes of a pool that are named.
const MAX_DEGRADED: usize = 3;
/// Longest reason of a node in a message, in characters.
const MAX_REASON: usize = 160;

/// An entry of `config.machineConfigPools` that holds pools back.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldGroup {
    /// Index in `config.machineConfigPools`.
    pub index: usize,
    /// Short name for steps: the pool's where there is exactly one.
    pub name: String,
    /// Not unpaused before this instant.
    pub not_before: Timestamp,
    /// The job fails if it is not unpaused by then.
    pub not_after: Option<Timestamp>,
}

/// The groups that hold pools, by time; entries without `delayMin` hold nothing.
pub fn held_groups(job: &UpgradeJob, pools: &[MachineConfigPool]) -> Vec<HeldGroup> {
    let mut groups: Vec<HeldGroup> = (0..job.spec.config.machine_config_pools.len())
        .filter_map(|index| held_group(job, index, pools))
        .collect();
    groups.sort_by_key(|g| (g.not_before, g.index));
    groups
}

/// The group of this entry, with the delays as they are now.
pub fn held_group(job: &UpgradeJob, index: usize, pools: &[MachineConfigPool]) -> Option<HeldGroup> {
    let delay = job
        .spec
        .config
        .machine_config_pools
        .get(index)?
        .delay_upgrade
        .as_ref()?;
    let min = delay.min().filter(|d| *d > SignedDuration::ZERO)?;
    let start = job.spec.start_after.0;
    let members = members(job, index, pools);
    let name = match members.as_slice() {
        [only] => names::dns_label(&only.name_any()),
        _ => format!("group-{}", index + 1),
    };
    Some(HeldGroup {
        index,
        name,
        not_before: start.saturating_add(min).unwrap_or(Timestamp::MAX),
        not_after: delay
            .max()
            .map(|max| start.saturating_add(max).unwrap_or(Timestamp::MAX)),
    })
}

/// The pools that this entry holds: selected by it, by no earlier one with a delay, and not needed by the control plane.
pub fn members<'a>(
    job: &UpgradeJob,
    index: usize,
    pools: &'a [MachineConfigPool],
) -> Vec<&'a MachineConfigPool> {
    pools
        .iter()
        .filter(|p| match job.spec.config.hold_of(p) {
            Some((holder, _)) => holder == index,
            // The delay was taken out while we hold the pool: its entry still gives it back.
            None => is_ours_for_delay(job, p) && entry_of(job, p) == Some(index),
        })
        .collect()
}

/// Whether a pool is held by this job.
pub fn is_held(job: &UpgradeJob, pool: &MachineConfigPool) -> bool {
    job.spec.config.hold_of(pool).is_some() || is_ours_for_delay(job, pool)
}

fn is_ours_for_delay(job: &UpgradeJob, pool: &MachineConfigPool) -> bool {
    pause(job, pool) == Pause::Ours(PauseReason::Delay)
}

/// The first entry that selects a pool.
fn entry_of(job: &UpgradeJob, pool: &MachineConfigPool) -> Option<usize> {
    job.spec
        .config
        .machine_config_pools
        .iter()
        .position(|entry| entry.selects(pool))
}

/// Who paused a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It is not paused.
    None,
    /// This job.
    Ours(PauseReason),
    /// Another UpgradeJob, `namespace/name`, for `delayUpgrade`.
    OtherJob(String),
    /// A person, or another UpgradeJob because it failed: only a person lifts it.
    Foreign,
}

/// Who paused this pool, by the annotations that are written together with a pause.
pub fn pause(job: &UpgradeJob, pool: &MachineConfigPool) -> Pause {
    if !pool.spec.paused {
        return Pause::None;
    }
    let Some(owner) = pool.annotations().get(annotations::UPGRADE_JOB) else {
        return Pause::Foreign;
    };
    let reason = match pool
        .annotations()
        .get(annotations::PAUSE_REASON)
        .map(String::as_str)
    {
        Some("failure") => PauseReason::Failure,
        _ => PauseReason::Delay,
    };
    if is_owner(job, pool) {
        Pause::Ours(reason)
    } else if reason == PauseReason::Delay {
        Pause::OtherJob(owner.clone())
    } else {
        Pause::Foreign
    }
}

/// Whether the owner annotations on a pool name this very job.
pub fn is_owner(job: &UpgradeJob, pool: &MachineConfigPool) -> bool {
    let name = pool.annotations().get(annotations::UPGRADE_JOB);
    let uid = pool.annotations().get(annotations::UPGRADE_JOB_UID);
    // The peer writes no uid.
    name == Some(&key(job)) && uid.is_none_or(|uid| Some(uid) == job.metadata.uid.as_ref())
}

/// Whether the peer unpaused this pool for this job, in its time: it leaves its annotation, which has no UID, until the job ends.
pub fn is_released_by_peer(
    job: &UpgradeJob,
    group: &HeldGroup,
    pool: &MachineConfigPool,
    now: Timestamp,
) -> bool {
    let is_signed = pool.annotations().contains_key(annotations::UPGRADE_JOB_UID);
    !pool.spec.paused && now >= group.not_before && is_owner(job, pool) && !is_signed
}

/// `<namespace>/<name>`, as the lock and the owner of a pause are written.
pub fn key(job: &UpgradeJob) -> String {
    format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any())
}

/// Why the ClusterVersion is unsettled, so that a pool may get a new configuration at any moment; `None` if it is settled.
///
/// Rule: design 5, *pending*. The machine-config operator renders last, so its own version counts.
pub fn unsettled(world: &World) -> Option<String> {
    let Some(cluster) = &world.cluster_version else {
        return Some("the ClusterVersion is not known".into());
    };
    let Some(newest) = cluster.newest() else {
        return Some("the ClusterVersion has no history yet".into());
    };
    if !newest.is_completed() {
        return Some(format!(
            "the control plane is still updating to {}",
            newest.version
        ));
    }
    if let Some(desired) = &cluster.spec.desired_update
        && !target::asks_for(desired, newest)
    {
        let what = desired.asked_for();
        return Some(format!(
            "the ClusterVersion asks for {what} and has {}",
            newest.version
        ));
    }
    let machine_config = world.operators.iter().find(|o| o.name_any() == "machine-config");
    match machine_config.and_then(|o| o.operator_version()) {
        Some(version) if version != newest.version => Some(format!(
            "operator machine-config is at {version}, the cluster at {}",
            newest.version
        )),
        Some(_) => None,
        None => Some("operator machine-config is not known".to_owned()),
    }
}

/// Whether unpausing this pool would, or soon could, reboot its nodes.
pub fn is_pending(world: &World, pool: &MachineConfigPool) -> bool {
    let state = pool.state();
    state.machine_count > 0
        && (pool.spec.configuration.name != state.configuration.name
            || unsettled(world).is_some()
            || is_stale_render(&world.rendered, world.cluster_version.as_ref(), pool))
}

/// Whether the pool's configuration was rendered for another release than the cluster's newest.
///
/// Releases that do not annotate their renders are given the benefit of the doubt: waiting would hang.
fn is_stale_render(
    rendered: &BTreeMap<String, String>,
    cluster: Option<&ClusterVersion>,
    pool: &MachineConfigPool,
) -> bool {
    match (
        rendered.get(&pool.spec.configuration.name),
        cluster.and_then(|c| c.newest()),
    ) {
        (Some(release), Some(newest)) => *release != newest.version,
        (None, _) | (_, None) => false,
    }
}

/// What a pool still has to do, in words; `None` if it is done.
///
/// Rule: design 6, `await-<pools>`. Nodes that are updated but not ready are a finding of the health check, not a wait.
pub fn unfinished(world: &World, pool: &MachineConfigPool) -> Option<String> {
    let state = pool.state();
    let name = pool.name_any();
    if Some(state.observed_generation) != pool.metadata.generation {
        return Some(format!(
            "{name}: the machine-config operator has not seen its newest spec"
        ));
    }
    if is_stale_render(&world.rendered, world.cluster_version.as_ref(), pool) {
        return Some(format!("{name}: not rendered for the new version yet"));
    }
    let moved = pool.spec.configuration.name != state.configuration.name;
    if state.machine_count > 0 && (moved || state.updated_machine_count != state.machine_count) {
        let degraded = match state.degraded_machine_count {
            0 => String::new(),
            n => format!(", {n} degraded{}", degraded_nodes(world, &name)),
        };
        return Some(format!(
            "{name}: {} of {} updated{degraded}",
            state.updated_machine_count, state.machine_count
        ));
    }
    if state.degraded_machine_count > 0 {
        return Some(format!(
            "{name}: {} of {} degraded{}",
            state.degraded_machine_count,
            state.machine_count,
            degraded_nodes(world, &name)
        ));
    }
    None
}

/// The degraded nodes of a pool in parentheses, each with what the machine-config daemon says; empty if none is known.
pub fn degraded_nodes(world: &World, pool: &str) -> String {
    let of_pool = world
        .nodes
        .iter()
        .filter(|n| n.is_degraded() && n.pool() == Some(pool));
    let all: Vec<&NodeView> = of_pool.collect();
    let shown = all.iter().take(MAX_DEGRADED).map(|n| match &n.reason {
        Some(reason) => format!("{}: {}", n.name, text::line(reason, MAX_REASON)),
        None => n.name.clone(),
    });
    let shown: Vec<String> = shown.collect();
    match all.len().saturating_sub(shown.len()) {
        _ if shown.is_empty() => String::new(),
        0 => format!(" ({})", shown.join("; ")),
        more => format!(" ({}; and {more} more)", shown.join("; ")),
    }
}
