//! `pause-pools`: held pools are paused before anything can render for them.

use kube::ResourceExt;

use super::{Action, Scene, Tick};
use crate::{
    api::upgrade_job::PauseReason,
    openshift::machine_config_pool::MachineConfigPool,
    pools::{self, Pause},
};

pub(super) fn tick(scene: &Scene<'_>) -> Tick {
    let missing = missing(scene, |_| false);
    if missing.is_empty() {
        let twice = selected_twice(scene);
        let mut tick = Tick::done([vec![describe(scene)], twice.clone()].concat().join("; "));
        tick.warnings = twice.into_iter().map(|what| ("SelectedTwice", what)).collect();
        return tick;
    }
    let names: Vec<String> = missing.iter().map(|p| p.name_any()).collect();
    let actions = names
        .iter()
        .map(|pool| Action::PausePool {
            pool: pool.clone(),
            reason: PauseReason::Delay,
        })
        .collect();
    Tick::act(actions, format!("pausing {}", names.join(", ")))
}

/// Pools of held groups that we have not paused; what somebody else paused is left alone.
///
/// A pause for delay that an ended job left behind is taken over: this job will lift it in its own time. What the peer unpaused
/// in its time, before the job was taken over from it, is not paused again: its nodes reboot.
pub(super) fn missing<'a>(
    scene: &Scene<'a>,
    is_released: impl Fn(usize) -> bool,
) -> Vec<&'a MachineConfigPool> {
    let mut missing = Vec::new();
    for group in pools::held_groups(scene.job, &scene.world.pools) {
        if is_released(group.index) {
            continue;
        }
        for pool in pools::members(scene.job, group.index, &scene.world.pools) {
            match pools::pause(scene.job, pool) {
                Pause::None if pools::is_released_by_peer(scene.job, &group, pool, scene.now) => {}
                Pause::None | Pause::OtherJob(_) => missing.push(pool),
                Pause::Ours(_) | Pause::Foreign => {}
            }
        }
    }
    missing
}

/// Pools that more than one entry would hold: the first counts, and whoever wrote the second should know.
fn selected_twice(scene: &Scene<'_>) -> Vec<String> {
    let config = &scene.job.spec.config;
    let pools = scene.world.pools.iter();
    pools
        .filter_map(|pool| {
            let mut entries = config.holds_of(pool).map(|(index, _)| (index + 1).to_string());
            let first = entries.next()?;
            let others: Vec<String> = entries.collect();
            (!others.is_empty()).then(|| {
                format!(
                    "{} is selected by entries {first} and {} of machineConfigPools, and entry {first} counts",
                    pool.name_any(),
                    others.join(", "),
                )
            })
        })
        .collect()
}

fn describe(scene: &Scene<'_>) -> String {
    let mut ours = Vec::new();
    let mut foreign = Vec::new();
    for group in pools::held_groups(scene.job, &scene.world.pools) {
        for pool in pools::members(scene.job, group.index, &scene.world.pools) {
            match pools::pause(scene.job, pool) {
                Pause::Ours(_) => ours.push(pool.name_any()),
                Pause::Foreign => foreign.push(pool.name_any()),
                Pause::None | Pause::OtherJob(_) => {}
            }
        }
    }
    match (ours.is_empty(), foreign.is_empty()) {
        (true, true) => "no pool is held".to_owned(),
        (false, true) => format!("paused {}", ours.join(", ")),
        (true, false) => format!("{} paused by someone else; left alone", foreign.join(", ")),
        (false, false) => {
            format!(
                "paused {}; {} paused by someone else, left alone",
                ours.join(", "),
                foreign.join(", ")
            )
        }
    }
}
