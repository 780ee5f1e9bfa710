//! What an object says, in the words of the scenarios.

use k8s_openapi::{api::events::v1::Event, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{ResourceExt, api::DynamicObject};
use openshift_upgrade_operator::{
    api::{UpgradeJob, annotations, conditions, upgrade_job::UpgradeJobStatus},
    engine::{NodePhase, Run},
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
    plan::Plan,
};

use super::audit::Request;

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

/// What still names a job, `namespace/name`, as the one who has it: the lock, and pools but those that it says it left paused.
pub fn held_by(
    job: &str,
    left_paused: &[&str],
    cluster: &ClusterVersion,
    pools: &[MachineConfigPool],
) -> Vec<String> {
    let of_job = |p: &&MachineConfigPool| {
        let owner = p.annotations().get(annotations::UPGRADE_JOB);
        owner.is_some_and(|o| o == job) && !left_paused.contains(&p.name_any().as_str())
    };
    let locked = (lock(cluster) == Some(job)).then(|| "the lock".to_owned());
    let pools = pools.iter().filter(of_job).map(ResourceExt::name_any);
    locked.into_iter().chain(pools).collect()
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

/// The plan that a job follows.
pub fn plan_of(job: &UpgradeJob) -> Plan {
    Plan::from_value(status(job).plan.as_ref().expect("a plan")).expect("a plan that can be read")
}

/// What a workflow shows of a step; `None` if it has none of it.
pub fn node_phase(run: &Run, step: &str) -> Option<NodePhase> {
    run.nodes.iter().find(|n| n.step == step).map(|n| n.phase)
}

/// Whether one of Argo's workflows has got to a step.
pub fn is_at(workflow: &DynamicObject, step: &str) -> bool {
    let nodes = workflow.data["status"]["nodes"].as_object();
    nodes.is_some_and(|all| all.values().any(|n| n["displayName"] == step))
}

/// How many of the Events have this reason.
pub fn count_of(events: &[Event], reason: &str) -> usize {
    let of_reason = |e: &&Event| e.reason.as_deref() == Some(reason);
    events.iter().filter(of_reason).count()
}

/// The requests that created objects of a resource, such as `jobs`.
pub fn creations<'a>(writes: &'a [Request], resource: &str) -> impl Iterator<Item = &'a Request> {
    let of = move |w: &&Request| w.verb == "create" && w.resource == resource;
    writes.iter().filter(of)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::nothing(None, None, &[], &[])]
    #[case::of_others(Some("ns/k"), Some("ns/k"), &[], &[])]
    #[case::locked(Some("ns/j"), None, &[], &["the lock"])]
    #[case::owned(None, Some("ns/j"), &[], &["night"])]
    #[case::left_and_said(None, Some("ns/j"), &["night"], &[])]
    #[case::another_was_left(None, Some("ns/j"), &["canary"], &["night"])]
    fn what_a_job_holds_is_named(
        #[case] lock: Option<&str>,
        #[case] owner: Option<&str>,
        #[case] left: &[&str],
        #[case] expected: &[&str],
    ) {
        let named = |name: &str, holder: Option<&str>| -> Value {
            let annotations = holder.map_or(json!({}), |h| json!({annotations::UPGRADE_JOB: h}));
            json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"clusterID": ""}})
        };
        let cluster = serde_json::from_value(named("version", lock)).unwrap();
        let pool = serde_json::from_value(named("night", owner)).unwrap();
        assert_eq!(held_by("ns/j", left, &cluster, &[pool]), expected);
    }
}
