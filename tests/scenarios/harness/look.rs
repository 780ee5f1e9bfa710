//! What an object says, in the words of the scenarios.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use openshift_upgrade_operator::{
    api::{UpgradeJob, annotations, conditions, upgrade_job::UpgradeJobStatus},
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
};

/// The status of a job; an empty one if it has none.
pub fn status(job: &UpgradeJob) -> UpgradeJobStatus {
    job.status.clone().unwrap_or_default()
}

/// The condition of this type if it is True.
pub fn has<'a>(job: &'a UpgradeJob, type_: &str) -> Option<&'a Condition> {
    job.status
        .as_ref()
        .and_then(|s| conditions::get(&s.conditions, type_))
        .filter(|c| c.status == "True")
}

/// `type=status/reason` of a condition; empty if it is not there.
pub fn condition(job: &UpgradeJob, type_: &str) -> String {
    let found = job
        .status
        .as_ref()
        .and_then(|s| conditions::get(&s.conditions, type_));
    found
        .map(|c| format!("{type_}={}/{}", c.status, c.reason))
        .unwrap_or_default()
}

/// Fails unless the job failed for this reason; returns the message.
pub fn failure<'a>(job: &'a UpgradeJob, reason: &str) -> &'a str {
    let failed =
        has(job, "Failed").unwrap_or_else(|| panic!("the job has not failed: {:#?}", status(job).conditions));
    assert_eq!(failed.reason, reason, "{}", failed.message);
    &failed.message
}

/// Fails unless the job succeeded.
pub fn assert_succeeded(job: &UpgradeJob) {
    assert_eq!(
        condition(job, "Succeeded"),
        "Succeeded=True/Succeeded",
        "{:#?}",
        status(job).conditions
    );
}

/// Who holds the lock on the ClusterVersion.
pub fn lock(cluster: &ClusterVersion) -> Option<&str> {
    cluster
        .annotations()
        .get(annotations::UPGRADE_JOB)
        .map(String::as_str)
}

/// The version that `spec.desiredUpdate` asks for.
pub fn desired(cluster: &ClusterVersion) -> Option<&str> {
    cluster.spec.desired_update.as_ref().map(|u| u.version.as_str())
}

/// The versions of the history, newest first.
pub fn history(cluster: &ClusterVersion) -> Vec<&str> {
    cluster
        .status
        .iter()
        .flat_map(|s| &s.history)
        .map(|h| h.version.as_str())
        .collect()
}

/// Whether the newest release in the history is installed.
pub fn is_installed(cluster: &ClusterVersion, version: &str) -> bool {
    cluster
        .newest()
        .is_some_and(|h| h.version == version && h.is_completed())
}

/// Whether a pool carries the owner's annotation of any job.
pub fn is_owned(pool: &MachineConfigPool) -> bool {
    pool.annotations().contains_key(annotations::UPGRADE_JOB)
}

/// Whether every node of a pool runs what the pool asks for.
pub fn is_updated(pool: &MachineConfigPool) -> bool {
    let state = pool.state();
    state.configuration.name == pool.spec.configuration.name
        && state.updated_machine_count == state.machine_count
}
