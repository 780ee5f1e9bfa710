//! Hooks that are Tekton Tasks: `taskRef`.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    bench::Bench,
    fixtures::{held, job, object},
};
use crate::{
    api::{
        UpgradeJobHook,
        conditions::{self, types},
        upgrade_job::{EngineChoice, HookState, HookTracker, JobPhase},
    },
    engine::native::{Lookup, TemplateKey},
    hooks::task_run::{PodSight, TaskRun},
    lifecycle::EngineState,
    steps::Action,
};

fn hook(name: &str, events: &[&str], policy: &str) -> UpgradeJobHook {
    object(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"events": events, "failurePolicy": policy, "taskRef": {"name": "t", "timeout": "30m"}},
    }))
}

#[allow(clippy::needless_pass_by_value)]
fn bench(hooks: Vec<UpgradeJobHook>, patch: Value) -> Bench {
    let mut bench = Bench::new(job("j", patch)).on_tekton();
    let task = hooks[0].spec.task_ref.as_ref().unwrap();
    let found = Lookup::Found(json!({"steps": [{"name": "main"}]}));
    bench.templates.0.insert(TemplateKey::of_task(task), found);
    bench.world.hooks = hooks;
    bench
}

fn at_start(policy: &str) -> Bench {
    let mut bench = bench(vec![hook("a", &["Start"], policy)], json!({}));
    bench.settle_at(10);
    bench
}

fn last(bench: &mut Bench) -> &mut TaskRun {
    bench.world.hook_task_runs.last_mut().unwrap()
}

fn tracked(bench: &Bench) -> HookTracker {
    let [entry] = bench.status().hook_tracker.try_into().unwrap();
    entry
}

#[test]
fn a_hook_is_created_awaited_done_and_let_go() {
    let mut bench = at_start("Abort");
    assert_eq!(bench.world.hook_task_runs.len(), 1);
    assert_eq!(
        bench.count(|a| matches!(a, Action::CreateHookJob(_))),
        0,
        "it is no Job"
    );
    assert_eq!(tracked(&bench).status, HookState::Active);
    assert_eq!(tracked(&bench).workflow_step, None);
    let message = bench.step("hook-start-a").unwrap().message.unwrap();
    assert!(
        message.starts_with("waiting for hooks of Start: hook a (TaskRun j-a-start-"),
        "the CustomRun names it: {message}"
    );
    assert!(bench.desired().is_none());

    last(&mut bench).tell("True", "Succeeded", None);
    bench.settle();
    assert_eq!(tracked(&bench).status, HookState::Complete);
    assert!(!last(&mut bench).is_held());
    assert_eq!(bench.desired().as_deref(), Some("4.18.5"));
}

#[rstest]
#[case("Abort", true)]
#[case("Ignore", false)]
fn a_failure_counts_by_its_policy(#[case] policy: &str, #[case] fails: bool) {
    let mut bench = at_start(policy);
    last(&mut bench).tell("False", "StepFailed", Some(3));
    bench.settle();
    assert_eq!(tracked(&bench).status, HookState::Failed);
    assert_eq!(bench.world.hook_task_runs.len(), 1, "it is not run again");
    assert!(!last(&mut bench).is_held());
    assert_eq!(bench.status().phase == Some(JobPhase::Failed), fails);
    assert_eq!(bench.desired().is_none(), fails);
}

#[test]
fn a_pod_that_a_drain_killed_is_started_again_and_the_upgrade_goes_on() {
    let mut bench = at_start("Abort");
    last(&mut bench).tell("False", "StepFailed", Some(143));
    bench.settle();
    assert_eq!(bench.count(|a| matches!(a, Action::RepeatHookTaskRun(_))), 1);
    assert_eq!(bench.world.hook_task_runs.len(), 2);
    assert_eq!(tracked(&bench).status, HookState::Active);
    let held: Vec<bool> = bench.world.hook_task_runs.iter().map(TaskRun::is_held).collect();
    assert_eq!(held, [false, true], "the first is of no use any more");

    // A program that a signal ended: Tekton says 255, and only the pod tells.
    let second = last(&mut bench);
    second.tell("False", "StepFailed", Some(255));
    second.pod_sight = PodSight::Deleted;
    bench.settle();
    assert_eq!(bench.world.hook_task_runs.len(), 3);

    last(&mut bench).tell("True", "Succeeded", None);
    bench.settle();
    assert_eq!(tracked(&bench).status, HookState::Complete);
    assert!(bench.desired().is_some());
}

#[test]
fn a_job_that_is_deleted_starts_nothing_again() {
    let mut bench = at_start("Ignore");
    last(&mut bench).tell("False", "StepFailed", Some(143));
    let deleted = object(json!("2026-11-24T21:00:10Z"));
    bench.job_mut().metadata.deletion_timestamp = Some(deleted);
    bench.settle();
    assert_eq!(bench.count(|a| matches!(a, Action::RepeatHookTaskRun(_))), 0);
}

#[test]
fn every_pool_has_a_task_run_of_its_own() {
    let hooks = vec![hook("a", &["MachineConfigPoolUnpause"], "Abort")];
    let mut bench = bench(hooks, held()).completed();
    bench.settle_at(40 * 60);
    assert_eq!(bench.world.hook_task_runs.len(), 1);
    assert_eq!(tracked(&bench).tracking_key, "night");
    last(&mut bench).tell("False", "StepFailed", Some(1));
    bench.settle();
    assert_eq!(bench.status().phase, Some(JobPhase::Failed));
    assert_eq!(bench.paused(), ["night"], "it stays paused");
}

#[rstest]
#[case::missing(EngineChoice::Tekton, "there is no Task t in namespace ns")]
#[case::argo(EngineChoice::Argo, "which only Tekton can run")]
#[case::embedded(EngineChoice::Embedded, "which only Tekton can run")]
fn what_cannot_run_is_said_at_the_pin(#[case] engine: EngineChoice, #[case] cause: &str) {
    for (policy, fails) in [("Abort", true), ("Ignore", false)] {
        let mut bench = bench(vec![hook("a", &["Start", "Finish"], policy)], json!({}));
        bench.templates.0.clear();
        bench.engine = EngineState::Ready(engine);
        bench.settle_at(-100);
        let status = bench.status();
        let condition = conditions::get(&status.conditions, types::HOOKS_RUNNABLE).unwrap();
        assert_eq!(condition.status, "False");
        assert!(condition.message.contains(cause), "{}", condition.message);
        assert_eq!(status.phase == Some(JobPhase::Failed), fails);
        assert!(fails || status.hook_tracker.iter().all(|t| t.message.contains(cause)));
    }
}

#[test]
fn a_job_that_never_had_a_workflow_runs_the_hooks_of_its_end_too() {
    let mut bench = bench(vec![hook("a", &["Finish"], "Ignore")], json!({}));
    bench.settle_at(-100);
    assert!(conditions::is_true(
        &bench.status().conditions,
        types::HOOKS_RUNNABLE
    ));
    bench.world.cluster_version.as_mut().unwrap().status = None;
    bench.settle_at(2 * 3600);
    assert_eq!(bench.status().workflow, None);
    assert_eq!(bench.world.hook_task_runs.len(), 1, "{}", bench.message());
}
