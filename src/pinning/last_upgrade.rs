//! How the newest job of a config went: what whoever looks only at the config wants to see, such as Argo CD.

use jiff::Timestamp;
use kube::ResourceExt;

use super::unresolved::{self, How};
use crate::{
    api::{
        UpgradeConfig,
        conditions::{self, types},
        upgrade_config::UpgradeConfigStatus,
    },
    world::World,
};

/// Keeps the condition `LastUpgradeSucceeded` in line with the jobs that are there, by the rule of [`unresolved`]. Where nothing
/// failed and nothing succeeded there is no such condition, so to delete a failed job is to acknowledge it.
pub fn tell(status: &mut UpgradeConfigStatus, config: &UpgradeConfig, world: &World, now: Timestamp) {
    let type_ = types::LAST_UPGRADE_SUCCEEDED;
    let last = unresolved::last_upgrade(&world.jobs, &world.configs, config);
    let said = last.and_then(|last| match last.how {
        How::Succeeded(condition) => Some((last.job, true, condition)),
        How::Failed(condition) | How::Expired(condition) => Some((last.job, false, condition)),
        How::Skipped => None,
    });
    let Some((job, is_success, condition)) = said else {
        status.conditions.retain(|c| c.type_ != type_);
        return;
    };
    conditions::set(
        &mut status.conditions,
        type_,
        is_success,
        &condition.reason,
        format!("UpgradeJob {}: {}", job.name_any(), condition.message),
        config.metadata.generation,
        now,
    );
}
