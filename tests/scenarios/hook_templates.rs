//! Hooks that are WorkflowTemplates: the real workflow controller runs them, and a stand-in kubelet says how their pods die.

use kube::{ResourceExt, api::DynamicObject};
use openshift_upgrade_operator::api::{
    UpgradeJob,
    annotations::SEALED_AT,
    upgrade_job::{HookState, StepStatus},
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    argo::{argo, delete, outcome, until_ended_again},
    engine_faults::{is_over, is_stopped, phase},
    harness::{
        ArgoVersion, NAMESPACE, Scenario, assert_succeeded, condition, creations, desired, failure, has,
        is_installed, kubelet, lock,
        objects::{hold_night, in_seconds, job},
        scenario, scenario_on_argo, status, until,
    },
};

/// Runs a pod that dies as the argument `attempts` says, then one for each pool or event.
pub fn template() -> Value {
    let secure = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "WorkflowTemplate",
        "metadata": {"name": "dying", "namespace": NAMESPACE},
        "spec": {
            "entrypoint": "flow",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "arguments": {"parameters": [{"name": "greeting", "value": "hello"}]},
            "templates": [
                {"name": "flow",
                 "inputs": {"parameters": [{"name": "attempts", "value": "0"}, {"name": "event"}, {"name": "job"}]},
                 "steps": [[{"name": "pod", "template": "pod", "arguments": {"parameters": [
                    {"name": "attempts", "value": "{{inputs.parameters.attempts}}"},
                    {"name": "event", "value": "{{inputs.parameters.event}}"},
                    {"name": "job", "value": "{{inputs.parameters.job}}"},
                 ]}}]]},
                {"name": "pod",
                 "inputs": {"parameters": [{"name": "attempts"}, {"name": "event"}, {"name": "job"}]},
                 "metadata": {"annotations": {
                    kubelet::ATTEMPTS: "{{inputs.parameters.attempts}}",
                    "scenario/event": "{{inputs.parameters.event}}",
                    "scenario/job": "{{inputs.parameters.job}}",
                    "scenario/greeting": "{{workflow.parameters.greeting}}",
                 }},
                 "container": {"image": "localhost/hook:1", "command": ["hook"], "securityContext": secure}},
            ],
        },
    })
}

pub fn hook(name: &str, events: &[&str], policy: &str, attempts: &str) -> Value {
    json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "events": events,
            "failurePolicy": policy,
            "templateRef": {"name": "dying", "arguments": [{"name": "attempts", "value": attempts}]},
        },
    })
}

fn without_template(mut hook: Value) -> Value {
    hook["spec"]["templateRef"]["name"] = json!("gone");
    hook
}

/// `<hook>@<event>[/<pool>]=<state>` of all that was tracked.
pub fn tracked(job: &UpgradeJob) -> Vec<String> {
    let all = status(job).hook_tracker;
    all.iter()
        .map(|t| {
            let pool = if t.tracking_key.is_empty() {
                String::new()
            } else {
                format!("/{}", t.tracking_key)
            };
            format!(
                "{}@{}{pool}={:?}",
                t.upgrade_job_hook,
                t.hook_event.as_str(),
                t.status
            )
        })
        .collect()
}

#[rstest]
#[case::argo_4_1(ArgoVersion::V4_1)]
#[case::argo_3_7(ArgoVersion::V3_7)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn hooks_of_templates_run_in_the_workflow_and_survive_what_a_drain_does(#[case] version: ArgoVersion) {
    scenario_on_argo(version, &[], async |s| {
        s.create(&template()).await;
        // As an eviction does it; then all is well.
        s.create(&hook("evicted", &["Start"], "Abort", "143,137,0")).await;
        // As a pod that is deleted before anyone has seen it end.
        s.create(&hook("deleted", &["UpgradeComplete"], "Abort", "deleted,0"))
            .await;
        s.create(&hook("broken", &["Start"], "Ignore", "3,0")).await;
        s.create(&hook("pool", &["MachineConfigPoolUnpause"], "Abort", "143,0"))
            .await;
        s.create(&hook("last", &["Success", "Failure", "Finish"], "Abort", "1"))
            .await;
        s.create(&without_template(hook("missing", &["Start"], "Ignore", "0")))
            .await;
        let config = json!({"machineConfigPools": hold_night("1s", None)});
        s.create(&job("j", Some("4.18.5"), config)).await;
        let done = s.until_over("j").await;
        assert_succeeded(&done);
        assert!(is_installed(&s.cluster_version().await, "4.18.5"));
        assert_eq!(
            tracked(&done),
            [
                "broken@Start=Failed",
                "deleted@UpgradeComplete=Complete",
                "evicted@Start=Complete",
                "last@Finish=Failed",
                "last@Success=Failed",
                "missing@Start=Failed",
                "pool@MachineConfigPoolUnpause/x-app-night=Complete",
            ]
        );
        let message = |hook: &str| -> String {
            let mut all = status(&done).hook_tracker;
            all.retain(|t| t.upgrade_job_hook == hook);
            all.remove(0).message
        };
        assert_eq!(
            message("broken"),
            "step hook-start-broken of workflow j-run-1: pod: main: Error (exit code 3)"
        );
        assert!(
            message("missing").contains("there is no WorkflowTemplate gone"),
            "{}",
            message("missing")
        );
        assert_eq!(
            condition(&done, "HooksRunnable"),
            "HooksRunnable=False/HookNotRunnable"
        );
        let workflow = s
            .until_workflow("j-run-1", "has ended", |w| phase(w) != "Running")
            .await;
        assert_eq!(
            phase(&workflow),
            "Succeeded",
            "{:#}",
            workflow.data["status"]["message"]
        );
        environments_and_parameters(s, &workflow).await;
        assert_eq!(told(&done), UPGRADED);
        stopped_by_a_person(s).await;
    })
    .await;
}

/// `<step> <phase>: <message>` of all steps: the same on every version of Argo.
fn told(job: &UpgradeJob) -> Vec<String> {
    let steps = status(job).steps;
    let line = |step: &StepStatus| {
        let text = step.message.as_deref().unwrap_or("-");
        // It depends on which of the two comes first: the operator's look or the release's acceptance.
        let text = text.replace("spec.desiredUpdate of the ClusterVersion is 4.18.5", ACCEPTED);
        format!("{} {:?}: {text}", step.name, step.phase)
    };
    steps.iter().map(line).collect()
}

const ACCEPTED: &str = "4.18.5 was asked for and accepted";

const UPGRADED: [&str; 25] = [
    "hook-start-broken Succeeded: hooks of Start: 0 done, 1 failed and ignored: hook broken failed: \
     step hook-start-broken of workflow j-run-1: pod: main: Error (exit code 3)",
    "hook-start-evicted Succeeded: hooks of Start: 1 done",
    "hook-start-missing Succeeded: hooks of Start: 0 done, 1 failed and ignored: hook missing failed: \
     there is no WorkflowTemplate gone in namespace openshift-upgrade: create it, or correct spec.templateRef.name",
    "hooks-start Succeeded: hooks of Start: 1 done, 2 failed and ignored: hook broken failed: \
     step hook-start-broken of workflow j-run-1: pod: main: Error (exit code 3), hook missing failed: \
     there is no WorkflowTemplate gone in namespace openshift-upgrade: create it, or correct spec.templateRef.name",
    "pre-health-check Succeeded: healthy",
    "pause-pools Succeeded: paused x-app-night",
    "set-desired-update Succeeded: 4.18.5 was asked for and accepted",
    "await-control-plane Succeeded: the control plane is at 4.18.5",
    "await-pools Succeeded: master, worker updated",
    "post-health-check Succeeded: healthy",
    "hook-upgrade-complete-deleted Succeeded: hooks of UpgradeComplete: 1 done",
    "hooks-upgrade-complete Succeeded: hooks of UpgradeComplete: 1 done",
    "hold-x-app-night Succeeded: time reached; healthy",
    "hook-unpause-x-app-night-pool Succeeded: hooks of MachineConfigPoolUnpause: 1 done",
    "hooks-unpause-x-app-night Succeeded: hooks of MachineConfigPoolUnpause: 1 done",
    "unpause-x-app-night Succeeded: unpaused",
    "await-x-app-night Succeeded: x-app-night updated",
    "final-health-check Succeeded: healthy",
    "release Succeeded: everything was given back",
    "hook-success-last Succeeded: hooks of Success: 0 done, 1 failed and ignored: hook last failed: \
     step hook-success-last of workflow j-run-1: pod: main: Error (exit code 1)",
    "hooks-success Succeeded: hooks of Success: 0 done, 1 failed and ignored: hook last failed: \
     step hook-success-last of workflow j-run-1: pod: main: Error (exit code 1)",
    "hook-failure-last Skipped: not run: the job ended otherwise than Failure",
    "hooks-failure Skipped: not run: the job ended otherwise than Failure",
    "hook-finish-last Succeeded: hooks of Finish: 0 done, 1 failed and ignored: hook last failed: \
     step hook-finish-last of workflow j-run-1: pod: main: Error (exit code 1)",
    "hooks-finish Succeeded: hooks of Finish: 0 done, 1 failed and ignored: hook last failed: \
     step hook-finish-last of workflow j-run-1: pod: main: Error (exit code 1)",
];

/// Another job on the same cluster, of hooks and pools only. Its workflow ends, too: Argo 3.7 may have to be made to look at it.
async fn stopped_by_a_person(s: &Scenario) {
    for name in ["evicted", "deleted", "broken", "pool", "missing"] {
        delete(s, "UpgradeJobHook", name).await;
    }
    s.create(&hook("endless", &["Start"], "Abort", "runs")).await;
    s.create(&job("stopped", None, json!({}))).await;
    s.until_job("stopped", "runs the pod of its hook", |j| {
        let message = status(j).message;
        message.is_some_and(|m| m.contains("hook endless (pod)"))
    })
    .await;
    argo(s, &["stop", "stopped-run-1"], None);
    let stopped = s.until_over("stopped").await;
    assert_eq!(
        failure(&stopped, "WorkflowStopped"),
        "the workflow was stopped by admin. Nothing was upgraded; to try again, create another UpgradeJob"
    );
    assert_eq!(told(&stopped), STOPPED);
    s.until_workflow("stopped-run-1", "has failed", |w| phase(w) == "Failed")
        .await;
    assert_eq!(lock(&s.cluster_version().await), None);
}

const STOPPED: [&str; 14] = [
    "hook-start-endless Skipped: not finished when the job ended: waiting for hooks of Start: hook endless (pod)",
    "hooks-start Pending: -",
    "pre-health-check Pending: -",
    "pause-pools Pending: -",
    "await-pools Pending: -",
    "post-health-check Pending: -",
    "hooks-upgrade-complete Pending: -",
    "release Succeeded: everything was given back",
    "hook-success-last Skipped: not run: the job ended otherwise than Success",
    "hooks-success Skipped: not run: the job ended otherwise than Success",
    "hook-failure-last Succeeded: hooks of Failure: 0 done, 1 failed and ignored: hook last failed: \
     step hook-failure-last of workflow stopped-run-1: pod: main: Error (exit code 1)",
    "hooks-failure Succeeded: hooks of Failure: 0 done, 1 failed and ignored: hook last failed: \
     step hook-failure-last of workflow stopped-run-1: pod: main: Error (exit code 1)",
    "hook-finish-last Succeeded: hooks of Finish: 0 done, 1 failed and ignored: hook last failed: \
     step hook-finish-last of workflow stopped-run-1: pod: main: Error (exit code 1)",
    "hooks-finish Succeeded: hooks of Finish: 0 done, 1 failed and ignored: hook last failed: \
     step hook-finish-last of workflow stopped-run-1: pod: main: Error (exit code 1)",
];

/// What the pods were given.
async fn environments_and_parameters(s: &Scenario, workflow: &DynamicObject) {
    let maps = s.dynamic("v1", "ConfigMap");
    let map = maps
        .get("j-run-1.hook-unpause-x-app-night-pool.x-app-night")
        .await;
    let map = map.expect("the environment of the hook of the pool");
    let data = &map.data["data"];
    assert_eq!(data["EVENT_NAME"], "\"MachineConfigPoolUnpause\"");
    assert_eq!(data["EVENT_pool"], "\"x-app-night\"");
    assert_eq!(data["JOB_spec_desiredVersion_version"], "\"4.18.5\"");
    assert_eq!(map.metadata.owner_references.unwrap()[0].kind, "UpgradeJob");
    let nodes = workflow.data["status"]["nodes"].as_object().unwrap();
    let pod = nodes
        .values()
        .find(|n| n["type"] == "Pod" && n["name"].as_str().unwrap().contains("run-hook-unpause"))
        .expect("a pod of the hook of the pool");
    let given = |name: &str| {
        let all = pod["inputs"]["parameters"].as_array().unwrap();
        let found = all.iter().find(|p| p["name"] == name).unwrap();
        serde_json::from_str::<Value>(found["value"].as_str().unwrap()).unwrap()
    };
    assert_eq!(given("event")["pool"], "x-app-night");
    assert_eq!(given("event")["name"], "MachineConfigPoolUnpause");
    assert_eq!(given("job")["metadata"]["name"], "j");
}

#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_hook_of_a_template_that_truly_fails_ends_the_job_and_the_hooks_of_the_end_run() {
    scenario(&[], async |s| {
        s.create(&template()).await;
        s.create(&hook("strict", &["Start"], "Abort", "3,0")).await;
        // Still runs when the other one fails: it must not keep the exit part waiting.
        s.create(&hook("slow", &["Start"], "Ignore", "runs")).await;
        s.create(&hook("last", &["Failure"], "Ignore", "0")).await;
        s.create(&job("j", Some("4.18.5"), json!({}))).await;
        let failed = s.until_over("j").await;
        let message = failure(&failed, "HookFailed");
        assert!(
            message.contains("hook strict failed: step hook-start-strict of workflow j-run-1: pod: main: Error (exit code 3)"),
            "{message}"
        );
        assert_eq!(desired(&s.cluster_version().await), None);
        s.until_job("j", "has run its hook of Failure", |j| {
            tracked(j).contains(&"last@Failure=Complete".to_owned())
        })
        .await;
        let failed = s.job("j").await;
        assert!(tracked(&failed).contains(&"slow@Start=Failed".to_owned()), "{:?}", tracked(&failed));
        run_again_by_a_person(s, "j-run-1").await;
        assert_eq!(outcome(&s.job("j").await), outcome(&failed));
        let cluster = s.cluster_version().await;
        assert_eq!((desired(&cluster), lock(&cluster)), (None, None));
    })
    .await;
}

/// An ended workflow whose hooks have had their end, one of them a bad one: none of them gets a pod again, however a person runs
/// it again, and however late the operator comes.
pub async fn run_again_by_a_person(s: &Scenario, name: &str) {
    let ended = s.until_workflow(name, "has ended and is sealed", is_sealed).await;
    let before = pods_of_workflows(s);
    assert!(before > 0, "nothing that could be run again");
    let sealed = async || s.workflows().await.iter().filter(|w| is_sealed(w)).count();
    let were_sealed = sealed().await;

    s.operator().signal("STOP");
    // With what succeeded taken over: what failed would begin at once.
    argo(s, &["resubmit", "--memoized", name], None);
    let copy = format!("{name}-");
    until("Argo has taken up the copy", async || {
        let all = s.workflows().await;
        let mut copies = all.iter().filter(|w| w.name_any().starts_with(&copy));
        copies.any(|w| phase(w) == "Running").then_some(())
    })
    .await;
    argo(s, &["retry", name], None);
    let started = &ended.data["status"]["startedAt"];
    s.until_workflow(name, "is taken up again by Argo", |w| {
        phase(w) == "Running" && w.data["status"]["startedAt"] != *started
    })
    .await;
    assert_eq!(
        pods_of_workflows(s),
        before,
        "pods of hooks while the operator is away"
    );

    s.operator().signal("CONT");
    let again = until_ended_again(s, name, &ended).await;
    assert!(is_stopped(&again), "{again:#?}");
    until("both are stopped and sealed", async || {
        (sealed().await == were_sealed + 1).then_some(())
    })
    .await;
    assert_eq!(pods_of_workflows(s), before, "pods of hooks");
}

/// How many pods Argo has made so far.
fn pods_of_workflows(s: &Scenario) -> usize {
    let writes = s.writes();
    creations(&writes, "pods").filter(|w| w.user == "argo").count()
}

/// It has ended, and stays paused if somebody retries it.
fn is_sealed(workflow: &DynamicObject) -> bool {
    is_over(workflow)
        && workflow.data["spec"]["suspend"] == true
        && workflow.annotations().contains_key(SEALED_AT)
}

/// A template that Argo refuses takes nothing with it but its own hook; one that is missing fails its job when that is made.
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn a_template_that_argo_refuses_costs_its_hook_and_one_that_is_missing_the_job() {
    scenario(&[], async |s| {
        missing_when_the_job_is_made(s).await;
        let mut template = template();
        template["spec"]["templates"][0]["steps"][0][0]["arguments"]["parameters"][0]["value"] =
            json!("{{steps.nothing.outputs.result}}");
        s.create(&template).await;
        s.create(&hook("refused", &["Start"], "Ignore", "0")).await;
        s.create(&job("j", Some("4.18.5"), json!({}))).await;
        let done = s.until_over("j").await;
        assert_succeeded(&done);
        let entry = status(&done).hook_tracker.remove(0);
        assert_eq!(entry.status, HookState::Failed);
        assert!(
            entry.message.contains("refused workflow j-run-1"),
            "{}",
            entry.message
        );
        assert_eq!(status(&done).workflow.as_ref().unwrap().name, "j-run-2");
        s.until_workflow("j-run-2", "has succeeded", |w| phase(w) == "Succeeded")
            .await;
    })
    .await;
}

async fn missing_when_the_job_is_made(s: &Scenario) {
    s.create(&without_template(hook("strict", &["Start"], "Abort", "0")))
        .await;
    let mut early = job("early", Some("4.18.5"), json!({}));
    early["spec"]["startAfter"] = json!(in_seconds(3_000));
    s.create(&early).await;
    let failed = s
        .until_job("early", "has failed", |j| has(j, "Failed").is_some())
        .await;
    let message = failure(&failed, "HookFailed");
    assert!(
        message.contains(
            "hook strict cannot be run: there is no WorkflowTemplate gone in namespace openshift-upgrade"
        ),
        "{message}"
    );
    assert!(has(&failed, "Started").is_none());
    delete(s, "UpgradeJobHook", "strict").await;
}
