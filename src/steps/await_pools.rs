//! `await-pools` and `await-<group>`: until every node of the pools runs the new configuration.

use kube::ResourceExt;

use super::{Scene, Tick, drains};
use crate::{
    openshift::machine_config_pool::MachineConfigPool,
    pools::{self, Pause},
};

/// The pools that this job does not hold, but for those that someone else paused.
pub(super) fn not_held(scene: &Scene<'_>) -> Tick {
    let all: Vec<&MachineConfigPool> = scene
        .world
        .pools
        .iter()
        .filter(|p| !pools::is_held(scene.job, p))
        .collect();
    wait_for(scene, &all)
}

pub(super) fn group(scene: &Scene<'_>, group: usize) -> Tick {
    wait_for(scene, &pools::members(scene.job, group, &scene.world.pools))
}

fn wait_for(scene: &Scene<'_>, all: &[&MachineConfigPool]) -> Tick {
    // A cluster without any pool does not exist: they are not known.
    if scene.world.pools.is_empty() {
        return Tick::wait("no MachineConfigPool is known");
    }
    if let Some(why) = pools::unsettled(scene.world) {
        return Tick::wait(format!("{why}; pools may still get a new configuration"));
    }
    let mut unfinished = Vec::new();
    let mut foreign = Vec::new();
    for pool in all {
        match pools::pause(scene.job, pool) {
            Pause::Foreign | Pause::OtherJob(_) => {
                if pools::unfinished(scene.world, pool).is_some() {
                    foreign.push(pool.name_any());
                }
            }
            Pause::None | Pause::Ours(_) => {
                let text = pools::unfinished(scene.world, pool);
                unfinished.extend(text.map(|text| (pool.name_any(), text)));
            }
        }
    }
    if !unfinished.is_empty() {
        return drains::wait(scene, unfinished);
    }
    let names: Vec<String> = all
        .iter()
        .map(|p| p.name_any())
        .filter(|n| !foreign.contains(n))
        .collect();
    let mut message = if names.is_empty() {
        "no pool to wait for".to_owned()
    } else {
        format!("{} updated", names.join(", "))
    };
    if !foreign.is_empty() {
        message = format!(
            "{message}; {} paused by someone else, not waited for",
            foreign.join(", ")
        );
    }
    Tick::done(message)
}
