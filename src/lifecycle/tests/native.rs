//! Hooks that the workflow engine runs itself: `templateRef`.

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
        upgrade_job::{EngineChoice, HookState, JobPhase, StepPhase},
    },
    engine::{
        NodePhase, Repeat, StopRequest,
        native::{Lookup, TemplateKey, TemplateKind},
    },
    lifecycle::EngineState,
    plan::StepAction,
    steps::Action,
};

fn hook(name: &str, events: &[&str], policy: &str) -> UpgradeJobHook {
    object(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"events": events, "failurePolicy": policy, "templateRef": {"name": "t"}},
    }))
}

fn template() -> Lookup {
    Lookup::Found(json!({"entrypoint": "main", "templates": [{"name": "main", "container": {"image": "i"}}]}))
}

fn key() -> TemplateKey {
    TemplateKey {
        kind: TemplateKind::WorkflowTemplate,
        name: "t".into(),
    }
}

#[allow(clippy::needless_pass_by_value)]
fn bench(hooks: Vec<UpgradeJobHook>, patch: Value) -> Bench {
    let mut bench = Bench::new(job("j", patch));
    bench.world.hooks = hooks;
    bench.templates.0.insert(key(), template());
    bench
}

fn at_start(policy: &str) -> Bench {
    let mut bench = bench(vec![hook("a", &["Start"], policy)], json!({}));
    bench.settle_at(10);
    bench
}

fn tracked(bench: &Bench) -> Vec<(String, HookState, String)> {
    let all = bench.status().hook_tracker;
    all.into_iter()
        .map(|e| (e.upgrade_job_hook, e.status, e.message))
        .collect()
}

fn one_tracked(bench: &Bench) -> (HookState, String) {
    let all = tracked(bench);
    assert_eq!(all.len(), 1, "{all:?}");
    (all[0].1, all[0].2.clone())
}

fn step(bench: &Bench, name: &str) -> (StepPhase, String) {
    let status = bench.status();
    let step = status.steps.iter().find(|s| s.name == name).unwrap();
    (step.phase, step.message.clone().unwrap_or_default())
}

#[test]
fn a_hook_is_started_awaited_and_done() {
    let mut bench = at_start("Abort");
    assert_eq!(
        bench.native_runs("hook-start-a"),
        [(String::new(), NodePhase::Running)]
    );
    assert_eq!(one_tracked(&bench).0, HookState::Active);
    assert_eq!(
        step(&bench, "hook-start-a").1,
        "waiting for hooks of Start: hook a"
    );
    assert_eq!(step(&bench, "hooks-start").0, StepPhase::Pending);
    assert!(bench.count(|a| matches!(a, Action::CreateHookJob(_))) == 0);

    bench.native(
        "hook-start-a",
        "",
        NodePhase::Running,
        "attempt 2 after: main: Error (exit code 143)",
    );
    bench.settle();
    assert_eq!(
        step(&bench, "hook-start-a").1,
        "waiting for hooks of Start: hook a (attempt 2 after: main: Error (exit code 143))"
    );

    bench.native("hook-start-a", "", NodePhase::Succeeded, "");
    bench.settle();
    assert_eq!(one_tracked(&bench), (HookState::Complete, String::new()));
    assert_eq!(
        step(&bench, "hook-start-a"),
        (StepPhase::Succeeded, "hooks of Start: 1 done".into())
    );
    assert!(step(&bench, "hooks-start").0.is_finished());
    assert_eq!(bench.desired().as_deref(), Some("4.18.5"));
}

#[rstest]
#[case("Abort", true)]
#[case("Ignore", false)]
fn a_failure_counts_by_its_policy(#[case] policy: &str, #[case] fails: bool) {
    let mut bench = at_start(policy);
    bench.native("hook-start-a", "", NodePhase::Failed, "main: Error (exit code 3)");
    bench.settle();
    let (state, message) = one_tracked(&bench);
    assert_eq!(state, HookState::Failed);
    assert_eq!(
        message,
        "step hook-start-a of workflow j-run-1: main: Error (exit code 3)"
    );
    let status = bench.status();
    assert_eq!(status.phase == Some(JobPhase::Failed), fails);
    assert_eq!(bench.desired().is_none(), fails);
    if fails {
        let message = status.message.unwrap();
        assert!(
            message.starts_with(
                "hook-start-a: hook a failed: step hook-start-a of workflow j-run-1: main: Error (exit code 3)"
            ),
            "{message}"
        );
        let failed = conditions::get(&bench.job().status.as_ref().unwrap().conditions, types::FAILED)
            .unwrap()
            .reason
            .clone();
        assert_eq!(failed, "HookFailed");
    }
}

#[test]
fn every_pool_of_a_group_has_a_run_of_its_own() {
    let mut bench = bench(vec![hook("a", &["MachineConfigPoolUnpause"], "Abort")], held());
    bench = bench.completed();
    bench.settle_at(1_900);
    let step_name = "hook-unpause-night-a";
    assert_eq!(
        bench.native_runs(step_name),
        [("night".to_owned(), NodePhase::Running)]
    );
    assert_eq!(bench.paused(), ["night"]);
    bench.native(step_name, "night", NodePhase::Succeeded, "");
    bench.settle();
    assert_eq!(bench.paused(), Vec::<&str>::new());
    assert_eq!(bench.status().hook_tracker[0].tracking_key, "night");
}

#[test]
fn a_failed_hook_of_a_pool_keeps_it_paused() {
    let mut bench = bench(vec![hook("a", &["MachineConfigPoolUnpause"], "Abort")], held());
    bench = bench.completed();
    bench.settle_at(1_900);
    bench.native(
        "hook-unpause-night-a",
        "night",
        NodePhase::Failed,
        "main: Error (exit code 1)",
    );
    bench.settle();
    assert_eq!(bench.status().phase, Some(JobPhase::Failed));
    let unpaused = |a: &Action| matches!(a, Action::UnpausePool { .. });
    assert_eq!(bench.count(unpaused), 0);
}

#[test]
fn the_hooks_of_the_end_run_and_never_change_the_outcome() {
    let mut bench = bench(
        vec![hook("a", &["Success", "Failure", "Finish"], "Abort")],
        json!({}),
    )
    .completed();
    for _ in 0..3 {
        bench.settle();
    }
    assert_eq!(bench.status().phase, Some(JobPhase::Succeeded));
    for name in ["hook-success-a", "hook-finish-a"] {
        bench.native(name, "", NodePhase::Failed, "main: Error (exit code 1)");
    }
    bench.settle();
    assert_eq!(bench.status().phase, Some(JobPhase::Succeeded));
    let (phase, message) = step(&bench, "hook-success-a");
    assert_eq!(phase, StepPhase::Succeeded);
    assert!(message.contains("1 failed and ignored"), "{message}");
    assert_eq!(step(&bench, "hook-failure-a").0, StepPhase::Skipped);
    assert!(step(&bench, "hooks-finish").0.is_finished());
    assert!(
        tracked(&bench)
            .iter()
            .all(|(_, state, _)| *state == HookState::Failed)
    );
}

#[test]
fn a_hook_of_the_end_that_the_workflow_does_not_get_to_has_a_deadline() {
    let mut bench = bench(vec![hook("a", &["Finish"], "Ignore")], json!({})).completed();
    // The controller is gone: the node of the hook never appears.
    let (_, run) = bench.workflow.as_mut().unwrap();
    run.nodes.retain(|n| n.step != "hook-finish-a");
    let mut status = bench.status();
    status.hook_tracker.clear();
    for s in status.steps.iter_mut().filter(|s| s.name.contains("finish")) {
        (s.phase, s.finished_at, s.started_at) = (StepPhase::Pending, None, None);
    }
    bench.job_mut().status = Some(status);
    let decision = bench.decide();
    assert!(decision.reports.iter().all(|(s, _)| s != "hook-finish-a"));
    let wake = decision.wake_at.expect("a deadline");
    let ended = bench.status().finished_at.unwrap().0;
    assert_eq!(wake.duration_since(ended).as_mins(), 15);
    bench.now += 16 * 60;
    let decision = bench.decide();
    let entry = &decision.status.hook_tracker[0];
    assert!(entry.message.contains("within 15 minutes"), "{}", entry.message);
}

#[test]
fn a_job_that_ends_ends_the_hooks_of_its_main_part() {
    let hooks = vec![
        hook("a", &["Start"], "Ignore"),
        hook("b", &["Start"], "Abort"),
        hook("c", &["Finish"], "Ignore"),
    ];
    let mut bench = bench(hooks, json!({}));
    bench.settle_at(10);
    bench.native("hook-start-b", "", NodePhase::Failed, "main: Error (exit code 1)");
    bench.settle();
    assert_eq!(bench.status().phase, Some(JobPhase::Failed));
    assert_eq!(bench.count(|a| matches!(a, Action::EndMainPart)), 1);
    let all = tracked(&bench);
    assert!(all[0].2.contains("Stopped with strategy 'Stop'"), "{all:?}");
    assert_eq!(
        bench.native_runs("hook-finish-c"),
        [(String::new(), NodePhase::Running)]
    );
}

#[test]
fn a_crash_between_record_and_start_starts_once_more() {
    let mut bench = bench(vec![hook("a", &["Start"], "Abort")], json!({}));
    bench.now = 10;
    while !bench
        .status()
        .hook_tracker
        .iter()
        .any(|e| e.status == HookState::Active)
    {
        let decision = bench.decide();
        if decision.status.hook_tracker.is_empty() {
            assert!(bench.pass());
        } else {
            // Killed before the report.
            bench.job_mut().status = Some(decision.status);
        }
    }
    assert_eq!(bench.native_runs("hook-start-a"), []);
    bench.settle();
    assert_eq!(
        bench.native_runs("hook-start-a"),
        [(String::new(), NodePhase::Running)]
    );
    assert_eq!(bench.status().hook_tracker.len(), 1);
}

#[test]
fn a_step_that_a_person_ends_has_not_run_its_hook() {
    let mut bench = bench(vec![hook("a", &["Start"], "Abort")], json!({}));
    bench.now = 10;
    while bench
        .workflow
        .as_ref()
        .is_none_or(|(_, run)| run.nodes.is_empty())
    {
        assert!(bench.pass());
    }
    let (_, run) = bench.workflow.as_mut().unwrap();
    let node = run.nodes.iter_mut().find(|n| n.step == "hook-start-a").unwrap();
    node.phase = NodePhase::Succeeded;
    node.ended_by = Some("anna".into());
    run.native.get_mut("hook-start-a").unwrap().finished = true;
    bench.settle();
    let (state, message) = one_tracked(&bench);
    assert_eq!(state, HookState::Failed);
    assert!(message.contains("was ended in the workflow by anna"), "{message}");
    assert_eq!(bench.status().phase, Some(JobPhase::Failed));
}

#[test]
fn a_paused_workflow_starts_no_hook() {
    let mut bench = bench(vec![hook("a", &["Start"], "Abort")], json!({}));
    bench.now = 10;
    while bench
        .workflow
        .as_ref()
        .is_none_or(|(_, run)| run.nodes.is_empty())
    {
        assert!(bench.pass());
    }
    bench.workflow.as_mut().unwrap().1.suspended = true;
    bench.settle();
    assert_eq!(bench.native_runs("hook-start-a"), []);
    let message = step(&bench, "hook-start-a").1;
    for part in [
        "suspended by a person",
        "oc -n ns patch workflows.argoproj.io j-run-1 --type merge --patch '{\"spec\":{\"suspend\":null}}'",
    ] {
        assert!(message.contains(part), "{message}");
    }
    bench.workflow.as_mut().unwrap().1.suspended = false;
    bench.settle();
    assert_eq!(bench.native_runs("hook-start-a").len(), 1);
}

#[rstest]
#[case("Abort", true)]
#[case("Ignore", false)]
fn a_workflow_that_is_deleted_takes_the_result_with_it(#[case] policy: &str, #[case] fails: bool) {
    let mut bench = at_start(policy);
    bench.workflow = None;
    bench.settle();
    let (state, message) = one_tracked(&bench);
    assert_eq!(state, HookState::Failed);
    assert!(message.starts_with("workflow j-run-1 disappeared"), "{message}");
    assert_eq!(bench.status().phase == Some(JobPhase::Failed), fails);
    if !fails {
        assert_eq!(bench.status().workflow.unwrap().name, "j-run-2");
        assert_eq!(
            bench.native_runs("hook-start-a"),
            [],
            "it is not run a second time"
        );
        assert!(bench.desired().is_some());
    }
}

#[test]
fn a_stop_of_the_workflow_ends_the_job_as_ever() {
    let mut bench = at_start("Ignore");
    bench.workflow.as_mut().unwrap().1.stop = Some(StopRequest::Stop);
    bench.settle();
    assert_eq!(bench.status().phase, Some(JobPhase::Failed));
    assert_eq!(bench.count(|a| matches!(a, Action::EndMainPart)), 0);
}

/// What was last seen of a deleted workflow tells how its hook ended, but not how one ends that ran then.
#[rstest]
#[case::done(NodePhase::Succeeded, HookState::Complete, "")]
#[case::failed(
    NodePhase::Failed,
    HookState::Failed,
    "step hook-start-a of workflow j-run-1: exit code 3"
)]
#[case::running(NodePhase::Running, HookState::Failed, "workflow j-run-1 disappeared before")]
fn a_hook_ended_as_its_workflow_showed_last(
    #[case] phase: NodePhase,
    #[case] expected: HookState,
    #[case] said: &str,
) {
    let mut bench = at_start("Ignore");
    bench.native("hook-start-a", "", phase, "exit code 3");
    let (_, run) = bench.workflow.take().unwrap();
    bench.gone = Some(run);
    bench.pass();
    let (state, message) = one_tracked(&bench);
    assert_eq!(state, expected);
    assert!(message.starts_with(said), "{message}");
}

#[test]
fn a_hook_added_in_mid_run_cannot_run_in_the_workflow() {
    let mut bench = bench(vec![], json!({})).asked();
    bench.world.hooks = vec![hook("late", &["UpgradeComplete"], "Ignore")];
    bench.accept();
    bench.complete();
    bench.settle_at(120);
    let (state, message) = one_tracked(&bench);
    assert_eq!(state, HookState::Failed);
    assert!(message.contains("only Argo Workflows can run"), "{message}");
    assert_eq!(bench.status().phase, Some(JobPhase::Succeeded));
}

#[test]
fn a_template_that_goes_between_pin_and_start_is_said_at_the_event() {
    let mut bench = bench(vec![hook("a", &["Start"], "Ignore")], json!({}));
    bench.settle_at(-100);
    let found = conditions::is_true(&bench.status().conditions, types::HOOKS_RUNNABLE);
    assert!(found, "{:?}", bench.status().conditions);
    bench.templates.0.insert(key(), Lookup::Absent);
    bench.settle_at(10);
    let (state, message) = one_tracked(&bench);
    assert_eq!(state, HookState::Failed);
    assert!(message.contains("there is no WorkflowTemplate t"), "{message}");
    assert!(bench.desired().is_some());
}

#[rstest]
#[case::missing(EngineChoice::Argo, "there is no WorkflowTemplate t in namespace ns")]
#[case::embedded(EngineChoice::Embedded, "which only Argo Workflows can run")]
fn what_cannot_run_is_said_at_the_pin(#[case] engine: EngineChoice, #[case] cause: &str) {
    for (policy, fails) in [("Abort", true), ("Ignore", false)] {
        let mut bench = bench(vec![hook("a", &["Start", "Finish"], policy)], json!({}));
        bench.templates.0.clear();
        bench.engine = EngineState::Ready(engine);
        bench.settle_at(-100);
        let status = bench.status();
        let condition = conditions::get(&status.conditions, types::HOOKS_RUNNABLE).unwrap();
        assert!(condition.message.contains(cause), "{}", condition.message);
        assert_eq!(condition.status, "False");
        assert!(bench.reasons.contains(&"HookNotRunnable".to_owned()));
        assert_eq!(status.phase == Some(JobPhase::Failed), fails);
        if fails {
            assert!(status.message.unwrap().contains(cause));
        } else {
            assert_eq!(tracked(&bench).len(), 2);
        }
    }
}

/// With `auto` the engine may be another one until the start. One that is away for a while does not cost the night.
#[rstest]
#[case::abort("Abort", true)]
#[case::ignore("Ignore", false)]
fn an_engine_that_goes_after_the_pin_is_judged_anew(#[case] policy: &str, #[case] fails: bool) {
    let mut bench = bench(vec![hook("a", &["Start"], policy)], json!({}));
    bench.settle_at(-100);
    assert_eq!(bench.is_true("HooksRunnable").as_deref(), Some("TemplatesFound"));
    bench.engine = EngineState::Ready(EngineChoice::Embedded);
    bench.settle_at(-50);
    let status = bench.status();
    let condition = conditions::get(&status.conditions, types::HOOKS_RUNNABLE).unwrap();
    assert_eq!(condition.reason, "HookNotRunnable");
    assert_eq!(bench.is_true("Failed"), None, "{}", bench.message());
    bench.settle_at(-20);
    assert_eq!(
        bench.reasons.iter().filter(|r| *r == "HookNotRunnable").count(),
        1,
        "said once"
    );

    bench.settle_at(10);
    if fails {
        assert_eq!(bench.is_true("Failed").as_deref(), Some("HookFailed"));
        assert_eq!(bench.count(|a| matches!(a, Action::TakeLock)), 0);
    } else {
        assert_eq!(bench.is_true("Failed"), None, "{}", bench.message());
        let (state, message) = one_tracked(&bench);
        assert_eq!(state, HookState::Failed);
        assert!(message.contains("only Argo Workflows can run"), "{message}");
    }
}

#[test]
fn an_engine_that_is_away_between_pin_and_start_costs_nothing() {
    let mut bench = bench(vec![hook("a", &["Start"], "Abort")], json!({}));
    bench.settle_at(-100);
    bench.engine = EngineState::Ready(EngineChoice::Embedded);
    bench.settle_at(-50);
    bench.engine = EngineState::Ready(EngineChoice::Argo);
    bench.settle_at(-20);
    assert_eq!(bench.is_true("HooksRunnable").as_deref(), Some("TemplatesFound"));
    bench.settle_at(10);
    assert_eq!(
        bench.native_runs("hook-start-a"),
        [(String::new(), NodePhase::Running)]
    );
}

#[test]
fn an_engine_that_goes_right_at_the_start_is_judged_anew() {
    let mut bench = bench(vec![hook("a", &["Start"], "Abort")], json!({}));
    bench.settle_at(-100);
    bench.engine = EngineState::Ready(EngineChoice::Embedded);
    bench.settle_at(10);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("HookFailed"));
    assert_eq!(bench.count(|a| matches!(a, Action::TakeLock)), 0);
}

#[test]
fn an_engine_that_comes_after_the_pin_runs_what_the_one_before_could_not() {
    let mut bench = bench(vec![hook("a", &["Start"], "Ignore")], json!({}));
    bench.engine = EngineState::Ready(EngineChoice::Embedded);
    bench.settle_at(-100);
    assert_eq!(one_tracked(&bench).0, HookState::Failed);
    bench.engine = EngineState::Ready(EngineChoice::Argo);
    bench.settle_at(-50);
    assert_eq!(bench.is_true("HooksRunnable").as_deref(), Some("TemplatesFound"));
    assert_eq!(tracked(&bench), []);
    bench.settle_at(10);
    assert_eq!(
        bench.native_runs("hook-start-a"),
        [(String::new(), NodePhase::Running)]
    );
}

#[test]
fn hooks_at_the_end_only_do_not_fail_the_job_at_the_pin() {
    let mut bench = bench(vec![hook("a", &["Finish"], "Abort")], json!({}));
    bench.templates.0.clear();
    bench.settle_at(-100);
    assert_eq!(bench.status().phase, Some(JobPhase::Pending));
    let completed = bench.completed();
    assert_eq!(completed.status().phase, Some(JobPhase::Succeeded));
}

#[test]
fn hooks_of_create_run_in_a_workflow_of_their_own() {
    let mut bench = bench(vec![hook("a", &["Create"], "Abort")], json!({}));
    bench.settle_at(-1_000);
    assert_eq!(bench.status().workflow.unwrap().name, "j-create-1");
    assert_eq!(
        bench.native_runs("hook-create-a"),
        [(String::new(), NodePhase::Running)]
    );
    bench.native("hook-create-a", "", NodePhase::Succeeded, "");
    bench.settle();
    assert_eq!(one_tracked(&bench).0, HookState::Complete);
    bench.settle_at(10);
    assert!(bench.desired().is_some());
}

/// Its job still follows it, and waits for its start.
#[test]
fn a_run_of_create_hooks_that_is_retried_is_stopped() {
    let mut bench = bench(vec![hook("a", &["Create"], "Ignore")], json!({}));
    bench.settle_at(-1_000);
    bench.native("hook-create-a", "", NodePhase::Failed, "exit code 3");
    bench.settle();
    let run = bench.run_mut();
    (run.repeat, run.suspended) = (Repeat::Begun, true);
    run.sealed_at = Some(super::bench::SEALED_AT.to_owned());
    assert!(bench.decide().actions.contains(&Action::StopWorkflow));
    bench.run_mut().stop = Some(StopRequest::Terminate);
    assert!(
        !bench.decide().actions.contains(&Action::StopWorkflow),
        "it is asked once"
    );
}

#[rstest]
#[case::named("invalid spec: templates.main.tasks.run-hook-start-a failed", &["a"])]
#[case::not_named("workflow is too complex", &["a", "b"])]
fn an_engine_that_refuses_the_workflow_gets_one_without_the_template(
    #[case] refusal: &str,
    #[case] blamed: &[&str],
) {
    let hooks = vec![hook("a", &["Start"], "Ignore"), hook("b", &["Start"], "Ignore")];
    let mut bench = bench(hooks, json!({}));
    bench.now = 10;
    while bench.workflow.is_none() {
        assert!(bench.pass());
    }
    let (_, run) = bench.workflow.as_mut().unwrap();
    run.nodes.clear();
    run.finished = true;
    run.phase = "Failed".into();
    run.message = Some(refusal.to_owned());
    bench.settle();
    assert_eq!(bench.status().workflow.unwrap().name, "j-run-2");
    let failed: Vec<String> = tracked(&bench)
        .into_iter()
        .filter(|(_, state, message)| *state == HookState::Failed && message.contains(refusal))
        .map(|(hook, ..)| hook)
        .collect();
    assert_eq!(failed, blamed);
}

#[test]
fn a_hook_that_becomes_a_job_meanwhile_is_one() {
    let mut bench = bench(vec![hook("a", &["Start"], "Abort")], json!({}));
    bench.now = 10;
    while bench.workflow.is_none() {
        assert!(bench.pass());
    }
    bench.world.hooks = vec![super::fixtures::hook("a", "Start", "Abort")];
    bench.hooks_end = Some("Complete");
    bench.settle();
    assert_eq!(bench.count(|a| matches!(a, Action::CreateHookJob(_))), 1);
    assert_eq!(bench.native_runs("hook-start-a"), []);
    assert!(bench.desired().is_some());
}

#[test]
fn the_plan_says_nothing_of_engines() {
    let bench = at_start("Abort");
    let plan = crate::plan::Plan::from_value(&bench.status().plan.unwrap()).unwrap();
    let natives = plan
        .steps
        .iter()
        .filter(|s| matches!(s.action, StepAction::Hook { .. }))
        .count();
    assert_eq!(natives, 1);
    assert!(plan.step("run-hook-start-a").is_none());
}
