//! Hooks that are WorkflowTemplates, as real pods: what a drain does to them, and what they are to blame for themselves.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::DynamicObject};
use openshift_upgrade_operator::api::{
    UpgradeJob, UpgradeJobHook,
    conditions::reasons,
    upgrade_job::{HookState, JobPhase},
};
use serde_json::{Value, json};

use crate::{
    SOON, UPGRADE, assert_condition,
    example::{Delay, job_to},
    is_over, phase,
    testbed::{NAMESPACE, Testbed, wait_for},
};

/// Runs a line of shell in its first attempt, and nothing in the next.
fn template() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "WorkflowTemplate",
        "metadata": {"name": "shell", "namespace": NAMESPACE},
        "spec": {
            "entrypoint": "shell",
            "templates": [{
                "name": "shell",
                "inputs": {"parameters": [{"name": "line"}, {"name": "deadline", "value": "600"}]},
                "activeDeadlineSeconds": "{{inputs.parameters.deadline}}",
                "container": {
                    "image": "localhost/busybox:1",
                    "imagePullPolicy": "Never",
                    "command": ["sh", "-c"],
                    "args": ["echo $EVENT_NAME $JOB_metadata_name; [ {{retries}} -gt 0 ] || {{inputs.parameters.line}}"],
                },
            }],
        },
    })
}

fn hook(name: &str, event: &str, policy: &str, arguments: &[(&str, &str)]) -> UpgradeJobHook {
    let arguments: Vec<Value> = arguments
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "events": [event],
            "failurePolicy": policy,
            "templateRef": {"name": "shell", "arguments": arguments},
        },
    }))
    .unwrap()
}

/// Waits to be killed.
const WAITS: &str = "sleep 600";
/// The same, and ends by itself if it is not.
const WAITS_A_WHILE: &str = "sleep 45";

/// A pod that goes within 10 s of its start (Argo's `RECENTLY_STARTED_POD_DURATION`) is made again as the same attempt: Argo
/// takes it for one that it does not see yet.
const NO_LONGER_RECENT: SignedDuration = SignedDuration::from_secs(12);

/// The pod of a step's hook, once its container runs and Argo would miss it.
async fn running_pod(cluster: &Testbed, step: &str) -> Pod {
    wait_for(&format!("Argo runs {step}"), SOON, async || {
        let workflow = cluster.find_workflow().await?;
        let all = attempts(&workflow, step);
        all.last().is_some_and(|a| a.starts_with("Running")).then_some(())
    })
    .await;
    wait_for(&format!("the pod of {step} runs for a while"), SOON, async || {
        let pods = cluster.workflow_pods().await;
        pods.into_iter().find(|pod| {
            let of_step = pod
                .annotations()
                .get("workflows.argoproj.io/node-name")
                .is_some_and(|n| n.contains(&format!("run-{step}")));
            let statuses = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref());
            let main = statuses.and_then(|all| all.iter().find(|c| c.name == "main"));
            let running = main.and_then(|c| c.state.as_ref()?.running.as_ref());
            let began = running.and_then(|r| r.started_at.as_ref()).map(|t| t.0);
            of_step && began.is_some_and(|t| Timestamp::now().duration_since(t) > NO_LONGER_RECENT)
        })
    })
    .await
}

/// `<phase> <exit code> <message>` of the attempts of a step's hook, in their order.
fn attempts(workflow: &DynamicObject, step: &str) -> Vec<String> {
    let nodes = workflow.data["status"]["nodes"].as_object();
    let mut all: Vec<&Value> = nodes
        .into_iter()
        .flatten()
        .map(|(_, node)| node)
        .filter(|n| n["type"] == "Pod" && n["name"].as_str().unwrap().contains(&format!("run-{step}")))
        .collect();
    all.sort_by_key(|n| n["name"].as_str().unwrap().to_owned());
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    all.iter()
        .map(|n| {
            format!(
                "{} {} {}",
                text(&n["phase"]),
                text(&n["outputs"]["exitCode"]),
                text(&n["message"])
            )
        })
        .collect()
}

fn state_of(job: &UpgradeJob, hook: &str) -> (HookState, String) {
    let all = &job.status.as_ref().unwrap().hook_tracker;
    let entry = all.iter().find(|t| t.upgrade_job_hook == hook).unwrap();
    (entry.status, entry.message.clone())
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_hook_of_a_template_whose_pod_is_evicted_or_deleted_runs_again() {
    let cluster = Testbed::fresh(&["--speed", "3"]).await;
    cluster.create_object(&template()).await;
    for (name, event, line) in [
        ("evicted", "Start", WAITS),
        ("deleted", "UpgradeComplete", WAITS),
        ("vanished", "Finish", WAITS_A_WHILE),
    ] {
        cluster
            .apply(&hook(name, event, "Abort", &[("line", line)]))
            .await;
    }
    cluster
        .apply(&hook(
            "late",
            "Start",
            "Ignore",
            &[("line", WAITS), ("deadline", "5")],
        ))
        .await;
    let none = Delay { min: 0, max: 0 };
    let to = cluster.offered("4.18.5").await;
    cluster
        .apply(&job_to("drained", &to, Timestamp::now(), &none))
        .await;

    let pod = running_pod(&cluster, "hook-start-evicted").await;
    let said = wait_for("the pod says something", SOON, async || {
        Some(cluster.log(&pod).await).filter(|log| log.contains("Start"))
    })
    .await;
    assert!(
        said.contains("\"Start\" \"drained\""),
        "the environment of hooks: {said}"
    );
    cluster.evict(&pod).await;
    let pod = running_pod(&cluster, "hook-upgrade-complete-deleted").await;
    cluster.delete_pod(&pod, None).await;
    let vanished = running_pod(&cluster, "hook-finish-vanished").await;
    // As where the kubelet is gone: nobody sees how it ends.
    cluster.delete_pod(&vanished, Some(0)).await;

    let job = wait_for("the upgrade ends", UPGRADE, async || {
        Some(cluster.job("drained").await).filter(is_over)
    })
    .await;
    assert_eq!(phase(&job), Some(JobPhase::Succeeded));
    let workflow = cluster.only_workflow().await;
    for (hook, step) in [
        ("evicted", "hook-start-evicted"),
        ("deleted", "hook-upgrade-complete-deleted"),
        ("vanished", "hook-finish-vanished"),
    ] {
        let attempts = attempts(&workflow, step);
        println!("{hook}: {attempts:#?}");
        assert_eq!(state_of(&job, hook), (HookState::Complete, String::new()));
        assert!(attempts.last().unwrap().starts_with("Succeeded"), "{attempts:?}");
        // Argo may miss a pod that vanished, or make it again as the same attempt.
        assert!(hook == "vanished" || attempts.len() == 2, "{attempts:?}");
    }
    let again = cluster.workflow_pods().await.into_iter().any(|pod| {
        let step = pod.annotations().get("workflows.argoproj.io/node-name");
        step.is_some_and(|n| n.contains("run-hook-finish-vanished")) && pod.uid() != vanished.uid()
    });
    assert!(again, "the hook whose pod vanished did not run again");
    let late = attempts(&workflow, "hook-start-late");
    println!("late: {late:#?}");
    assert_eq!(late.len(), 1, "its own deadline is its own fault: {late:?}");
    assert_eq!(state_of(&job, "late").0, HookState::Failed);
    assert_eq!(workflow.data["status"]["phase"], "Succeeded");
    cluster.assert_installed("4.18.5").await;
    cluster.assert_nothing_is_held().await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_hook_of_a_template_that_truly_fails_fails_the_upgrade_at_once() {
    let cluster = Testbed::fresh(&["--speed", "3"]).await;
    // Of the cluster this time.
    let mut template = template();
    template["kind"] = json!("ClusterWorkflowTemplate");
    template["metadata"] = json!({"name": "shell"});
    cluster.create_object(&template).await;
    let mut strict = hook("strict", "Start", "Abort", &[("line", "exit 3")]);
    strict.spec.template_ref.as_mut().unwrap().cluster_scope = true;
    cluster.apply(&strict).await;
    let none = Delay { min: 0, max: 0 };
    let to = cluster.offered("4.18.5").await;
    cluster
        .apply(&job_to("failing", &to, Timestamp::now(), &none))
        .await;
    // Steps that were not reached stay Pending.
    let job = wait_for("the job and its workflow end", UPGRADE, async || {
        Some(cluster.job("failing").await).filter(|job| {
            let status = job.status.as_ref();
            let workflow = status.and_then(|s| s.workflow.as_ref()?.phase.as_deref());
            status.is_some_and(|s| s.finished_at.is_some())
                && workflow == Some("Failed")
                && job.finalizers().is_empty()
        })
    })
    .await;
    assert_eq!(phase(&job), Some(JobPhase::Failed));
    assert_condition(&job, "Failed", "True", reasons::HOOK_FAILED);
    let workflow = cluster.only_workflow().await;
    let attempts = attempts(&workflow, "hook-start-strict");
    println!("strict: {attempts:#?}");
    assert_eq!(attempts, ["Failed 3 main: Error (exit code 3)"]);
    let (state, message) = state_of(&job, "strict");
    assert_eq!(state, HookState::Failed);
    assert!(message.ends_with("main: Error (exit code 3)"), "{message}");
    assert_eq!(cluster.cluster_version().await.spec.desired_update, None);
    cluster.assert_nothing_is_held().await;
}
