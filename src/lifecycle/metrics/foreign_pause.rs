//! Pools that no job of ours has paused: a person did, or a job that is gone.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::{
    api::annotations,
    metrics::{Family, Series},
    openshift::machine_config_pool::MachineConfigPool,
    pools,
    world::World,
};

/// Each pool with nodes that is paused, and that no UpgradeJob will unpause or tell of.
pub(super) fn metrics(world: &World, now: Timestamp) -> Vec<Family> {
    let paused = world.pools.iter().filter(|pool| !is_of_a_job(world, pool));
    let series = paused.filter_map(|pool| {
        let since = pool.paused_since().filter(|_| pool.state().machine_count > 0)?;
        let age = now.duration_since(since).max(SignedDuration::ZERO);
        Some(Series::new(vec![("pool", pool.name_any())], age))
    });
    vec![Family::gauge(
        "openshift_upgrade_controller_machine_config_pools_foreign_paused_seconds",
        "For how long, at least, a MachineConfigPool with nodes is paused that no UpgradeJob has paused, by the times in its managedFields.",
        series,
    )]
}

/// Whether a job that is there has paused the pool; one that cannot be read may have.
fn is_of_a_job(world: &World, pool: &MachineConfigPool) -> bool {
    let owner = pool.annotations().get(annotations::UPGRADE_JOB);
    let unreadable = owner.and_then(|owner| owner.split_once('/'));
    world.jobs.iter().any(|job| pools::is_owner(job, pool))
        || unreadable.is_some_and(|(_, name)| world.has_unreadable_job(name))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{lifecycle::metrics::fixtures::job, metrics::told};

    #[rstest]
    #[case::by_a_person(json!({}), 3, &["machine_config_pools_foreign_paused_seconds night 86400"])]
    #[case::by_a_job(json!({"managedupgrade.appuio.io/upgrade-job": "ns/j"}), 3, &[])]
    #[case::by_a_job_that_is_gone(json!({"managedupgrade.appuio.io/upgrade-job": "ns/k"}), 3,
        &["machine_config_pools_foreign_paused_seconds night 86400"])]
    #[case::without_nodes(json!({}), 0, &[])]
    fn pauses_are_told_that_nobody_of_us_lifts(
        #[case] annotations: Value,
        #[case] nodes: i64,
        #[case] expected: &[&str],
    ) {
        let writers = json!([{"manager": "kubectl-patch", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:paused": {}}}}]);
        let pool = json!({
            "metadata": {"name": "night", "annotations": annotations, "managedFields": writers},
            "spec": {"paused": true}, "status": {"machineCount": nodes},
        });
        let world = World {
            pools: vec![serde_json::from_value(pool).unwrap()],
            jobs: vec![job("j", &json!({}))],
            ..World::default()
        };
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        assert_eq!(told(&metrics(&world, now)), expected);
    }
}
