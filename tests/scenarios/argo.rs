//! What is Argo's own: its controller told to do other things than usual, and what people do with `argo`. What is common to all
//! engines is told elsewhere.

use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use openshift_upgrade_operator::api::{
    UpgradeJob,
    upgrade_job::{EngineChoice, HookState, StepPhase},
};
use serde_json::{Value, json};

use crate::{
    engine_faults::{engine_of, has_succeeded, is_over, is_stopped, phase},
    harness::{
        NAMESPACE, Scenario, assert_succeeded, count_of, creations,
        database::Database,
        failure, has, is_at, is_installed, kubelet, lock,
        objects::{hook, job, running_for},
        scenario, status, until,
    },
    hook_templates, own_templates,
};

/// Its controller starts anew with these entries of its configuration, which it reads then, and these variables.
async fn configure(s: &Scenario, entries: Value, variables: &[(&str, &str)]) {
    let kind = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
    let maps = Api::<DynamicObject>::namespaced_with(s.client.clone(), "argo", &kind);
    let patch = Patch::Merge(json!({"data": entries}));
    maps.patch("workflow-controller-configmap", &PatchParams::default(), &patch)
        .await
        .expect("configuring Argo");
    s.lane.component("kill", "argo").await;
    s.lane.component_with("start", "argo", variables).await;
}

/// The job went on without a workflow, for this reason.
fn assert_left(done: &UpgradeJob, why: &str) {
    assert_succeeded(done);
    assert_eq!(engine_of(done), Some(EngineChoice::Embedded));
    let message = &has(done, "EngineStalled").unwrap().message;
    assert!(message.contains(why), "{message}");
}

/// Deletes an object of ours as a person would.
pub async fn delete(s: &Scenario, kind: &str, name: &str) {
    let api = s.dynamic("managedupgrade.appuio.io/v1beta1", kind);
    api.delete(name, &DeleteParams::default())
        .await
        .unwrap_or_else(|e| panic!("deleting {kind} {name}: {e}"));
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn however_its_controller_is_configured_jobs_come_to_their_end() {
    scenario(&[], async |s| {
        for (mode, name, version) in [("Strict", "strict", Some("4.18.5")), ("Secure", "secure", None)] {
            let mode = format!("templateReferencing: {mode}\n");
            configure(s, json!({"workflowRestrictions": mode}), &[]).await;
            s.create(&job(name, version, json!({}))).await;
            assert_left(&s.until_over(name).await, "templateReferencing");
            let workflow = format!("{name}-run-1");
            s.until_workflow(&workflow, "has ended with an error", |w| phase(w) == "Error")
                .await;
        }
        assert!(is_installed(&s.cluster_version().await, "4.18.5"));
        removed_when_it_has_ended(s).await;
        nodes_are_compressed(s).await;
        nodes_are_in_a_database(s).await;
        own_templates::one_that_is_mended_in_time_is_told_and_taken(s).await;
        own_templates::one_that_is_made_to_wait_says_so(s).await;
        own_templates::one_that_is_made_to_wait_too_long_is_skipped(s).await;
    })
    .await;
}

/// `ttlStrategy`, for all workflows: what the job still follows, or has its last hook in, goes away under it.
async fn removed_when_it_has_ended(s: &Scenario) {
    let defaults = "spec:\n  ttlStrategy:\n    secondsAfterCompletion: 0\n";
    configure(
        s,
        json!({"workflowRestrictions": null, "workflowDefaults": defaults}),
        &[],
    )
    .await;
    s.create(&running_for(hook("endless", &["Start"]), 3_600_000))
        .await;
    s.create(&running_for(hook("last", &["Finish"]), 9_000)).await;
    s.create(&job("removed", None, json!({}))).await;
    s.until_step_runs("removed", "hook-start-endless").await;
    // Its deadline is Argo's way to end what waits.
    s.edit_workflow("removed-run-1", json!({"spec": {"activeDeadlineSeconds": 1}}))
        .await;
    until_gone(s, "removed-run-1").await;
    s.until_workflow("removed-run-2", "is at the hook", |w| {
        is_at(w, "hook-start-endless")
    })
    .await;
    // However busy the operator is: what the watch has brought tells a stop from a deletion.
    s.operator().signal("STOP");
    s.edit_workflow("removed-run-2", json!({"spec": {"shutdown": "Terminate"}}))
        .await;
    until_gone(s, "removed-run-2").await;
    s.operator().signal("CONT");
    let done = s.until_over("removed").await;
    failure(&done, "WorkflowStopped");
    let last: Vec<_> = status(&done)
        .hook_tracker
        .into_iter()
        .filter(|t| t.upgrade_job_hook == "last")
        .collect();
    assert!(
        matches!(&last[..], [t] if t.status == HookState::Complete),
        "{last:#?}"
    );
    let writes = s.operators_writes();
    assert_eq!(creations(&writes, "jobs").count(), 2, "each hook ran once");
    assert_eq!(lock(&s.cluster_version().await), None);
    for name in ["endless", "last"] {
        delete(s, "UpgradeJobHook", name).await;
    }
}

async fn until_gone(s: &Scenario, name: &str) {
    until(&format!("workflow {name} is gone"), async || {
        let found = s.workflow_api().get_opt(name).await;
        found.is_ok_and(|f| f.is_none()).then_some(())
    })
    .await;
}

/// As Argo does with a workflow of more than 1 MiB; this one may have little more than it has when it is made.
async fn nodes_are_compressed(s: &Scenario) {
    s.lane.component("kill", "argo").await;
    s.create(&job("compressed", None, json!({}))).await;
    let made = s.until_workflow("compressed-run-1", "is there", |_| true).await;
    let size = serde_json::to_string(&made).unwrap().len() + 2_500;
    let size = size.to_string();
    configure(
        s,
        json!({"workflowDefaults": null}),
        &[("MAX_WORKFLOW_SIZE", &size)],
    )
    .await;
    let done = s.until_over("compressed").await;
    assert_left(
        &done,
        "Argo has compressed the steps of workflow compressed-run-1",
    );
    let workflow = s.until_workflow("compressed-run-1", "has ended", is_over).await;
    assert!(is_stopped(&workflow), "{workflow:#?}");
}

/// With `ALWAYS_OFFLOAD_NODE_STATUS` all steps are there from the first on.
async fn nodes_are_in_a_database(s: &Scenario) {
    let database = Database::start(&s.lane).await;
    let kind = ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
    let secrets = Api::<DynamicObject>::namespaced_with(s.client.clone(), "argo", &kind);
    let secret = serde_json::from_value(database.secret()).expect("a Secret");
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .expect("giving Argo a Secret");
    configure(
        s,
        json!({"persistence": database.persistence().to_string()}),
        &[("ALWAYS_OFFLOAD_NODE_STATUS", "true")],
    )
    .await;
    s.create(&job("offloaded", None, json!({}))).await;
    let done = s.until_over("offloaded").await;
    assert_left(
        &done,
        "Argo keeps the steps of workflow offloaded-run-1 in its database",
    );
    let workflow = s.until_workflow("offloaded-run-1", "has ended", is_over).await;
    assert!(is_stopped(&workflow), "{workflow:#?}");
    let shown = &workflow.data["status"];
    let version = shown["offloadNodeStatusVersion"].as_str().unwrap_or_default();
    assert!(
        version.starts_with("fnv:") && shown["nodes"].is_null(),
        "{shown:#}"
    );
    configure(s, json!({"persistence": null}), &[]).await;
}

/// `argo …` as a person calls it, which must be refused with this text, or go well where there is none.
#[track_caller]
pub fn argo(s: &Scenario, arguments: &[&str], refusal: Option<&str>) -> String {
    let (is_well, text) = s.lane.program("argo", &[&["-n", NAMESPACE], arguments].concat());
    match refusal {
        None => assert!(is_well, "argo {arguments:?}: {text}"),
        Some(why) => assert!(!is_well && text.contains(why), "argo {arguments:?}: {text}"),
    }
    text
}

fn step_phase(job: &UpgradeJob, step: &str) -> Option<StepPhase> {
    let steps = status(job).steps;
    steps.iter().find(|s| s.name == step).map(|s| s.phase)
}

/// What it is, but for when and what of it was written last.
pub fn outcome(job: &UpgradeJob) -> Value {
    let status = status(job);
    json!({"steps": status.steps, "conditions": status.conditions, "hooks": status.hook_tracker,
        "phase": status.phase, "message": status.message})
}

/// Makes a job that waits for an operator that is not well; its control plane will stand still at 40 %.
pub async fn waits_for_etcd(s: &Scenario, name: &str) {
    s.fault(
        "degraded-operators",
        "etcd EtcdMembersDegraded 1 of 3 members is unhealthy",
    )
    .await;
    s.until_simulator_has_looked().await;
    s.fault("stall-at", "40").await;
    s.create(&job(name, Some("4.18.5"), json!({}))).await;
    s.until_job(name, "waits for etcd", |j| {
        status(j)
            .message
            .is_some_and(|m| m.contains("operator etcd is Degraded"))
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn people_resume_suspend_and_retry_as_argo_lets_them_and_nothing_happens_twice() {
    scenario(&[], async |s| {
        waits_for_etcd(s, "j").await;
        one_step_is_resumed(s).await;
        all_is_suspended(s).await;
        let done = s.until_over("j").await;
        assert_succeeded(&done);
        assert_eq!(
            step_phase(&done, "await-control-plane"),
            Some(StepPhase::Overridden)
        );
        retried(s, &done).await;
        ended_and_deleted_in_mid_run(s).await;
        let asked = s.operators_writes();
        let asked = asked.iter().filter(|w| w.is_of_desired_update());
        assert_eq!(asked.count(), 1, "writes of desiredUpdate");
    })
    .await;
}

/// A check is approved so; any other step goes on until the cluster is there.
async fn one_step_is_resumed(s: &Scenario) {
    let all_at_once = "has not been set and does not have a default value";
    argo(s, &["resume", "j-run-1"], Some(all_at_once));
    let one = |step: &str| format!("displayName={step}");
    argo(
        s,
        &[
            "resume",
            "j-run-1",
            "--node-field-selector",
            &one("pre-health-check"),
        ],
        None,
    );
    let job = s.until_step_runs("j", "await-control-plane").await;
    assert_eq!(step_phase(&job, "pre-health-check"), Some(StepPhase::Overridden));
    let told = s.events_about("j").await;
    assert!(count_of(&told, "Overridden") > 0);
    s.fault("degraded-operators", "").await;

    argo(
        s,
        &[
            "resume",
            "j-run-1",
            "--node-field-selector",
            &one("await-control-plane"),
        ],
        None,
    );
    s.until_job("j", "says what the next step waits for", |j| {
        let steps = status(j).steps;
        let next = steps.iter().find(|x| x.name == "await-pools");
        next.and_then(|x| x.message.as_deref()) == Some("waiting for step await-control-plane")
    })
    .await;
    assert_eq!(
        step_phase(&s.job("j").await, "await-control-plane"),
        Some(StepPhase::Running)
    );
}

/// The cluster goes on, the job does not, until the command is given that the job tells.
async fn all_is_suspended(s: &Scenario) {
    argo(s, &["suspend", "j-run-1"], None);
    s.until_job("j", "says that it is suspended", |j| {
        status(j)
            .message
            .is_some_and(|m| m.contains("suspended by a person"))
    })
    .await;
    s.fault("stall-at", "").await;
    s.until_cluster_version("4.18.5 is installed", |c| is_installed(c, "4.18.5"))
        .await;
    let job = s.job("j").await;
    assert_eq!(step_phase(&job, "await-control-plane"), Some(StepPhase::Running));
    argo(s, &["resume", "j-run-1"], Some("does not have a default value"));
    argo(
        s,
        &["retry", "j-run-1"],
        Some("Cannot retry a workflow in phase Running"),
    );
    own_templates::resume_as_told(s, "j").await;
}

/// Once the job is over, and while another one runs.
async fn retried(s: &Scenario, done: &UpgradeJob) {
    let ended = s.until_workflow("j-run-1", "has succeeded", has_succeeded).await;
    let again = "--restart-successful";
    let step = "displayName=set-desired-update";
    argo(
        s,
        &["retry", "j-run-1", again, "--node-field-selector", step],
        None,
    );
    until_ended_again(s, "j-run-1", &ended).await;
    argo(s, &["resubmit", "j-run-1"], None);
    let copy = until("the copy has ended", async || {
        let all = s.workflows().await;
        all.into_iter()
            .find(|w| w.metadata.name.as_deref() != Some("j-run-1") && is_over(w))
    })
    .await;
    assert!(is_stopped(&copy), "{copy:#?}");
    assert_eq!(outcome(&s.job("j").await), outcome(done));
}

/// The workflows of another job, which has nothing to do but hooks: the first ends by its own deadline and is retried while the
/// second is followed, and that one is deleted.
async fn ended_and_deleted_in_mid_run(s: &Scenario) {
    s.create(&hook_templates::template()).await;
    s.create(&hook_templates::hook("broken", &["Start"], "Ignore", "3,0"))
        .await;
    s.create(&running_for(hook("slow", &["Start"]), 3_600_000)).await;
    s.create(&job("again", None, json!({}))).await;
    s.until_job("again", "has run the hook that fails", |j| {
        hook_templates::tracked(j) == ["broken@Start=Failed", "slow@Start=Active"]
    })
    .await;
    s.edit_workflow("again-run-1", json!({"spec": {"activeDeadlineSeconds": 1}}))
        .await;
    s.until_workflow("again-run-2", "is at the hook", |w| is_at(w, "hook-start-slow"))
        .await;
    hook_templates::run_again_by_a_person(s, "again-run-1").await;
    let followed = status(&s.job("again").await).workflow.unwrap();
    assert_eq!(followed.name, "again-run-2");

    let gone = s
        .workflow_api()
        .delete("again-run-2", &DeleteParams::default())
        .await;
    gone.expect("deleting a workflow");
    s.until_workflow("again-run-3", "is at the hook", |w| is_at(w, "hook-start-slow"))
        .await;
    kubelet::end_pods_of_jobs(&s.client).await;
    let done = s.until_over("again").await;
    assert_succeeded(&done);
    let followed = status(&done).workflow.unwrap();
    assert_eq!(
        (followed.engine, followed.name.as_str()),
        (EngineChoice::Argo, "again-run-3")
    );
    s.until_workflow("again-run-3", "has succeeded", has_succeeded)
        .await;
    let told = s.events_about("again").await;
    for reason in ["WorkflowRenderedAgain", "OtherWorkflowStopped"] {
        assert!(count_of(&told, reason) > 0, "{reason}");
    }
    let writes = s.operators_writes();
    assert_eq!(creations(&writes, "jobs").count(), 1, "the hook ran once");
}

/// It has run and ended once more.
pub async fn until_ended_again(s: &Scenario, name: &str, before: &DynamicObject) -> DynamicObject {
    let started = before.data["status"]["startedAt"].clone();
    s.until_workflow(name, "has ended again", |w| {
        is_over(w) && w.data["status"]["startedAt"] != started
    })
    .await
}
