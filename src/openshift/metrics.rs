//! What the cluster is at, as metrics: names, labels and rules are the peer's (its `upgrade_information_collector.go`).

use kube::ResourceExt;

use super::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool};
use crate::metrics::{Family, Series};

/// Whether the cluster is being upgraded, and the state of its pools.
pub fn metrics(cluster: Option<&ClusterVersion>, pools: &[MachineConfigPool]) -> Vec<Family> {
    let name = |pool: &MachineConfigPool| vec![("pool", pool.name_any())];
    let upgrading = cluster.map(|cluster| {
        let is_upgrading = !has_desired_update(cluster) || pools.iter().any(is_upgrading);
        Series::new(Vec::new(), is_upgrading)
    });
    vec![
        Family::gauge(
            "openshift_upgrade_controller_cluster_upgrading",
            "Whether the cluster has yet to reach the desiredUpdate of its ClusterVersion, or a pool that is not paused its configuration: 1 or 0.",
            upgrading,
        ),
        Family::gauge(
            "openshift_upgrade_controller_machine_config_pools_upgrading",
            "Whether nodes of the MachineConfigPool are still to get its configuration; 0 if it is paused.",
            pools
                .iter()
                .map(|pool| Series::new(name(pool), is_upgrading(pool))),
        ),
        Family::gauge(
            "openshift_upgrade_controller_machine_config_pools_paused",
            "Whether the MachineConfigPool is paused, by whomever: 1 or 0.",
            pools.iter().map(|pool| Series::new(name(pool), pool.spec.paused)),
        ),
    ]
}

fn is_upgrading(pool: &MachineConfigPool) -> bool {
    let status = pool.state();
    !pool.spec.paused && status.machine_count != status.updated_machine_count
}

/// The peer's rule: any completed update in the history that is the one wanted.
fn has_desired_update(cluster: &ClusterVersion) -> bool {
    let Some(wanted) = &cluster.spec.desired_update else {
        return true;
    };
    let mut history = cluster.status.iter().flat_map(|s| &s.history);
    history.any(|h| h.is_completed() && h.image == wanted.image && h.version == wanted.version)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::metrics::told;

    fn pool(name: &str, paused: bool, updated: i64) -> Value {
        json!({"metadata": {"name": name}, "spec": {"paused": paused}, "status": {"machineCount": 3, "updatedMachineCount": updated}})
    }

    #[rstest]
    #[case::nothing_wanted(Value::Null, &[pool("worker", false, 3)], "0")]
    #[case::reached(json!({"version": "4.18.3", "image": "a"}), &[], "0")]
    #[case::on_its_way(json!({"version": "4.18.5", "image": "b"}), &[], "1")]
    #[case::pools_behind(json!({"version": "4.18.3", "image": "a"}), &[pool("worker", false, 1)], "1")]
    #[case::behind_and_paused(json!({"version": "4.18.3", "image": "a"}), &[pool("night", true, 1)], "0")]
    fn a_cluster_is_upgrading_until_all_is_done(
        #[case] wanted: Value,
        #[case] pools: &[Value],
        #[case] expected: &str,
    ) {
        let started = "2026-01-01T00:00:00Z";
        let history = json!([
            {"state": "Partial", "startedTime": started, "completionTime": null, "version": "4.18.5", "image": "b"},
            {"state": "Completed", "startedTime": started, "completionTime": started, "version": "4.18.3", "image": "a"},
        ]);
        let cluster = json!({"metadata": {"name": "version"}, "spec": {"desiredUpdate": wanted}, "status": {"history": history}});
        let pools: Vec<MachineConfigPool> = serde_json::from_value(json!(pools)).unwrap();
        let lines = told(&metrics(Some(&serde_json::from_value(cluster).unwrap()), &pools));
        assert_eq!(lines[0], format!("cluster_upgrading  {expected}"));
    }

    #[test]
    fn each_pool_says_whether_it_is_updated_and_paused() {
        let pools: Vec<MachineConfigPool> = serde_json::from_value(json!([
            pool("master", false, 3),
            pool("night", true, 1),
            pool("worker", false, 1)
        ]))
        .unwrap();
        assert_eq!(
            told(&metrics(None, &pools)),
            [
                "machine_config_pools_upgrading master 0",
                "machine_config_pools_upgrading night 0",
                "machine_config_pools_upgrading worker 1",
                "machine_config_pools_paused master 0",
                "machine_config_pools_paused night 1",
                "machine_config_pools_paused worker 0",
            ]
        );
    }
}
