//! The operator is killed at the worst moments; a new one brings the upgrade to the same end.

use k8s_openapi::NamespaceResourceScope;
use kube::Api;
use openshift_upgrade_operator::{
    api::{
        UpgradeJob,
        upgrade_job::{HookState, StepPhase},
    },
    openshift::cluster_version::ClusterVersion,
};
use serde_json::json;

use crate::harness::{
    NAMESPACE, NIGHT, Scenario, assert_succeeded, creations, desired, history, is_installed, is_owned,
    is_updated, lock,
    objects::{hold_night, hook, job},
    scenario, status,
};

const EVENTS: [&str; 5] = [
    "Start",
    "UpgradeComplete",
    "MachineConfigPoolUnpause",
    "Success",
    "Finish",
];

fn namespaced<K>(s: &Scenario) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(s.client.clone(), NAMESPACE)
}

/// Runs an upgrade with a hook at each event; `crash` kills the operator once, then it is started again.
async fn same_end_after(crash: impl AsyncFnOnce(&mut Scenario)) {
    scenario(&[], async |s| {
        for event in EVENTS {
            s.create(&hook(&format!("at-{}", event.to_lowercase()), &[event]))
                .await;
        }
        let config = json!({"machineConfigPools": hold_night("1s", Some("1h"))});
        s.create(&job("crash", Some("4.18.5"), config)).await;
        crash(s).await;
        s.start_operator();
        let done = s.until_over("crash").await;

        assert_succeeded(&done);
        let cluster = s.cluster_version().await;
        assert!(is_installed(&cluster, "4.18.5"));
        assert_eq!(
            (history(&cluster), lock(&cluster)),
            (vec!["4.18.5", "4.18.3"], None)
        );
        let night = s.pool(NIGHT).await;
        assert!(
            !night.spec.paused && !is_owned(&night) && is_updated(&night),
            "{night:#?}"
        );
        let writes = s.operators_writes();
        let count = |resource: &str| creations(&writes, resource).count();
        assert_eq!(count("workflows"), 1, "one workflow");
        assert_eq!(count("jobs"), EVENTS.len(), "one Job for each hook");
        assert_eq!(
            writes.iter().filter(|w| w.is_of_desired_update()).count(),
            1,
            "writes of desiredUpdate"
        );
        let tracker = status(&done).hook_tracker;
        assert_eq!(tracker.len(), EVENTS.len(), "{tracker:#?}");
        assert!(
            tracker.iter().all(|t| t.status == HookState::Complete),
            "{tracker:#?}"
        );
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn killed_while_the_control_plane_updates_the_upgrade_ends_the_same() {
    same_end_after(async |s| {
        let running = |j: &UpgradeJob| {
            status(j)
                .steps
                .iter()
                .any(|x| x.name == "await-control-plane" && x.phase == StepPhase::Running)
        };
        s.kill_operator_at(namespaced::<UpgradeJob>(s), running).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn killed_right_after_the_lock_was_taken_the_upgrade_ends_the_same() {
    same_end_after(async |s| {
        let api: Api<ClusterVersion> = Api::all(s.client.clone());
        s.kill_operator_at(api, |c| lock(c).is_some()).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn killed_right_after_the_workflow_was_created_the_upgrade_ends_the_same() {
    same_end_after(async |s| s.kill_operator_at(s.workflow_api(), |_| true).await).await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn killed_right_after_desired_update_was_set_the_upgrade_ends_the_same() {
    same_end_after(async |s| {
        let api: Api<ClusterVersion> = Api::all(s.client.clone());
        s.kill_operator_at(api, |c| desired(c).is_some()).await;
    })
    .await;
}
