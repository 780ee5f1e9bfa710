//! Pools that ended jobs left paused.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::{
    api::{
        UpgradeJob,
        conditions::{self, types},
    },
    metrics::{Family, Series},
    openshift::machine_config_pool::MachineConfigPool,
    pools::{self, Pause},
};

/// Each pool that is paused now and was paused by a job that has ended.
pub(super) fn metrics(jobs: &[UpgradeJob], pools: &[MachineConfigPool], now: Timestamp) -> Vec<Family> {
    let left = jobs.iter().filter(|j| j.is_finished()).flat_map(|job| {
        let paused = pools.iter().filter(|pool| match pools::pause(job, pool) {
            Pause::Ours(_) => true,
            Pause::None | Pause::OtherJob(_) | Pause::Foreign => false,
        });
        paused.filter_map(|pool| series(job, pool, now))
    });
    vec![Family::gauge(
        "openshift_upgrade_controller_machine_config_pools_left_paused_seconds",
        "For how long a MachineConfigPool is paused that an UpgradeJob left so when it ended; reason is that of its condition PoolsLeftPaused.",
        left,
    )]
}

fn series(job: &UpgradeJob, pool: &MachineConfigPool, now: Timestamp) -> Option<Series> {
    let status = job.status.as_ref()?;
    let left =
        conditions::get(&status.conditions, types::POOLS_LEFT_PAUSED).filter(|c| c.status == "True")?;
    let since = status
        .finished_at
        .as_ref()
        .unwrap_or(&left.last_transition_time)
        .0;
    let labels = vec![
        ("pool", pool.name_any()),
        ("upgradejob", job.name_any()),
        ("reason", left.reason.clone()),
    ];
    Some(Series::new(
        labels,
        now.duration_since(since).max(SignedDuration::ZERO),
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        lifecycle::metrics::fixtures::{conditions, job},
        metrics::told,
    };

    fn ended() -> Value {
        let conditions = conditions(&[("Failed", "TimedOut"), ("PoolsLeftPaused", "PendingChanges")]);
        json!({"conditions": conditions, "finishedAt": "2026-01-01T03:00:00Z"})
    }

    #[rstest]
    #[case::left(ended(), "ns/j", true, &["machine_config_pools_left_paused_seconds night,j,PendingChanges 3600"])]
    #[case::unpaused_since(ended(), "ns/j", false, &[])]
    #[case::of_a_later_job(ended(), "ns/k", true, &[])]
    #[case::by_the_peer(json!({"conditions": conditions(&[("Failed", "x"), ("PoolsLeftPaused", "Orphaned")])}), "ns/j", true,
        &["machine_config_pools_left_paused_seconds night,j,Orphaned 7200"])]
    #[case::under_way(json!({"conditions": conditions(&[("Started", "x")])}), "ns/j", true, &[])]
    fn pools_are_told_while_they_are_paused(
        #[case] status: Value,
        #[case] owner: &str,
        #[case] paused: bool,
        #[case] expected: &[&str],
    ) {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "night", "annotations": {"managedupgrade.appuio.io/upgrade-job": owner}}, "spec": {"paused": paused},
        }))
        .unwrap();
        let now = "2026-01-01T04:00:00Z".parse().unwrap();
        assert_eq!(told(&metrics(&[job("j", &status)], &[pool], now)), expected);
    }
}
