//! People in mid-run: jobs deleted, workflows stopped.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use openshift_upgrade_operator::{
    api::upgrade_job::{EngineChoice, HookState},
    engine::{Engine, argo::Argo, tekton::Tekton},
    openshift::machine_config_pool::MachineConfigPool,
};
use rstest::rstest;
use serde_json::json;

use crate::{
    engine_faults::is_over,
    failures::nothing_starts_once_the_cause_is_gone,
    harness::{
        NIGHT, Scenario,
        audit::Request,
        desired, failure, has, history, is_installed, is_owned, is_updated, lock,
        objects::{hold_night, hook, job, running_for},
        scenario, scenario_on, status, until,
    },
    tekton,
};

/// A hook of Start that runs until the scenario is over.
async fn endless_start_hook(s: &Scenario) {
    s.create(&running_for(hook("endless", &["Start"]), 3_600_000))
        .await;
}

async fn create(s: &Scenario, name: &str) {
    create_to(s, name, "4.18.5").await;
}

async fn create_to(s: &Scenario, name: &str, version: &str) {
    let config = json!({"machineConfigPools": hold_night("30m", None)});
    s.create(&job(name, Some(version), config)).await;
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

/// As Argo's UI does.
async fn stop(s: &Scenario, name: &str, how: &str) {
    s.edit_workflow(&format!("{name}-run-1"), json!({"spec": {"shutdown": how}}))
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

/// The ways in which people end a workflow, one upgrade after the other, and what the job says of each.
#[rstest]
#[case::argo(&Argo, &[("Stop", "stopped"), ("Terminate", "terminated")])]
#[case::tekton(&Tekton, &[
    ("Cancelled", "terminated"),
    ("CancelledRunFinally", "stopped"),
    ("StoppedRunFinally", "stopped"),
    ("RunCancelled", "stopped"),
])]
#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_workflow_that_is_ended_while_the_upgrade_is_under_way_ends_the_job(
    #[case] engine: &'static dyn Engine,
    #[case] ways: &[(&str, &str)],
) {
    scenario_on(engine, &[], async |s| {
        s.create(&hook("at-finish", &["Finish"])).await;
        s.fault("offers", "4.18.4,4.18.5,4.18.6,4.18.7").await;
        s.until_simulator_has_looked().await;
        for (n, (how, said)) in ways.iter().enumerate() {
            let name = format!("stopped-{n}");
            let version = format!("4.18.{}", n + 4);
            is_ended_while_under_way(s, &name, &version, how, said).await;
            assert_eq!(s.workflows().await.len(), n + 1, "it is not rendered again");
        }
    })
    .await;
}

async fn is_ended_while_under_way(s: &Scenario, name: &str, version: &str, how: &str, said: &str) {
    s.fault("stall-at", "40").await;
    create_to(s, name, version).await;
    s.until_job(name, "tells 40%", |j| {
        status(j).message.is_some_and(|m| m.contains("40% done"))
    })
    .await;
    if s.engine.kind() == EngineChoice::Tekton {
        tekton::cancel(s, name, "await-control-plane", how).await;
    } else {
        stop(s, name, how).await;
    }
    let done = s.until_over(name).await;
    s.until_workflow(&format!("{name}-run-1"), "has ended", is_over)
        .await;

    let message = failure(&done, "WorkflowStopped");
    assert!(message.contains(said), "{how}: {message}");
    let ran = status(&done).hook_tracker;
    assert!(
        matches!(&ran[..], [t] if t.status == HookState::Complete),
        "the hook of Finish runs: {ran:#?}"
    );
    assert!(has(&done, "PoolsLeftPaused").is_some());
    let cluster = s.cluster_version().await;
    assert_eq!(
        (desired(&cluster), lock(&cluster)),
        (Some(version), None),
        "an upgrade under way goes on"
    );
    let night = s.pool(NIGHT).await;
    assert!(night.spec.paused && is_owned(&night), "{night:#?}");
    s.fault("stall-at", "").await;
    s.until_cluster_version(&format!("{version} is installed"), |c| is_installed(c, version))
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
