use jiff::Timestamp;
use kube::ResourceExt;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    api::{
        UpgradeJobHook, finalizers, labels,
        upgrade_job::{HookState, HookTracker},
        upgrade_job_hook::HookEvent,
    },
    hooks::{
        fixtures::{entry, event, hook, upgrade_job},
        hook_run::{HookRun, NewRun, RunKind, RunName},
        run::{HooksVerdict, Settings, Tekton},
        tracker::{self, NextTry},
    },
};

const CREATED: &str = "2021-01-01T21:00:00Z";

fn minutes(n: i64) -> Timestamp {
    let created: Timestamp = CREATED.parse().unwrap();
    created.checked_add(SignedDuration::from_mins(n)).unwrap()
}

fn of_task(task: &Value) -> UpgradeJobHook {
    hook("notify", &json!({"template": null, "taskRef": task}))
}

fn on_tekton(account: Option<&str>) -> Settings {
    Settings {
        tekton: Some(Tekton {
            account: account.map(str::to_owned),
        }),
        ..Settings::default()
    }
}

fn built(task: &Value, settings: &Settings) -> DynamicObject {
    let hook = of_task(task);
    let account = settings.tekton.as_ref().and_then(|t| t.account.as_deref());
    let task = hook.spec.task_ref.as_ref().unwrap();
    build(
        &hook,
        task,
        &event(HookEvent::Start),
        &upgrade_job(),
        "",
        settings,
        account,
    )
    .unwrap()
}

/// As the cluster has it, with this condition `Succeeded` and more of the status.
fn stored(status: &str, reason: &str, rest: &Value) -> DynamicObject {
    let mut object = built(&json!({"name": "notify", "timeout": "30m"}), &on_tekton(None));
    let mut all = json!({"podName": "p", "conditions": [
        {"type": "Other", "status": "True"},
        {"type": "Succeeded", "status": status, "reason": reason, "message": "it says so"},
    ]});
    json_patch::merge(&mut all, rest);
    object.data["status"] = all;
    object.metadata.name = Some("r".to_owned());
    object.metadata.creation_timestamp = serde_json::from_value(json!(CREATED)).unwrap();
    object
}

fn run(status: &str, reason: &str, rest: &Value) -> TaskRun {
    stored(status, reason, rest).into()
}

fn exited(code: i64) -> Value {
    let running = json!({"name": "late", "running": {}});
    json!({"steps": [
        {"name": "early", "terminated": {"exitCode": 0, "reason": "Completed"}},
        {"name": "main", "terminated": {"exitCode": code, "reason": "Error"}},
        running,
    ]})
}

#[test]
fn the_task_run_is_like_the_job_of_another_hook() {
    let task = json!({"name": "notify", "retries": 2, "arguments": [{"name": "channel", "value": "#ops"}]});
    let run = built(&task, &on_tekton(Some("runner")));
    let job = crate::hooks::fixtures::hook_job(&hook("notify", &json!({})), HookEvent::Start, "", "");
    assert_eq!(run.metadata.name, job.metadata.name);
    assert_eq!(run.metadata.namespace.as_deref(), Some("upgrades"));
    assert_eq!(run.metadata.labels, job.metadata.labels);
    assert_eq!(run.metadata.owner_references, job.metadata.owner_references);
    assert_eq!(
        run.metadata.finalizers,
        Some(vec![finalizers::HOOK_JOB.to_owned()])
    );
    let types = run.types.as_ref().unwrap();
    assert_eq!(
        (types.api_version.as_str(), types.kind.as_str()),
        ("tekton.dev/v1", "TaskRun")
    );
    let mut spec = run.data["spec"].clone();
    let env = spec["podTemplate"].take();
    assert_eq!(
        spec,
        json!({
            "taskRef": {"kind": "Task", "name": "notify"},
            "params": [{"name": "channel", "value": "#ops"}],
            "serviceAccountName": "runner",
            "retries": 2,
            "timeout": "0s",
            "podTemplate": null,
        })
    );
    let pod = job.spec.unwrap().template.spec.unwrap();
    assert_eq!(env["env"], json!(pod.containers[0].env));
}

#[rstest]
#[case::of_the_hook(json!({"name": "x", "serviceAccountName": "mine"}), Some("jobs"), Some("mine"))]
#[case::of_the_job(json!({"name": "x"}), Some("jobs"), Some("jobs"))]
#[case::of_tekton(json!({"name": "x"}), None, None)]
fn a_pod_runs_as(#[case] task: Value, #[case] account: Option<&str>, #[case] expected: Option<&str>) {
    let run = built(&task, &on_tekton(account));
    assert_eq!(run.data["spec"]["serviceAccountName"].as_str(), expected);
}

#[rstest]
#[case(json!({"name": "x", "timeout": "90m"}), None, "1h30m")]
#[case(json!({"name": "x", "timeout": "90m"}), Some(10), "1h30m")]
#[case(json!({"name": "x"}), Some(10), "10m")]
#[case(json!({"name": "x"}), None, "0s")]
#[case::bad_ones_are_told_by_the_condition(json!({"name": "x", "timeout": "soon"}), None, "0s")]
fn a_deadline_is_the_hooks_or_the_default(
    #[case] task: Value,
    #[case] default: Option<i64>,
    #[case] expected: &str,
) {
    let settings = Settings {
        default_deadline: default.map(SignedDuration::from_mins),
        ..on_tekton(None)
    };
    let run = built(&task, &settings);
    assert_eq!(run.data["spec"]["timeout"], expected);
    assert_eq!(has_no_limit(&run), expected == "0s");
}

#[test]
fn a_task_elsewhere_is_fetched_by_the_resolver_of_the_cluster() {
    let run = built(&json!({"name": "x", "namespace": "ops"}), &on_tekton(None));
    assert_eq!(
        run.data["spec"]["taskRef"],
        json!({"resolver": "cluster", "params": [
            {"name": "kind", "value": "task"}, {"name": "name", "value": "x"}, {"name": "namespace", "value": "ops"},
        ]})
    );
}

#[rstest]
#[case::done(run("True", "Succeeded", &json!({})), HookState::Complete, "")]
#[case::goes_on(run("Unknown", "Running", &json!({"steps": [{"name": "main", "running": {}}]})), HookState::Active, "TaskRun r")]
#[case::its_step(run("Unknown", "Running", &json!({"steps": [
    {"name": "early", "terminated": {"exitCode": 0}}, {"name": "main", "running": {}}]})), HookState::Active, "TaskRun r, step main, 2 of 2")]
#[case::does_not_get_on(run("Unknown", "Pending", &json!({})), HookState::Active, "TaskRun r: Pending: it says so; see oc -n upgrades describe pod p")]
#[case::has_no_pod(run("Unknown", "ExceededResourceQuota", &json!({"podName": ""})), HookState::Active, "TaskRun r: ExceededResourceQuota: it says so; see oc -n upgrades describe taskrun r")]
#[case::failed(run("False", "StepFailed", &exited(3)), HookState::Failed, "TaskRun r failed: it says so (StepFailed); see oc -n upgrades logs --all-containers p")]
#[case::says_why(run("False", "StepFailed", &json!({"results": [{"name": "message", "value": "no room\n"}]})), HookState::Failed, "TaskRun r failed: no room (StepFailed: it says so)")]
#[case::has_no_task(run("False", "TaskRunResolutionFailed", &json!({"podName": ""})), HookState::Failed, "TaskRun r failed: it says so (TaskRunResolutionFailed)")]
#[case::took_too_long(run("False", "TaskRunTimeout", &json!({})), HookState::Failed, "TaskRun r failed: it says so (TaskRunTimeout)")]
fn the_condition_of_a_task_run_is_its_state(
    #[case] run: TaskRun,
    #[case] state: HookState,
    #[case] message: &str,
) {
    let seen = HookRun::of_task_run(&run, minutes(1));
    assert_eq!((seen.state, seen.message.as_str()), (state, message));
    assert_eq!((seen.again, seen.kind), (None, RunKind::TaskRun));
}

#[test]
fn one_that_tekton_does_not_begin_says_so_and_one_that_is_deleted_has_failed() {
    let mut object = stored("Unknown", "Running", &json!({}));
    object.data["status"] = Value::Null;
    let seen = TaskRun::from(object.clone());
    let seen = HookRun::of_task_run(&seen, minutes(1));
    assert_eq!(seen.state, HookState::Active);
    assert_eq!(
        seen.message,
        "TaskRun r: Tekton has not begun it yet; see oc -n upgrades describe taskrun r"
    );

    object.metadata.deletion_timestamp = object.metadata.creation_timestamp.clone();
    let seen = TaskRun::from(object);
    let seen = HookRun::of_task_run(&seen, minutes(1));
    assert_eq!(seen.state, HookState::Failed);
    assert_eq!(seen.message, "TaskRun r was deleted before it ended");
}

#[test]
fn what_is_no_task_run_at_all_is_one_that_has_not_begun() {
    let odd = json!({"spec": 1, "status": {"conditions": "x", "steps": {}, "results": [1], "podName": 3}});
    let run = TaskRun::from(DynamicObject::new("r", &resource()).data(odd));
    assert_eq!(HookRun::of_task_run(&run, minutes(1)).state, HookState::Active);
}

#[rstest]
#[case::not_begun("", json!({"conditions": null}), Some((Awaited::Any, WithoutPod::NotBegun)))]
#[case::at_work("Running", json!({}), Some((Awaited::Named("p".to_owned()), WithoutPod::Gone)))]
#[case::is_tried_again("ToBeRetried", json!({"podName": ""}), Some((Awaited::Next, WithoutPod::EngineWaits)))]
#[case::no_room_yet("ExceededResourceQuota", json!({"podName": ""}), Some((Awaited::Next, WithoutPod::EngineWaits)))]
#[case::no_room_again("ExceededResourceQuota", json!({}), Some((Awaited::Next, WithoutPod::EngineWaits)))]
#[case::over("", json!({"conditions": [{"type": "Succeeded", "status": "False"}]}), None)]
fn what_has_not_ended_waits_for_its_pod(
    #[case] reason: &str,
    #[case] status: Value,
    #[case] awaits: Option<(Awaited, WithoutPod)>,
) {
    let run = run("Unknown", reason, &status);
    let is_over = awaits.is_none();
    let expected = awaits.map(|(pods, without)| PodWait {
        owner: PodOwner::TaskRun("r".to_owned()),
        pods,
        since: minutes(0),
        without,
        is_all: true,
    });
    assert_eq!(run.wait(), expected);
    assert_eq!(run.has_ended(), is_over);
}

/// The next look at one that Tekton still shows as running must not take that back; Tekton's own word for it comes when it is
/// back, and it is let go meanwhile.
#[test]
fn one_that_was_given_up_stays_so_and_is_let_go() {
    let failed = entry("notify", HookEvent::Start, "", HookState::Failed);
    let waits = [run("Unknown", "Running", &json!({}))];
    let stored = [failed];
    assert_eq!(track(&stored, &waits), stored);
    assert_eq!(releasable(&stored, &waits), []);
    assert_eq!(
        given_up(&stored, &waits),
        ["r"],
        "which is more than to let it go"
    );
    let complete = entry("notify", HookEvent::Start, "", HookState::Complete);
    for stored in [&[complete][..], &[]] {
        assert_eq!(releasable(stored, &waits), [], "Tekton will end it");
        assert_eq!(given_up(stored, &waits), [""; 0]);
    }
    let ended = [run("False", "StepFailed", &exited(3))];
    assert_eq!(releasable(&stored, &ended), [name("r")]);
    assert_eq!(given_up(&stored, &ended), [""; 0]);
}

fn killed(attempt: u32) -> TaskRun {
    let mut object = stored("False", "StepFailed", &exited(143));
    if attempt > 1 {
        let all = object.metadata.annotations.get_or_insert_default();
        all.insert(annotations::ATTEMPT.to_owned(), attempt.to_string());
    }
    object.into()
}

#[rstest]
#[case::once(
    1,
    10,
    true,
    "TaskRun r: its pod was killed (exit code 143); it is started again"
)]
#[case::for_the_last_time(
    10,
    10,
    true,
    "TaskRun r: its pod was killed (exit code 143); it is started again"
)]
#[case::too_often(
    11,
    10,
    false,
    "TaskRun r failed: its pod was killed (exit code 143), as 10 were before it"
)]
#[case::at_the_end_of_its_time(
    1,
    30,
    false,
    "TaskRun r failed: its pod was killed (exit code 143), and its time was over"
)]
fn a_killed_pod_is_no_failure(
    #[case] attempt: u32,
    #[case] after: i64,
    #[case] again: bool,
    #[case] message: &str,
) {
    let run = killed(attempt);
    let seen = HookRun::of_task_run(&run, minutes(after));
    assert_eq!(seen.state == HookState::Active, again);
    assert_eq!(seen.message, message);
    let rest = SignedDuration::from_mins(30 - after);
    assert_eq!(seen.again, again.then_some(Again { timeout: Some(rest) }));
}

#[test]
fn a_pod_is_looked_at_where_it_decides() {
    let open = run("False", "StepFailed", &exited(255));
    assert_eq!(open.pod_to_look_at(), Some("p"));
    for clear in [
        run("False", "StepFailed", &exited(143)),
        run("False", "TaskRunTimeout", &exited(1)),
        run("Unknown", "Running", &exited(255)),
        run("True", "Succeeded", &json!({})),
        run("False", "StepFailed", &json!({"podName": ""})),
    ] {
        assert_eq!(clear.pod_to_look_at(), None, "{clear:?}");
    }
    let of = |sight| {
        let run = TaskRun {
            pod_sight: sight,
            ..open.clone()
        };
        HookRun::of_task_run(&run, minutes(1)).state
    };
    assert_eq!(of(PodSight::There), HookState::Failed);
    assert_eq!(of(PodSight::Deleted), HookState::Active);
}

#[rstest]
#[case(json!({}), PodSight::There)]
#[case(json!({"metadata": {"deletionTimestamp": CREATED}}), PodSight::Deleted)]
#[case(json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}}), PodSight::Disrupted)]
#[case(json!({"metadata": {"deletionTimestamp": CREATED}, "status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}}), PodSight::Disrupted)]
#[case(json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "False"}]}}), PodSight::There)]
fn a_pod_tells(#[case] pod: Value, #[case] expected: PodSight) {
    assert_eq!(PodSight::of(&serde_json::from_value(pod).unwrap()), expected);
}

fn name(name: &str) -> RunName {
    RunName {
        kind: RunKind::TaskRun,
        name: name.to_owned(),
    }
}

fn track(stored: &[HookTracker], runs: &[TaskRun]) -> Vec<HookTracker> {
    let runs: Vec<_> = runs
        .iter()
        .map(|r| HookRun::of_task_run(r, minutes(10)))
        .collect();
    tracker::track(&upgrade_job(), stored, &runs)
}

fn releasable(stored: &[HookTracker], runs: &[TaskRun]) -> Vec<RunName> {
    let runs: Vec<_> = runs
        .iter()
        .map(|r| HookRun::of_task_run(r, minutes(10)))
        .collect();
    tracker::releasable(&upgrade_job(), stored, &runs)
}

fn given_up(stored: &[HookTracker], runs: &[TaskRun]) -> Vec<String> {
    let runs: Vec<_> = runs
        .iter()
        .map(|r| HookRun::of_task_run(r, minutes(10)))
        .collect();
    tracker::given_up(&upgrade_job(), stored, &runs)
}

fn next_tries(stored: &[HookTracker], runs: &[TaskRun]) -> Vec<NextTry> {
    let runs: Vec<_> = runs
        .iter()
        .map(|r| HookRun::of_task_run(r, minutes(10)))
        .collect();
    tracker::next_tries(&upgrade_job(), stored, &runs)
}

#[test]
fn a_killed_hook_is_tried_again_and_the_last_try_counts() {
    let first = killed(1);
    let active = entry("notify", HookEvent::Start, "", HookState::Active);
    let tracker = track(std::slice::from_ref(&active), std::slice::from_ref(&first));
    assert_eq!((tracker.len(), tracker[0].status), (1, HookState::Active));
    let [next] = next_tries(&tracker, std::slice::from_ref(&first))
        .try_into()
        .unwrap();
    assert_eq!((&next.after, next.attempt), (&name("r"), 2));
    assert!(
        next.name.ends_with("-2") && next.name.len() <= 63,
        "{}",
        next.name
    );

    let mut killed_object = stored("False", "StepFailed", &exited(143));
    let tektons = killed_object.metadata.labels.get_or_insert_default();
    tektons.insert("tekton.dev/task".to_owned(), "notify".to_owned());
    killed_object.data["spec"]["statusMessage"] = json!("mine");
    let again = super::next(&killed_object, &next);
    let (mut before, mut after) = (killed_object.data["spec"].clone(), again.data["spec"].clone());
    before.as_object_mut().unwrap().remove("statusMessage");
    assert_eq!(
        (before["timeout"].take(), after["timeout"].take()),
        (json!("30m"), json!("20m"))
    );
    assert_eq!(before, after, "it is told the same");
    assert_eq!(again.data.get("status"), None);
    assert_eq!(again.metadata.name.as_deref(), Some(next.name.as_str()));
    assert_eq!(again.metadata.labels, first.metadata.labels);
    assert_eq!(again.metadata.uid, None);

    let second = TaskRun::from(again.clone());
    assert_eq!(second.attempt(), 2);
    let both = [first.clone(), second.clone()];
    assert_eq!(next_tries(&tracker, &both), []);
    let tracker = track(&tracker, &both);
    assert_eq!((tracker.len(), tracker[0].status), (1, HookState::Active));
    assert!(
        tracker[0]
            .message
            .contains("try 2 since pods of others were killed"),
        "{}",
        tracker[0].message
    );

    let mut done = again;
    done.data["status"] = stored("True", "Succeeded", &json!({})).data["status"].clone();
    let both = [first, done.into()];
    let tracker = track(&tracker, &both);
    assert_eq!((tracker.len(), tracker[0].status), (1, HookState::Complete));
    assert_eq!(
        track(&tracker, &[]),
        tracker,
        "it stays when the TaskRuns are gone"
    );
}

/// Tekton is back before the cancellation is written, and sees a pod that a drain killed meanwhile.
#[rstest]
#[case::given_up(HookState::Failed)]
#[case::done(HookState::Complete)]
fn a_hook_that_has_its_end_is_not_tried_again(#[case] stored: HookState) {
    let stored = [entry("notify", HookEvent::Start, "", stored)];
    let runs = [killed(1)];
    assert_eq!(next_tries(&stored, &runs), []);
    assert_eq!(track(&stored, &runs)[0].status, stored[0].status);
}

#[test]
fn a_try_that_another_followed_is_let_go_and_the_last_once_it_is_recorded() {
    let first = killed(1);
    let mut second = killed(2);
    second.metadata.name = Some("s".to_owned());
    let releasable = |stored: HookState, runs: &[TaskRun]| {
        let runs: Vec<_> = runs
            .iter()
            .map(|r| HookRun::of_task_run(r, minutes(60)))
            .collect();
        let stored = [entry("notify", HookEvent::Start, "", stored)];
        tracker::releasable(&upgrade_job(), &stored, &runs)
    };
    let both = [first.clone(), second];
    assert_eq!(releasable(HookState::Active, std::slice::from_ref(&first)), []);
    assert_eq!(releasable(HookState::Active, &both), [name("r")]);
    assert_eq!(releasable(HookState::Failed, &both), [name("r"), name("s")]);
    let runs: Vec<_> = both
        .iter()
        .map(|r| HookRun::of_task_run(r, minutes(60)))
        .collect();
    assert_eq!(tracker::abandoned(&[&upgrade_job().metadata], &runs), []);
    assert_eq!(tracker::abandoned(&[], &runs), [name("r"), name("s")]);
}

#[test]
fn a_task_runs_where_tekton_runs_the_job_and_has_a_deadline_to_set() {
    let hook = of_task(&json!({"name": "notify"}));
    let tick = |settings: &Settings| {
        crate::hooks::run::tick(
            &[&hook],
            &event(HookEvent::Start),
            &[String::new()],
            &[],
            &upgrade_job(),
            settings,
        )
    };
    let elsewhere = tick(&Settings::default());
    assert_eq!((elsewhere.create.len(), elsewhere.problems.len()), (0, 1));
    let here = tick(&on_tekton(None));
    assert!(
        matches!(here.create.as_slice(), [NewRun::TaskRun(_)]),
        "{:?}",
        here.create
    );
    assert!(matches!(here.verdict, HooksVerdict::Running { .. }));
    assert_eq!(here.warnings.len(), 1);
    assert!(
        here.warnings[0].ends_with(
            "has no deadline: if it hangs, so does the upgrade; set spec.taskRef.timeout of the hook"
        ),
        "{:?}",
        here.warnings
    );
}

#[test]
fn eight_steps_with_the_environment_fit_into_a_pod() {
    let mut job = upgrade_job();
    let notes = (0..3_000).map(|i| (format!("note-{i}"), "x".repeat(20)));
    job.metadata.annotations = Some(notes.collect());
    let hook = of_task(&json!({"name": "notify"}));
    let task = hook.spec.task_ref.as_ref().unwrap();
    let built = build(
        &hook,
        task,
        &event(HookEvent::Start),
        &job,
        "",
        &on_tekton(None),
        None,
    )
    .unwrap();
    assert!(crate::hooks::job::is_trimmed(&built.metadata));
    let env = built.data["spec"]["podTemplate"]["env"].to_string();
    assert!(env.len() * 8 < 1_200_000, "{}", env.len());
    assert_eq!(built.labels()[labels::HOOK_EVENT], "Start");
}

impl TaskRun {
    /// As Tekton has it while this pod is at work.
    pub(crate) fn has_pod(&mut self, name: &str) {
        self.tell("Unknown", "Running", None);
        name.clone_into(&mut self.pod);
    }

    /// As Tekton would have it, with the exit code of its only step where that has ended badly.
    pub(crate) fn tell(&mut self, status: &str, reason: &str, code: Option<i64>) {
        self.condition = Some(Condition {
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: "it says so".to_owned(),
        });
        self.exit = code.map(|code| Exit {
            code,
            reason: "Error".to_owned(),
        });
    }
}
