//! Real engines that do not do their part, and workflows that people lay hands on: the upgrade goes on, nothing happens twice,
//! and nothing waits for ever.

use k8s_openapi::{
    api::core::v1::ResourceQuota,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};
use openshift_upgrade_operator::{
    api::{UpgradeJob, upgrade_job::EngineChoice},
    engine::{Engine, argo::Argo, tekton::Tekton},
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    harness::{
        NAMESPACE, Scenario, assert_succeeded, condition, count_of, creations, failure, has, is_at,
        is_installed,
        objects::{hold_night, hook, job, since_start},
        scenario, scenario_on, status,
        timeline::Timeline,
        until,
    },
    hook_templates, own_templates,
};

/// Long enough to be seen, short enough to be waited for. Only while every silence of the engine is to end in a hand-over: on a
/// busy machine one that is at work may be silent for as long.
pub const SOON: [&str; 2] = ["--engine-handover-after", "20s"];
/// For an operator that is given [`SOON`] in mid-run, or stands still: its Lease would be in the way of the next one, or go to
/// another.
pub const ALONE: [&str; 1] = ["--leader-election=false"];

pub fn engine_of(job: &UpgradeJob) -> Option<EngineChoice> {
    status(job).workflow.map(|w| w.engine)
}

/// Argo's phase; with Tekton the reason of the one condition.
pub fn phase(workflow: &DynamicObject) -> &str {
    let reason = succeeded(workflow).and_then(|c| c["reason"].as_str());
    let phase = workflow.data["status"]["phase"].as_str();
    phase.or(reason).unwrap_or_default()
}

/// Tekton's condition.
pub fn succeeded(workflow: &DynamicObject) -> Option<&Value> {
    let conditions = workflow.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == "Succeeded")
}

pub fn is_over(workflow: &DynamicObject) -> bool {
    let is_tekton = succeeded(workflow).is_some_and(|c| c["status"] != "Unknown");
    is_tekton || matches!(phase(workflow), "Succeeded" | "Failed" | "Error")
}

pub fn has_succeeded(workflow: &DynamicObject) -> bool {
    is_over(workflow) && matches!(phase(workflow), "Succeeded" | "Completed")
}

/// The operator has stopped it without its exit part.
pub fn is_stopped(workflow: &DynamicObject) -> bool {
    let spec = &workflow.data["spec"];
    let is_asked = spec["shutdown"] == "Terminate" || spec["status"] == "Cancelled";
    is_asked && is_over(workflow) && !has_succeeded(workflow)
}

/// A workflow of somebody else, which waits for ever.
fn stranger(engine: &dyn Engine) -> Value {
    let resource = engine.resource();
    let spec = if engine.kind() == EngineChoice::Tekton {
        let task = json!({"name": "wait", "taskRef": {"apiVersion": "example.com/v1", "kind": "Wait"}});
        json!({"pipelineSpec": {"tasks": [task]}, "timeouts": {"pipeline": "0"}})
    } else {
        json!({"entrypoint": "wait", "templates": [{"name": "wait", "suspend": {}}]})
    };
    json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": "j-run-1", "namespace": NAMESPACE}, "spec": spec,
    })
}

/// A job whose control plane stays at 40%, with a pool that is held for a second.
pub async fn start(s: &Scenario, name: &str) {
    s.create(&hook("at-complete", &["UpgradeComplete"])).await;
    s.create(&hook("at-finish", &["Finish"])).await;
    s.fault("stall-at", "40").await;
    let config = json!({"machineConfigPools": hold_night("1s", None)});
    s.create(&job(name, Some("4.18.5"), config)).await;
    s.until_job(name, "tells 40%", |j| {
        status(j).message.is_some_and(|m| m.contains("40% done"))
    })
    .await;
}

/// The control plane goes on, and the job comes to its end. Each hook ran once, and desiredUpdate was set once.
pub async fn assert_done_once(s: &Scenario, name: &str) -> UpgradeJob {
    s.fault("stall-at", "").await;
    let done = s.until_over(name).await;
    assert_succeeded(&done);
    assert!(is_installed(&s.cluster_version().await, "4.18.5"));
    let writes = s.operators_writes();
    assert_eq!(creations(&writes, "jobs").count(), 2, "Jobs of hooks");
    let asked = writes.iter().filter(|w| w.is_of_desired_update());
    assert_eq!(asked.count(), 1, "writes of desiredUpdate");
    assert_eq!(status(&done).former_workflows, []);
    done
}

/// The job was done without its engine, and says why.
pub fn assert_handed_over(job: &UpgradeJob, told: &str) {
    assert_eq!(condition(job, "EngineStalled"), "EngineStalled=True/HandedOver");
    let message = &has(job, "EngineStalled").unwrap().message;
    assert!(message.contains(told), "{message}");
}

/// The engine of the scenario starts again, and finds the workflow of job `j` stopped.
pub async fn workflow_is_stopped_when_the_engine_is_back(s: &Scenario) {
    s.lane.component("start", s.engine.kind().as_str()).await;
    let workflow = s.until_workflow("j-run-1", "has ended", is_over).await;
    assert!(is_stopped(&workflow), "{workflow:#?}");
}

#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn an_engine_that_stays_away_in_mid_run_is_left_and_its_workflow_is_stopped(
    #[case] engine: &'static dyn Engine,
) {
    scenario_on(engine, &ALONE, async |s| {
        start(s, "j").await;
        s.restart_operator(&SOON).await;
        s.lane.component("kill", engine.kind().as_str()).await;
        s.fault("stall-at", "").await;
        s.until_job("j", "goes on without the engine", |j| {
            engine_of(j) == Some(EngineChoice::Embedded)
        })
        .await;
        let done = assert_done_once(s, "j").await;
        let told = "the engine has not gone on to step await-pools of workflow j-run-1 since";
        assert_handed_over(&done, told);
        workflow_is_stopped_when_the_engine_is_back(s).await;
        assert_eq!(s.workflows().await.len(), 1);
    })
    .await;
}

#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn an_engine_that_never_picks_the_workflow_up_is_told_and_left(#[case] engine: &'static dyn Engine) {
    scenario_on(engine, &SOON, async |s| {
        s.lane.component("kill", engine.kind().as_str()).await;
        s.create(&job("j", Some("4.18.5"), json!({}))).await;
        let done = s.until_over("j").await;
        assert_succeeded(&done);
        let message = &has(&done, "EngineStalled").unwrap().message;
        assert!(
            message.contains("has not picked up workflow j-run-1 since"),
            "{message}"
        );
        assert_eq!(count_of(&s.events_about("j").await, "HandedOver"), 1);
        workflow_is_stopped_when_the_engine_is_back(s).await;
        own_templates::one_that_is_never_mended_is_told_and_the_job_goes_on(s).await;
    })
    .await;
}

#[rstest]
#[case::its_workflows(&Argo, "workflows")]
#[case::all_that_it_has(&Tekton, "")]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn kinds_that_are_removed_in_mid_run_cost_the_workflow_and_nothing_else(
    #[case] engine: &'static dyn Engine,
    #[case] plural: &str,
) {
    scenario_on(engine, &ALONE, async |s| {
        start(s, "j").await;
        s.restart_operator(&SOON).await;
        let kinds: Api<CustomResourceDefinition> = Api::all(s.client.clone());
        let all = kinds
            .list(&ListParams::default())
            .await
            .expect("listing kinds")
            .items;
        let group = s.engine.resource().group;
        let removed = |k: &&CustomResourceDefinition| {
            k.spec.group == group && (plural.is_empty() || k.spec.names.plural == plural)
        };
        for kind in all.iter().filter(removed) {
            let name = kind.name_any();
            kinds
                .delete(&name, &DeleteParams::default())
                .await
                .unwrap_or_else(|e| panic!("deleting kind {name}: {e}"));
        }
        s.until_job("j", "goes on without the engine", |j| {
            engine_of(j) == Some(EngineChoice::Embedded)
        })
        .await;
        assert_done_once(s, "j").await;
        let told = Timeline::of(&s.operators_writes(), "j").condition("EngineStalled");
        assert_eq!(told, ["True/NotCreated", "True/HandedOver"]);
    })
    .await;
}

/// The deadline of a workflow is Argo's way to end what waits.
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn steps_that_argo_itself_ends_go_on_in_the_next_attempt() {
    scenario(&[], async |s| {
        start(s, "j").await;
        s.edit_workflow("j-run-1", json!({"spec": {"activeDeadlineSeconds": 1}}))
            .await;
        s.until_workflow("j-run-2", "is at await-control-plane", |w| {
            is_at(w, "await-control-plane")
        })
        .await;
        let workflow = s.until_workflow("j-run-1", "has ended", is_over).await;
        let nodes = workflow.data["status"]["nodes"].as_object().unwrap();
        let step = nodes
            .values()
            .find(|n| n["displayName"] == "await-control-plane")
            .unwrap();
        assert_eq!(step["message"], "Step exceeded its deadline");
        let done = assert_done_once(s, "j").await;
        assert_eq!(status(&done).workflow.unwrap().name, "j-run-2");
    })
    .await;
}

/// As `argo resubmit` and Tekton's *Rerun* do: the same labels, owner and spec, another name.
pub async fn submit_again(s: &Scenario, name: &str, copy: &str) {
    let api = s.workflow_api();
    let mut object = api.get(name).await.expect("the workflow");
    let kept = (
        object.metadata.labels,
        object.metadata.owner_references,
        object.metadata.annotations,
    );
    object.metadata = kube::api::ObjectMeta {
        name: Some(copy.to_owned()),
        labels: kept.0,
        owner_references: kept.1,
        annotations: kept.2,
        ..kube::api::ObjectMeta::default()
    };
    let labels = object.metadata.labels.get_or_insert_default();
    labels.retain(|key, _| !key.starts_with("workflows.argoproj.io/") && !key.starts_with("tekton.dev/"));
    object.data.as_object_mut().unwrap().remove("status");
    let spec = object.data["spec"].as_object_mut().unwrap();
    spec.retain(|field, _| field != "shutdown" && field != "status");
    api.create(&PostParams::default(), &object).await.expect("a copy");
}

#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_workflow_that_is_submitted_again_is_stopped_and_nothing_happens_twice(
    #[case] engine: &'static dyn Engine,
) {
    scenario_on(engine, &[], async |s| {
        start(s, "j").await;
        submit_again(s, "j-run-1", "j-run-1-again").await;
        let copy = s.until_workflow("j-run-1-again", "has ended", is_over).await;
        assert!(is_stopped(&copy), "{copy:#?}");
        let done = assert_done_once(s, "j").await;
        assert_eq!(status(&done).workflow.unwrap().name, "j-run-1");
        s.until_workflow("j-run-1", "has succeeded", has_succeeded).await;

        submit_again(s, "j-run-1", "j-run-1-late").await;
        let copy = s.until_workflow("j-run-1-late", "has ended", is_over).await;
        assert!(is_stopped(&copy), "{copy:#?}");
        let after = status(&s.job("j").await);
        assert_eq!(
            (after.steps, after.conditions),
            (status(&done).steps, status(&done).conditions)
        );
        assert!(count_of(&s.events_about("j").await, "OtherWorkflowStopped") >= 1);
    })
    .await;
}

#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_workflow_whose_labels_are_removed_is_left_for_the_next(#[case] engine: &'static dyn Engine) {
    scenario_on(engine, &[], async |s| {
        start(s, "j").await;
        let none = json!({"managedupgrade.appuio.io/upgrade-job": null, "managedupgrade.appuio.io/upgrade-job-uid": null});
        s.edit_workflow("j-run-1", json!({"metadata": {"labels": none, "ownerReferences": null}}))
            .await;
        let workflow = s.until_workflow("j-run-1", "has ended", is_over).await;
        assert!(is_stopped(&workflow), "{workflow:#?}");
        let done = assert_done_once(s, "j").await;
        assert_eq!(status(&done).workflow.unwrap().name, "j-run-2");
    })
    .await;
}

#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_name_that_a_stranger_has_taken_is_left_to_it(#[case] engine: &'static dyn Engine) {
    scenario_on(engine, &[], async |s| {
        s.create(&stranger(engine)).await;
        s.create(&job("j", Some("4.18.5"), json!({}))).await;
        let done = s.until_over("j").await;
        assert_succeeded(&done);
        assert_eq!(status(&done).workflow.unwrap().name, "j-run-2");
        let found = s.workflow_api().get("j-run-1").await.unwrap();
        assert!(!is_over(&found), "{found:#?}");
        // The engine itself fills in what its spec leaves out, and gives it labels.
        let kind = engine.resource().plural;
        let mut writes = s.operators_writes();
        writes.retain(|w| w.resource.split('/').next() == Some(&kind) && w.name == "j-run-1");
        assert!(writes.is_empty(), "{writes:#?}");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_step_that_is_removed_from_the_workflow_by_hand_is_done_all_the_same() {
    scenario(&ALONE, async |s| {
        start(s, "j").await;
        s.restart_operator(&SOON).await;
        let workflow = s.workflow_api().get("j-run-1").await.unwrap();
        let mut templates = workflow.data["spec"]["templates"].clone();
        let tasks = templates[0]["dag"]["tasks"].as_array_mut().unwrap();
        tasks.retain(|t| t["name"] != "await-pools");
        let depends = tasks
            .iter_mut()
            .find(|t| t["name"] == "post-health-check")
            .unwrap();
        depends["depends"] = json!("await-control-plane.Succeeded");
        s.edit_workflow("j-run-1", json!({"spec": {"templates": templates}}))
            .await;
        let done = assert_done_once(s, "j").await;
        let step = status(&done)
            .steps
            .into_iter()
            .find(|x| x.name == "await-pools")
            .unwrap();
        assert!(step.finished_at.is_some(), "{step:?}");
        s.until_workflow("j-run-1", "has ended", is_over).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_workflow_that_a_person_paused_ends_with_its_job() {
    scenario(&[], async |s| {
        s.create(&hook("at-finish", &["Finish"])).await;
        s.fault("stall-at", "40").await;
        s.create(&job("j", Some("4.18.5"), json!({}))).await;
        s.until_job("j", "tells 40%", |j| {
            status(j).message.is_some_and(|m| m.contains("40% done"))
        })
        .await;
        s.edit_workflow("j-run-1", json!({"spec": {"suspend": true}}))
            .await;
        let paused = s
            .until_job("j", "says that it is suspended", |j| {
                status(j)
                    .message
                    .is_some_and(|m| m.contains("suspended by a person"))
            })
            .await;
        let timeout = since_start(&paused, 2);
        s.edit_job("j", json!({"spec": {"config": {"upgradeTimeout": timeout}}}))
            .await;
        let done = s.until_over("j").await;
        assert!(failure(&done, "TimedOut").contains("suspended by a person"));
        let workflow = s.until_workflow("j-run-1", "has ended", is_over).await;
        assert_eq!(phase(&workflow), "Failed");
        let nodes = workflow.data["status"]["nodes"].as_object().unwrap();
        let finish = nodes
            .values()
            .find(|n| n["displayName"] == "hooks-finish")
            .unwrap();
        assert_eq!(finish["phase"], "Succeeded");
        s.fault("stall-at", "").await;
    })
    .await;
}

/// From now on a quota refuses all pods: that of the name `none`.
pub async fn refuse_all_pods(s: &Scenario) -> Api<ResourceQuota> {
    let quotas: Api<ResourceQuota> = Api::namespaced(s.client.clone(), NAMESPACE);
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    until("the quota counts", async || {
        let quota = quotas.get("none").await.ok()?;
        quota.status?.hard.filter(|h| !h.is_empty())
    })
    .await;
    quotas
}

/// Argo tries for ever to make a pod that a quota refuses.
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_quota_that_refuses_the_pod_of_a_hook_is_told_until_there_is_room() {
    scenario(&[], async |s| {
        let quotas = refuse_all_pods(s).await;
        s.create(&hook_templates::template()).await;
        s.create(&hook_templates::hook("a", &["Start"], "Abort", "0"))
            .await;
        s.create(&job("j", Some("4.18.5"), json!({}))).await;
        s.until_job("j", "tells of the quota", |j| {
            status(j).message.is_some_and(|m| m.contains("exceeded quota"))
        })
        .await;
        quotas.delete("none", &DeleteParams::default()).await.unwrap();
        assert_succeeded(&s.until_over("j").await);
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_service_account_that_is_missing_fails_the_hook_and_is_named() {
    scenario(&[], async |s| {
        s.create(&hook_templates::template()).await;
        s.create(&hook_templates::hook("a", &["Start"], "Abort", "0"))
            .await;
        let config = json!({"workflow": {"serviceAccountName": "gone"}});
        s.create(&job("j", Some("4.18.5"), config)).await;
        let done = s.until_over("j").await;
        let message = failure(&done, "HookFailed");
        assert!(message.contains("serviceaccount \"gone\" not found"), "{message}");
    })
    .await;
}
