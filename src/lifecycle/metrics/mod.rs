//! What `/metrics` tells of UpgradeJobs: pure functions of the snapshot and the time.

mod ending;
mod engine;
#[cfg(test)]
mod fixtures;
mod foreign_pause;
mod left_paused;
mod state;
mod steps;
mod times;

use jiff::Timestamp;

use crate::{metrics::Family, world::World};

/// All metrics of jobs.
pub fn metrics(world: &World, now: Timestamp) -> Vec<Family> {
    let mut all = state::metrics(&world.jobs, &world.hooks);
    all.extend(times::metrics(&world.jobs, now));
    all.extend(steps::metrics(world, now));
    all.extend(ending::metrics(&world.jobs, &world.configs));
    all.extend(left_paused::metrics(&world.jobs, &world.pools, now));
    all.extend(foreign_pause::metrics(world, now));
    all.extend(engine::metrics(&world.jobs));
    all
}
