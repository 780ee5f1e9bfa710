//! What is Tekton's own: runs that are cancelled in its ways, lost, or end badly. What is common to all engines is told elsewhere.

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use openshift_upgrade_operator::{
    api::{
        UpgradeJob,
        upgrade_job::{EngineChoice, HookState},
    },
    engine::{Engine, NodePhase, Run, tekton::Tekton},
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    engine_faults::{is_over, submit_again},
    harness::{
        NAMESPACE, NIGHT, Scenario, assert_succeeded,
        audit::Request,
        desired, failure, history, is_installed, lock, node_phase,
        objects::{failing_hook, hold_night, hook, job, running_for},
        plan_of, scenario_on, status, until,
    },
};

async fn create(s: &Scenario, name: &str) {
    s.create(&job(
        name,
        Some("4.18.5"),
        json!({"machineConfigPools": hold_night("30m", None)}),
    ))
    .await;
}

/// The run once it has ended, with nothing in it left running.
async fn ended(s: &Scenario, job: &UpgradeJob) -> Run {
    let (name, plan) = (format!("{}-run-1", job.name_any()), plan_of(job));
    until("the PipelineRun has ended, and all its CustomRuns", async || {
        let run = s.run(&name, &plan).await;
        let is_over = run.finished && run.nodes.iter().all(|n| n.phase != NodePhase::Running);
        is_over.then_some(run)
    })
    .await
}

/// A template of a user's own: ours, with an annotation.
fn own_template() -> Value {
    let ours = include_str!("../../workflow-templates/tekton/upgrade-pipelinerun.yaml.hbs");
    let head = "metadata:\n";
    let own = ours.replacen(
        head,
        &format!("{head}  annotations: {{for: the night shift}}\n"),
        1,
    );
    assert_ne!(own, ours);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "own", "namespace": NAMESPACE},
        "data": {"upgrade-pipelinerun.yaml.hbs": own},
    })
}

/// Besides, the PipelineRun is made by a template of the user's own, and goes after the time that its job sets.
#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_failed_hook_fails_the_run_and_its_exit_part_is_run() {
    scenario_on(&Tekton, &[], async |s| {
        s.create(&own_template()).await;
        s.create(&failing_hook("broken", &["Start"], "Abort")).await;
        for event in ["Success", "Failure", "Finish"] {
            s.create(&hook(&format!("at-{}", event.to_lowercase()), &[event]))
                .await;
        }
        let config = json!({"workflow": {"template": {"name": "own"}}});
        s.create(&job("failed", Some("4.18.5"), config)).await;
        let done = s.until_over("failed").await;

        let message = failure(&done, "HookFailed");
        assert!(message.contains("broken"), "{message}");
        assert_eq!(status(&done).workflow.unwrap().engine, EngineChoice::Tekton);
        let run = ended(s, &done).await;
        assert_eq!(run.phase, "Failed");
        let ends = [
            "hook-start-broken",
            "pre-health-check",
            "release",
            "hooks-failure",
            "hooks-success",
        ]
        .map(|step| node_phase(&run, step));
        assert_eq!(
            ends,
            [
                Some(NodePhase::Failed),
                Some(NodePhase::LeftOut),
                Some(NodePhase::Succeeded),
                Some(NodePhase::Succeeded),
                Some(NodePhase::Skipped),
            ]
        );
        let ran: Vec<String> = status(&done)
            .hook_tracker
            .iter()
            .filter(|t| t.status == HookState::Complete)
            .map(|t| t.upgrade_job_hook.clone())
            .collect();
        assert_eq!(ran, ["at-failure", "at-finish"]);
        let cluster = s.cluster_version().await;
        assert_eq!((lock(&cluster), desired(&cluster)), (None, None));

        let made = s.workflow_api().get("failed-run-1").await;
        let made = made.expect("the PipelineRun of a job without ttl stays");
        assert_eq!(
            made.annotations().get("for").map(String::as_str),
            Some("the night shift")
        );
        submit_again(s, "failed-run-1", "failed-run-1-again").await;
        s.until_workflow("failed-run-1-again", "has ended", is_over).await;
        let soon = json!({"spec": {"config": {"workflow": {"ttl": "1s"}}}});
        s.edit_job("failed", soon).await;
        until("all PipelineRuns of the job are gone", async || {
            s.workflows().await.is_empty().then_some(())
        })
        .await;
    })
    .await;
}

fn steps_api(s: &Scenario) -> Api<DynamicObject> {
    let kind = Tekton.step_resource().expect("CustomRun");
    Api::namespaced_with(s.client.clone(), NAMESPACE, &kind)
}

/// A person cancels the CustomRun of a step.
async fn cancel_step(s: &Scenario, run: &str, step: &str) {
    let of_step = format!("tekton.dev/pipelineRun={run},tekton.dev/pipelineTask={step}");
    let of_step = ListParams::default().labels(&of_step);
    let found = steps_api(s)
        .list(&of_step)
        .await
        .expect("listing CustomRuns")
        .items;
    let name = found.first().expect("the CustomRun").name_any();
    let patch = json!({"spec": {"status": "RunCancelled", "statusMessage": "no more"}});
    steps_api(s)
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .expect("cancelling a CustomRun");
}

/// A person cancels the run of a job in this way; `RunCancelled` is the way to cancel a step of it.
pub async fn cancel(s: &Scenario, job: &str, step: &str, how: &str) {
    let run = format!("{job}-run-1");
    if how == "RunCancelled" {
        return cancel_step(s, &run, step).await;
    }
    s.edit_workflow(&run, json!({"spec": {"status": how}})).await;
}

#[rstest]
#[case::cancelled("Cancelled", "terminated")]
#[case::cancelled_run_finally("CancelledRunFinally", "stopped")]
#[case::stopped_run_finally("StoppedRunFinally", "stopped")]
#[case::one_step("RunCancelled", "stopped")]
#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn who_cancels_a_run_before_desired_update_was_set_ends_the_job(#[case] how: &str, #[case] said: &str) {
    scenario_on(&Tekton, &[], async |s| {
        s.create(&running_for(hook("endless", &["Start"]), 3_600_000))
            .await;
        create(s, "cancelled").await;
        s.until_step_runs("cancelled", "hook-start-endless").await;
        cancel(s, "cancelled", "hook-start-endless", how).await;
        let done = s.until_over("cancelled").await;

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
        let run = ended(s, &done).await;
        assert_eq!(node_phase(&run, "hook-start-endless"), Some(NodePhase::Failed));
        assert_eq!(
            node_phase(&run, "pre-health-check").unwrap_or(NodePhase::LeftOut),
            NodePhase::LeftOut
        );
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_deleted_run_goes_on_as_another_and_a_killed_operator_goes_on_where_it_was() {
    scenario_on(&Tekton, &[], async |s| {
        s.fault("stall-at", "40").await;
        s.create(&job("lost", Some("4.18.5"), json!({}))).await;
        s.until_step_runs("lost", "await-control-plane").await;
        s.workflow_api()
            .delete("lost-run-1", &DeleteParams::default())
            .await
            .expect("deleting the PipelineRun");
        s.until_job("lost", "goes on as another run", |j| {
            let workflow = status(j).workflow;
            workflow.is_some_and(|w| w.name == "lost-run-2" && w.uid.is_some())
        })
        .await;
        s.kill_operator();
        s.fault("stall-at", "").await;
        s.until_cluster_version("4.18.5 is installed", |c| is_installed(c, "4.18.5"))
            .await;
        s.start_operator();

        let done = s.until_over("lost").await;
        assert_succeeded(&done);
        let run = until("the PipelineRun has ended", async || {
            Some(s.run("lost-run-2", &plan_of(&done)).await).filter(|r| r.finished)
        })
        .await;
        assert_eq!(run.phase, "Completed", "{:?}", run.message);
        assert_eq!(
            node_phase(&run, "set-desired-update"),
            None,
            "it is not done again"
        );
        let writes = s.operators_writes();
        assert_eq!(writes.iter().filter(|w| w.is_of_desired_update()).count(), 1);
    })
    .await;
}
