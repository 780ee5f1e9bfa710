//! A real engine that dies while it runs the pod of a hook.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use openshift_upgrade_operator::{
    api::upgrade_job::{EngineChoice, HookState},
    engine::{Engine, argo::Argo, tekton::Tekton},
};
use rstest::rstest;
use serde_json::json;

use crate::{
    engine_faults::{
        ALONE, SOON, assert_handed_over, engine_of, succeeded, workflow_is_stopped_when_the_engine_is_back,
    },
    harness::{NAMESPACE, Scenario, assert_succeeded, creations, objects::job, scenario_on, status, until},
    hook_templates, tasks,
};

/// The pods that the engine makes for hooks.
async fn pods(s: &Scenario, engine: &dyn Engine) -> Vec<Pod> {
    let label = if engine.kind() == EngineChoice::Tekton {
        "tekton.dev/taskRun"
    } else {
        "workflows.argoproj.io/workflow"
    };
    let api: Api<Pod> = Api::namespaced(s.client.clone(), NAMESPACE);
    let all = api.list(&ListParams::default().labels(label)).await;
    all.expect("listing pods").items
}

async fn until_pod_runs(s: &Scenario, engine: &dyn Engine) -> Pod {
    let runs = |p: &Pod| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
    until("a pod of the hook runs", async || {
        pods(s, engine).await.into_iter().find(runs)
    })
    .await
}

/// What a kubelet says of a pod that has done its work.
async fn succeed(s: &Scenario, pod: &Pod) {
    let containers = pod.status.iter().filter_map(|s| s.container_statuses.as_ref());
    let now = jiff::Timestamp::now();
    let ended: Vec<_> = containers
        .flatten()
        .map(|c| {
            let state = json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}});
            json!({"name": c.name, "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": state})
        })
        .collect();
    assert!(!ended.is_empty(), "{pod:#?}");
    let status = Patch::Merge(json!({"status": {"phase": "Succeeded", "containerStatuses": ended}}));
    let api: Api<Pod> = Api::namespaced(s.client.clone(), NAMESPACE);
    let name = pod.name_any();
    let written = api.patch_status(&name, &PatchParams::default(), &status).await;
    written.unwrap_or_else(|e| panic!("ending pod {name}: {e}"));
}

/// The engine has seen the pod at work before it dies, as far as the job can tell.
async fn until_engine_has_seen_it(s: &Scenario, engine: &dyn Engine) {
    if engine.kind() == EngineChoice::Tekton {
        until("the TaskRun has its pod", async || {
            let all = tasks::task_runs(s).await;
            let has = |r: &kube::api::DynamicObject| r.data["status"]["podName"].is_string();
            all.iter().any(has).then_some(())
        })
        .await;
    } else {
        s.until_workflow("j-run-1", "runs the pod", |w| {
            let nodes = w.data["status"]["nodes"].as_object();
            nodes.is_some_and(|all| {
                all.values()
                    .any(|n| n["type"] == "Pod" && n["phase"] == "Running")
            })
        })
        .await;
    }
}

#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn an_engine_that_dies_under_the_pod_of_a_hook_is_left_and_the_hook_is_done_when_its_pod_is(
    #[case] engine: &'static dyn Engine,
) {
    scenario_on(engine, &ALONE, async |s| {
        if engine.kind() == EngineChoice::Tekton {
            tasks::create(s, "long", "runs", &["Start"], "Abort").await;
        } else {
            s.create(&hook_templates::template()).await;
            s.create(&hook_templates::hook("long", &["Start"], "Abort", "runs"))
                .await;
        }
        s.create(&job("j", None, json!({}))).await;
        let pod = until_pod_runs(s, engine).await;
        until_engine_has_seen_it(s, engine).await;
        s.restart_operator(&SOON).await;
        s.lane.component("kill", engine.kind().as_str()).await;
        succeed(s, &pod).await;
        let done = s.until_over("j").await;
        assert_succeeded(&done);
        assert_eq!(engine_of(&done), Some(EngineChoice::Embedded));
        let told = format!("whose pod {} has succeeded, since", pod.name_any());
        assert_handed_over(&done, &told);
        let states: Vec<_> = status(&done).hook_tracker.iter().map(|t| t.status).collect();
        assert_eq!(states, [HookState::Complete]);

        workflow_is_stopped_when_the_engine_is_back(s).await;
        if engine.kind() == EngineChoice::Tekton {
            let all = until("Tekton has seen the end of the TaskRun", async || {
                let all = tasks::task_runs(s).await;
                let is_let_go = !all.is_empty() && all.iter().all(|r| r.finalizers().is_empty());
                is_let_go.then_some(all)
            })
            .await;
            let ends: Vec<_> = all.iter().map(|r| succeeded(r).map(|c| &c["status"])).collect();
            assert_eq!(ends, [Some(&json!("True"))], "{all:#?}");
        }
        // Whether they are still there or not.
        let writes = s.writes();
        let made: Vec<&str> = creations(&writes, "pods")
            .filter(|w| w.user == engine.kind().as_str())
            .map(|w| w.name.as_str())
            .collect();
        assert_eq!(made, [pod.name_any()]);
    })
    .await;
}
