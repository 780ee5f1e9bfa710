//! An upgrade as a PipelineRun, with real pods of hooks that are Tasks.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use openshift_upgrade_operator::{
    api::{
        UpgradeJobHook,
        job_config::WorkflowConfig,
        upgrade_job::{EngineChoice, HookState, JobPhase, StepPhase},
    },
    engine::{Engine, NodePhase, tekton::Tekton},
    plan::Plan,
};
use serde_json::{Value, json};

use crate::{
    SOON, UPGRADE,
    example::{Delay, job_to},
    is_over, phase,
    testbed::{NAMESPACE, Testbed, wait_for},
};

/// Says for what it runs, and takes its time over it.
fn task() -> Value {
    json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "Task",
        "metadata": {"name": "say", "namespace": NAMESPACE},
        "spec": {
            "params": [{"name": "greeting", "default": "hello"}],
            "steps": [{
                "name": "say",
                "image": "localhost/busybox:1",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c"],
                "args": ["echo $(params.greeting) $EVENT_name $JOB_metadata_name; sleep 10"],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}

fn hook(name: &str, event: &str) -> UpgradeJobHook {
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "events": [event],
            "failurePolicy": "Abort",
            "taskRef": {"name": "say", "timeout": "5m", "arguments": [{"name": "greeting", "value": "moin"}]},
        },
    }))
    .unwrap()
}

fn is_running(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref());
    let state = statuses.and_then(|all| all.first()?.state.as_ref());
    state.is_some_and(|s| s.running.is_some())
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn an_upgrade_runs_as_a_pipeline_run_and_its_tasks_survive_an_eviction() {
    let cluster = Testbed::fresh(&["--speed", "3"]).await;
    cluster.create_object(&task()).await;
    cluster.apply(&hook("evicted", "Start")).await;
    cluster.apply(&hook("late", "Finish")).await;
    let delay = Delay { min: 5, max: 600 };
    let mut job = job_to(
        "by-tekton",
        &cluster.offered("4.18.5").await,
        Timestamp::now(),
        &delay,
    );
    job.spec.config.workflow = Some(WorkflowConfig {
        engine: Some(EngineChoice::Tekton),
        ..WorkflowConfig::default()
    });
    cluster.apply(&job).await;

    let pod = wait_for("the pod of the hook of Start runs", SOON, async || {
        cluster.task_run_pods().await.into_iter().find(is_running)
    })
    .await;
    cluster.evict(&pod).await;
    let job = wait_for("the upgrade ends", UPGRADE, async || {
        Some(cluster.job("by-tekton").await).filter(is_over)
    })
    .await;

    assert_eq!(phase(&job), Some(JobPhase::Succeeded), "{:?}", job.status);
    let status = job.status.as_ref().unwrap();
    let ran: Vec<_> = status
        .hook_tracker
        .iter()
        .map(|t| (t.upgrade_job_hook.as_str(), t.status))
        .collect();
    assert_eq!(
        ran,
        [("evicted", HookState::Complete), ("late", HookState::Complete)]
    );
    let pods = cluster.task_run_pods().await;
    let runs: std::collections::BTreeSet<_> = pods
        .iter()
        .filter_map(|p| p.labels().get("tekton.dev/taskRun"))
        .collect();
    assert!(
        runs.iter().any(|name| name.ends_with("-2")),
        "the evicted one was tried again: {runs:?}"
    );
    let last = pods.iter().max_by_key(|p| p.creation_timestamp()).unwrap();
    assert_eq!(cluster.log(last).await.trim(), r#"moin "Finish" "by-tekton""#);

    // The PipelineRun tells the same as the job.
    let plan = Plan::from_value(status.plan.as_ref().unwrap()).unwrap();
    let run = Tekton.observe(&cluster.pipeline_run("by-tekton-run-1").await, &plan);
    assert_eq!((run.phase.as_str(), run.finished), ("Completed", true));
    for step in &status.steps {
        let node = run.nodes.iter().find(|n| n.step == step.name).unwrap();
        if step.phase == StepPhase::Skipped {
            assert_eq!(node.phase, NodePhase::Skipped, "{}", step.name);
        } else {
            assert_eq!(
                (node.phase, &node.message),
                (NodePhase::Succeeded, &step.message),
                "{}",
                step.name
            );
        }
    }
    cluster.assert_installed("4.18.5").await;
    cluster.assert_nothing_is_held().await;
}
