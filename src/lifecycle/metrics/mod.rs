//! What `/metrics` tells of UpgradeJobs: pure functions of the snapshot and the time.

mod ending;
mod engine;
#[cfg(test)]
mod fixtures;
mod left_paused;
mod state;
mod steps;
mod times;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    api::{UpgradeConfig, UpgradeJob, labels},
    metrics::Family,
    pinning::job,
    world::World,
};

/// All metrics of jobs.
pub fn metrics(world: &World, now: Timestamp) -> Vec<Family> {
    let mut all = state::metrics(&world.jobs, &world.hooks);
    all.extend(times::metrics(&world.jobs, now));
    all.extend(steps::metrics(world, now));
    all.extend(ending::metrics(&world.jobs, &world.configs));
    all.extend(left_paused::metrics(&world.jobs, &world.pools, now));
    all.extend(engine::metrics(&world.jobs));
    all
}

/// The name of the config that made a job; empty for a job that was made by hand.
fn config_of(job: &UpgradeJob, configs: &[UpgradeConfig]) -> String {
    if let Some(config) = configs.iter().find(|c| job::is_of(job, &c.metadata)) {
        return config.name_any();
    }
    // That of a config which is gone.
    let is_made = job.labels().contains_key(labels::START);
    let label = job.labels().get(labels::UPGRADE_CONFIG).filter(|_| is_made);
    label.cloned().unwrap_or_default()
}
