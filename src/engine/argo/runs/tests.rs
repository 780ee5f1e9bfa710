use rstest::rstest;
use serde_json::json;

use super::*;
use crate::engine::argo::fixtures;

/// A Workflow `wf` with the tasks of one hook of Start and MachineConfigPoolUnpause, and these nodes.
fn seen(nodes: &[Value]) -> BTreeMap<String, Native> {
    let hook = fixtures::native_hook("a", &["Start", "MachineConfigPoolUnpause", "Finish"], &json!({}));
    let (_, plan) = fixtures::with_hooks(&[hook]);
    let mut object = fixtures::recorded(&plan, &json!({}), &[]);
    let tasks: Vec<Value> = ["start", "unpause-infra", "finish"]
        .iter()
        .map(|e| json!({"name": format!("run-hook-{e}-a")}))
        .collect();
    object.data["spec"]["templates"] = json!([{"name": "main", "dag": {"tasks": tasks}}]);
    for (node, id) in nodes.iter().zip(0..) {
        object.data["status"]["nodes"][format!("n{id}")] = node.clone();
    }
    natives(&object, &View::of(&object), &plan)
}

fn at_start(nodes: &[Value]) -> Native {
    seen(nodes)["hook-start-a"].clone()
}

fn node(name: &str, type_: &str, phase: &str, message: &str) -> Value {
    let display = name.rsplit('.').next().unwrap();
    json!({"name": name, "displayName": display, "type": type_, "phase": phase, "message": message,
        "finishedAt": "2026-11-24T21:00:05Z"})
}

const RUN: &str = "wf.run-hook-start-a";

fn told(phase: NodePhase, message: &str) -> Native {
    Native {
        problem: None,
        finished: phase != NodePhase::Running,
        runs: vec![NativeRun {
            key: String::new(),
            phase,
            message: message.to_owned(),
            wait: None,
        }],
    }
}

#[test]
fn what_is_not_reached_has_no_runs() {
    let all = seen(&[]);
    assert_eq!(all.len(), 3);
    assert!(all.values().all(|n| *n == Native::default()));
}

#[rstest]
#[case::pending(vec![node(RUN, "Retry", "Running", ""), node("wf.run-hook-start-a(0)", "Pod", "Pending", "Unschedulable: 0/3 nodes")],
    NodePhase::Running, "Unschedulable: 0/3 nodes")]
#[case::running(vec![node(RUN, "Retry", "Running", ""), node("wf.run-hook-start-a(0)", "Pod", "Running", "")],
    NodePhase::Running, "")]
#[case::again(vec![node(RUN, "Retry", "Running", ""), node("wf.run-hook-start-a(0)", "Pod", "Failed", "main: Error (exit code 143)"), node("wf.run-hook-start-a(1)", "Pod", "Running", "")],
    NodePhase::Running, "attempt 2 after: main: Error (exit code 143)")]
#[case::backoff(vec![node(RUN, "Retry", "Running", "Backoff for 10 seconds"), node("wf.run-hook-start-a(0)", "Pod", "Error", "pod deleted")],
    NodePhase::Running, "is tried again, after: pod deleted")]
#[case::nothing_yet(vec![node(RUN, "Retry", "Running", "")], NodePhase::Running, "")]
#[case::succeeded(vec![node(RUN, "Retry", "Succeeded", ""), node("wf.run-hook-start-a(0)", "Pod", "Succeeded", "")],
    NodePhase::Succeeded, "")]
#[case::failed(vec![node(RUN, "Retry", "Failed", "retryStrategy.expression evaluated to false"), node("wf.run-hook-start-a(0)", "Pod", "Failed", "main: Error (exit code 3)")],
    NodePhase::Failed, "main: Error (exit code 3)")]
#[case::failed_at_last(vec![node(RUN, "Retry", "Error", "No more retries left"), node("wf.run-hook-start-a(9)", "Pod", "Error", "pod deleted"), node("wf.run-hook-start-a(10)", "Pod", "Failed", "main: Error (exit code 137)")],
    NodePhase::Failed, "main: Error (exit code 137) (attempt 11)")]
#[case::in_a_step(vec![node(RUN, "Steps", "Failed", "child 'wf-1' failed"), node("wf.run-hook-start-a[0]", "StepGroup", "Failed", "child 'wf-1' failed"), node("wf.run-hook-start-a[0].check(0)", "Pod", "Failed", "main: Error (exit code 1)")],
    NodePhase::Failed, "check: main: Error (exit code 1)")]
#[case::in_a_dag(vec![node(RUN, "DAG", "Running", ""), node("wf.run-hook-start-a.send", "Pod", "Succeeded", ""), node("wf.run-hook-start-a.approve", "Suspend", "Running", "")],
    NodePhase::Running, "waits for an approval: approve is suspended until someone resumes it in the workflow")]
#[case::without_a_pod(vec![node(RUN, "DAG", "Error", "task 'x' errored: unresolved")], NodePhase::Failed, "task 'x' errored: unresolved")]
#[case::skipped(vec![node(RUN, "Skipped", "Skipped", "when 'false == true' evaluated false")], NodePhase::Skipped, "when 'false == true' evaluated false")]
fn a_run_says_where_it_is(#[case] nodes: Vec<Value>, #[case] phase: NodePhase, #[case] message: &str) {
    assert_eq!(at_start(&nodes), told(phase, message));
}

#[test]
fn another_step_with_a_longer_name_is_not_meant() {
    let nodes = [
        node(RUN, "Pod", "Running", ""),
        node("wf.run-hook-start-a-b", "Pod", "Failed", "no"),
        node("wf.onExit.run-hook-start-a", "Pod", "Failed", "no"),
    ];
    assert_eq!(at_start(&nodes), told(NodePhase::Running, ""));
}

/// Templates of a hook: `pod` runs one, `flow` has it as its only step, `two` has two of them, `each` one for each item,
/// `loop` calls itself.
fn templates() -> Value {
    let step = |template: &str| json!({"name": "s", "template": template});
    let mut each = step("pod");
    each["withItems"] = json!([1, 2]);
    json!([
        {"name": "main", "dag": {"tasks": [{"name": "run-hook-start-a"}]}},
        {"name": "pod", "container": {}},
        {"name": "flow", "steps": [[step("pod")]]},
        {"name": "dag", "dag": {"tasks": [step("flow")]}},
        {"name": "two", "steps": [[step("pod")], [step("pod")]]},
        {"name": "each", "steps": [[each]]},
        {"name": "loop", "steps": [[step("loop")]]},
        {"name": "approve", "suspend": {}},
    ])
}

fn awaited(nodes: &[Value]) -> Option<PodWait> {
    let hook = fixtures::native_hook("a", &["Start"], &json!({}));
    let (_, plan) = fixtures::with_hooks(&[hook]);
    let mut object = fixtures::recorded(&plan, &json!({}), &[]);
    object.data["spec"]["templates"] = templates();
    for (node, id) in nodes.iter().zip(0..) {
        object.data["status"]["nodes"][format!("n{id}")] = node.clone();
    }
    let all = natives(&object, &View::of(&object), &plan);
    all["hook-start-a"].runs[0].wait.clone()
}

fn begun(mut node: Value, template: &str, second: u8) -> Value {
    node["templateName"] = json!(template);
    node["startedAt"] = json!(format!("2026-11-24T21:00:{second:02}Z"));
    node
}

#[rstest]
#[case::a_pod("pod", true)]
#[case::its_only_step("flow", true)]
#[case::its_only_task("dag", true)]
#[case::two_steps("two", false)]
#[case::several_of_a_step("each", false)]
#[case::one_that_calls_itself("loop", false)]
#[case::no_pod("approve", false)]
#[case::unknown("gone", false)]
fn a_hook_is_over_with_its_pod_where_that_is_all_of_it(#[case] template: &str, #[case] is_all: bool) {
    let retry = begun(node(RUN, "Retry", "Running", ""), template, 1);
    let failed = begun(node(&format!("{RUN}(0)"), "Pod", "Failed", "no"), template, 2);
    let pod = begun(node(&format!("{RUN}(1)"), "Pod", "Running", ""), template, 3);
    let expected = PodWait {
        owner: PodOwner::Workflow("wf".to_owned()),
        pods: Awaited::Node(RUN.to_owned()),
        since: "2026-11-24T21:00:03Z".parse().unwrap(),
        without: WithoutPod::Gone,
        is_all,
    };
    assert_eq!(awaited(&[retry, failed, pod]), Some(expected));
}

#[rstest]
#[case::said_why(
    "Pending",
    "pods \"x\" is forbidden: exceeded quota",
    Some(WithoutPod::EngineWaits)
)]
#[case::said_nothing("Pending", "", Some(WithoutPod::Gone))]
#[case::was_at_work("Running", "PodInitializing", Some(WithoutPod::Gone))]
#[case::over("Succeeded", "", None)]
fn argo_itself_may_wait(#[case] phase: &str, #[case] message: &str, #[case] expected: Option<WithoutPod>) {
    let pod = begun(node(RUN, "Pod", phase, message), "pod", 1);
    assert_eq!(awaited(&[pod]).map(|w| w.without), expected);
}

/// Argo itself waits for the result of a pod that has ended.
#[rstest]
#[case::has_not_arrived(false, Some("2026-11-24T21:15:00Z"))]
#[case::has_arrived(true, None)]
fn the_result_of_a_pod_has_ten_minutes_to_arrive(#[case] synced: bool, #[case] since: Option<&str>) {
    let mut pod = begun(node(RUN, "Pod", "Succeeded", ""), "pod", 1);
    pod["finishedAt"] = json!("2026-11-24T21:05:00Z");
    pod["taskResultSynced"] = json!(synced);
    let expected: Option<Timestamp> = since.map(|t| t.parse().unwrap());
    assert_eq!(awaited(&[pod]).map(|w| w.since), expected);
}

#[test]
fn an_approval_waits_for_no_pod() {
    let root = begun(node(RUN, "DAG", "Running", ""), "dag", 1);
    let approval = begun(
        node(&format!("{RUN}.approve"), "Suspend", "Running", ""),
        "approve",
        2,
    );
    assert_eq!(awaited(&[root, approval]), None);
}

#[test]
fn every_pool_has_a_run() {
    let name = "wf.run-hook-unpause-infra-a";
    let all = seen(&[
        node(name, "TaskGroup", "Running", ""),
        node(&format!("{name}(0:infra)"), "Retry", "Running", ""),
        node(
            &format!("{name}(0:infra)(0)"),
            "Pod",
            "Failed",
            "main: Error (exit code 143)",
        ),
        node(&format!("{name}(0:infra)(1)"), "Pod", "Running", ""),
        node(&format!("{name}(1:infra-2)"), "Retry", "Failed", ""),
        node(
            &format!("{name}(1:infra-2)(0)"),
            "Pod",
            "Failed",
            "main: Error (exit code 1)",
        ),
    ]);
    let native = &all["hook-unpause-infra-a"];
    let runs: Vec<_> = native
        .runs
        .iter()
        .map(|r| (r.key.as_str(), r.phase, r.message.as_str()))
        .collect();
    assert_eq!(
        runs,
        [
            (
                "infra",
                NodePhase::Running,
                "attempt 2 after: main: Error (exit code 143)"
            ),
            ("infra-2", NodePhase::Failed, "main: Error (exit code 1)"),
        ]
    );
    assert!(!native.finished);
}

#[test]
fn a_hook_of_the_end_is_found_in_the_exit_part() {
    let all = seen(&[node("wf.onExit.run-hook-finish-a", "Pod", "Succeeded", "")]);
    assert_eq!(all["hook-finish-a"], told(NodePhase::Succeeded, ""));
}

#[rstest]
#[case("name(0)", "name", Some(0))]
#[case("name(0:worker)(12)", "name(0:worker)", Some(12))]
#[case("name(0:worker)", "name(0:worker)", None)]
#[case("name", "name", None)]
fn attempts_are_told_apart_from_items(#[case] name: &str, #[case] plain: &str, #[case] number: Option<u32>) {
    assert_eq!(split_attempt(name), (plain, number));
}
