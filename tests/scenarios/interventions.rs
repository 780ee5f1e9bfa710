//! People in mid-run: jobs deleted, workflows stopped.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use openshift_upgrade_operator::{
    api::upgrade_job::EngineChoice,
    engine::{Engine, argo::Argo, tekton::Tekton},
    openshift::machine_config_pool::MachineConfigPool,
};
use rstest::rstest;
use serde_json::json;

use crate::{
    failures::nothing_starts_once_the_cause_is_gone,
    harness::{
        NIGHT, Scenario,
        audit::Request,
        desired, failure, has, history, is_installed, is_owned, is_updated, lock,
        objects::{hold_night, hook, job, running_for},
        scenario, scenario_on, status, until,
    },
};

/// A hook of Start that runs until the scenario is over.
async fn endless_start_hook(s: &Scenario) {
    s.create(&running_for(hook("endless", &["Start"]), 3_600_000))
        .await;
}

async fn create(s: &Scenario, name: &str) {
    s.create(&job(
        name,
        Some("4.18.5"),
        json!({"machineConfigPools": hold_night("30m", None)}),
    ))
    .await;
}

/// The workflow was stopped, or the garbage collector took it.
async fn until_workflow_is_over(s: &Scenario) {
    until("the workflow is stopped or gone", async || {
        s.workflows()
            .await
            .iter()
            .all(|w| w.data["spec"]["shutdown"].is_string())
            .then_some(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_job_that_is_deleted_before_desired_update_was_set_leaves_nothing_behind() {
    scenario(&[], async |s| {
        endless_start_hook(s).await;
        create(s, "deleted").await;
        s.until_step_runs("deleted", "hook-start-endless").await;
        s.delete_job("deleted").await;
        s.until_gone("deleted").await;

        until_workflow_is_over(s).await;
        let cluster = s.cluster_version().await;
        assert_eq!(
            (history(&cluster), desired(&cluster), lock(&cluster)),
            (vec!["4.18.3"], None, None)
        );
        assert!(!s.operators_writes().iter().any(Request::is_of_desired_update));
        let night = s.pool(NIGHT).await;
        assert!(!night.spec.paused && !is_owned(&night), "{night:#?}");
        until("the Job of the hook is gone", async || {
            s.hook_jobs().await.is_empty().then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_job_that_is_deleted_before_its_release_is_accepted_takes_desired_update_back() {
    scenario(&[], async |s| {
        s.fault("reject", "4.18.5 PreconditionChecks not now").await;
        s.until_simulator_has_looked().await;
        create(s, "deleted").await;
        s.until_cluster_version("4.18.5 is rejected", |c| {
            desired(c) == Some("4.18.5")
                && c.conditions()
                    .iter()
                    .any(|x| x.type_ == "ReleaseAccepted" && x.status == "False")
        })
        .await;
        assert!(s.pool(NIGHT).await.spec.paused);
        s.delete_job("deleted").await;
        s.until_gone("deleted").await;

        until_workflow_is_over(s).await;
        let cluster = s.cluster_version().await;
        assert_eq!(
            (history(&cluster), desired(&cluster), lock(&cluster)),
            (vec!["4.18.3"], None, None)
        );
        let night = s.pool(NIGHT).await;
        assert!(
            !night.spec.paused && !is_owned(&night),
            "nothing is pending for it: {night:#?}"
        );
        nothing_starts_once_the_cause_is_gone(s, "reject").await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_job_that_is_deleted_while_its_release_is_retrieved_takes_desired_update_back() {
    scenario(&[], async |s| {
        s.fault("hold", "control-plane").await;
        s.until_simulator_has_looked().await;
        create(s, "deleted").await;
        s.until_cluster_version("4.18.5 is asked for", |c| desired(c) == Some("4.18.5"))
            .await;
        s.delete_job("deleted").await;
        s.until_gone("deleted").await;

        let cluster = s.cluster_version().await;
        assert_eq!(
            (history(&cluster), desired(&cluster), lock(&cluster)),
            (vec!["4.18.3"], None, None)
        );
        nothing_starts_once_the_cause_is_gone(s, "hold").await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_job_that_is_deleted_while_its_upgrade_is_under_way_lets_it_go_on_with_the_held_pool_paused() {
    scenario(&[], async |s| {
        s.fault("stall-at", "40").await;
        create(s, "deleted").await;
        s.until_job("deleted", "tells 40%", |j| {
            status(j).message.is_some_and(|m| m.contains("40% done"))
        })
        .await;
        s.delete_job("deleted").await;
        s.until_gone("deleted").await;

        until_workflow_is_over(s).await;
        let cluster = s.cluster_version().await;
        assert_eq!(
            (history(&cluster), desired(&cluster), lock(&cluster)),
            (vec!["4.18.5", "4.18.3"], Some("4.18.5"), None)
        );
        s.fault("stall-at", "").await;
        s.until_cluster_version("4.18.5 is installed", |c| is_installed(c, "4.18.5"))
            .await;
        s.until_pool("worker", "is updated", is_updated).await;
        let night = s
            .until_pool(NIGHT, "has the new configuration pending", |p| !is_updated(p))
            .await;
        assert!(night.spec.paused && is_owned(&night), "{night:#?}");
        assert!(!s.operators_writes().iter().any(|w| w.pauses() == Some(false)));

        // A person unpauses it: then it is nobody's any more.
        let pools: Api<MachineConfigPool> = Api::all(s.client.clone());
        let unpause = Patch::Merge(json!({"spec": {"paused": false}}));
        pools
            .patch(NIGHT, &PatchParams::default(), &unpause)
            .await
            .expect("unpausing a pool");
        s.until_pool(NIGHT, "is nobody's", |p| !is_owned(p)).await;
    })
    .await;
}

/// As the engine's UI does: the field of Argo, or that of Tekton.
async fn stop(s: &Scenario, name: &str, how: &str) {
    let field = match s.engine.kind() {
        EngineChoice::Tekton => "status",
        EngineChoice::Argo | EngineChoice::Embedded | EngineChoice::Auto => "shutdown",
    };
    s.edit_workflow(&format!("{name}-run-1"), json!({"spec": {field: how}}))
        .await;
}

#[rstest]
#[case::stopped("Stop", "stopped")]
#[case::terminated("Terminate", "terminated")]
#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_workflow_that_is_ended_before_desired_update_was_set_ends_the_job(
    #[case] how: &str,
    #[case] said: &str,
) {
    scenario(&[], async |s| {
        endless_start_hook(s).await;
        create(s, "stopped").await;
        s.until_step_runs("stopped", "hook-start-endless").await;
        stop(s, "stopped", how).await;
        let done = s.until_over("stopped").await;

        let message = failure(&done, "WorkflowStopped");
        assert!(message.contains(said), "{message}");
        let cluster = s.cluster_version().await;
        assert_eq!(
            (history(&cluster), desired(&cluster), lock(&cluster)),
            (vec!["4.18.3"], None, None)
        );
        assert!(!s.operators_writes().iter().any(Request::is_of_desired_update));
        assert!(!s.pool(NIGHT).await.spec.paused);
        assert_eq!(s.workflows().await.len(), 1, "it is not rendered again");
    })
    .await;
}

#[rstest]
#[case::stopped(&Argo, "Stop", "stopped")]
#[case::terminated(&Argo, "Terminate", "terminated")]
#[case::cancelled(&Tekton, "Cancelled", "terminated")]
#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_workflow_that_is_ended_while_the_upgrade_is_under_way_ends_the_job(
    #[case] engine: &'static dyn Engine,
    #[case] how: &str,
    #[case] said: &str,
) {
    scenario_on(engine, &[], async |s| {
        s.create(&hook("at-finish", &["Finish"])).await;
        s.fault("stall-at", "40").await;
        create(s, "stopped").await;
        s.until_job("stopped", "tells 40%", |j| {
            status(j).message.is_some_and(|m| m.contains("40% done"))
        })
        .await;
        stop(s, "stopped", how).await;
        let done = s.until_over("stopped").await;

        let message = failure(&done, "WorkflowStopped");
        assert!(message.contains(said), "{message}");
        assert_eq!(
            status(&done).hook_tracker.len(),
            1,
            "the hook of Finish runs: {:#?}",
            status(&done).hook_tracker
        );
        assert!(has(&done, "PoolsLeftPaused").is_some());
        let cluster = s.cluster_version().await;
        assert_eq!(
            (desired(&cluster), lock(&cluster)),
            (Some("4.18.5"), None),
            "an upgrade under way goes on"
        );
        assert!(s.pool(NIGHT).await.spec.paused);
        assert_eq!(s.workflows().await.len(), 1, "it is not rendered again");
        s.fault("stall-at", "").await;
        s.until_cluster_version("4.18.5 is installed", |c| is_installed(c, "4.18.5"))
            .await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_workflow_that_is_stopped_before_its_release_is_accepted_ends_the_job_and_is_withdrawn() {
    scenario(&[], async |s| {
        s.fault("reject", "4.18.5 RetrievePayload not now").await;
        s.until_simulator_has_looked().await;
        create(s, "stopped").await;
        s.until_cluster_version("4.18.5 is rejected", |c| {
            desired(c) == Some("4.18.5")
                && c.conditions()
                    .iter()
                    .any(|x| x.type_ == "ReleaseAccepted" && x.status == "False")
        })
        .await;
        stop(s, "stopped", "Stop").await;
        let done = s.until_over("stopped").await;

        failure(&done, "WorkflowStopped");
        assert!(
            has(&done, "IntentWithdrawn").is_some(),
            "{:#?}",
            status(&done).conditions
        );
        let cluster = s.cluster_version().await;
        assert_eq!(
            (history(&cluster), desired(&cluster), lock(&cluster)),
            (vec!["4.18.3"], None, None)
        );
        nothing_starts_once_the_cause_is_gone(s, "reject").await;
    })
    .await;
}
