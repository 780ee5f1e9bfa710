//! Engines that do not do their part, and workflows that people copy: what the job says, and that the upgrade goes on.

use jiff::SignedDuration;
use rstest::rstest;
use serde_json::json;

use super::{
    bench::Bench,
    fixtures::{NEW, at, held, image, job, object},
};
use crate::{
    api::{
        conditions,
        upgrade_job::{EngineChoice, HookState, JobPhase, StepPhase},
    },
    engine::{
        Node, NodePhase, StopRequest,
        native::{Lookup, TemplateKey, TemplateKind},
    },
    lifecycle::{EngineState, OtherState, OtherWorkflow},
    steps::Action,
};

const MINUTE: i64 = 60;

/// The engine is away from the start on.
fn away() -> Bench {
    let mut bench = Bench::new(job("j", json!({})));
    bench.is_engine_away = true;
    bench.settle_at(10);
    bench
}

/// The engine goes away while the control plane is updated, which is done at 120 s.
fn silent() -> Bench {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    bench.is_engine_away = true;
    bench.complete();
    bench.settle_at(120);
    let step = bench.step("await-control-plane").unwrap();
    assert_eq!(step.phase, StepPhase::Succeeded);
    bench
}

/// Status and reason of `EngineStalled`.
fn stalled(bench: &Bench) -> Option<(String, String)> {
    let status = bench.status();
    let found = conditions::get(&status.conditions, "EngineStalled")?;
    Some((found.status.clone(), found.reason.clone()))
}

#[track_caller]
fn assert_stalled(bench: &Bench, status: &str, reason: &str) {
    let expected = Some((status.to_owned(), reason.to_owned()));
    assert_eq!(stalled(bench), expected, "{}", bench.message());
}

fn engine(bench: &Bench) -> EngineChoice {
    bench.status().workflow.unwrap().engine
}

fn stops(bench: &Bench) -> Vec<&str> {
    let name = |a: &'_ Action| match a {
        Action::StopOtherWorkflow { name } => Some(name.clone()),
        _ => None,
    };
    let names: Vec<String> = bench.acted.iter().filter_map(name).collect();
    let others = bench.others.iter().map(|o| o.name.as_str());
    others.filter(|o| names.iter().any(|n| n == o)).collect()
}

#[track_caller]
fn assert_handed_over(bench: &Bench) {
    assert_stalled(bench, "True", "HandedOver");
    assert_eq!(engine(bench), EngineChoice::Embedded);
    assert!(
        bench.others.iter().all(|o| o.state == OtherState::Ended),
        "what it left is stopped: {:?}",
        bench.others
    );
    assert_eq!(bench.status().former_workflows, [], "and off the record");
}

#[test]
fn a_workflow_that_is_not_picked_up_is_told_and_then_the_job_goes_on_without() {
    let mut bench = away();
    bench.settle_at(10 + 2 * MINUTE - 1);
    assert_eq!(stalled(&bench), None);
    bench.settle_at(10 + 2 * MINUTE);
    assert_stalled(&bench, "True", "NotPickedUp");
    let message = bench.message();
    for part in [
        "has not picked up workflow j-run-1 since",
        "the controller of Argo Workflows runs",
        "goes on without it at",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(bench.desired(), None);
    bench.settle_at(10 + 15 * MINUTE - 1);
    assert_stalled(&bench, "True", "NotPickedUp");
    bench.settle_at(10 + 15 * MINUTE);
    assert_handed_over(&bench);
    assert_eq!(stops(&bench), ["j-run-1"]);
    assert_eq!(bench.status().workflow.unwrap().name, "j-run-2");
    assert_eq!(bench.desired().as_deref(), Some(NEW));
    bench.accept();
    bench.settle();
    bench.complete();
    bench.settle_at(20 * MINUTE);
    bench.assert_succeeded();
    assert_eq!(bench.count(|a| matches!(a, Action::CreateWorkflow)), 1);
    assert_eq!(bench.reasons.iter().filter(|r| *r == "EngineStalled").count(), 1);
}

/// Argo may forget a workflow that was stopped, until somebody writes to it (seen with 3.7.18 on a busy machine).
#[test]
fn a_stopped_workflow_that_does_not_end_is_looked_at_again_for_a_while() {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    bench.run_mut().stop = Some(StopRequest::Terminate);
    bench.settle_at(30);
    let woken = |bench: &Bench| bench.count(|a| matches!(a, Action::WakeWorkflow));
    assert_eq!((bench.is_true("Failed").is_some(), woken(&bench)), (true, 0));
    assert!(bench.decide().wake_at.is_some(), "it has to come back for that");
    for minute in 1..=60 {
        bench.settle_at(30 + minute * MINUTE);
    }
    assert_eq!(woken(&bench), 20, "once a minute, while Argo would not by itself");

    let mut bench = Bench::new(job("j", json!({}))).accepted();
    bench.run_mut().stop = Some(StopRequest::Terminate);
    bench.settle_at(30);
    bench.run_mut().finished = true;
    bench.settle_at(40);
    assert_eq!(woken(&bench), 0, "it has ended");
}

/// So is one that runs, before anybody is told (seen with 3.7.18 on a busy machine).
#[test]
fn a_workflow_that_does_not_go_on_is_looked_at_again_before_that_is_said() {
    let mut bench = silent();
    let woken = |bench: &Bench| bench.count(|a| matches!(a, Action::WakeWorkflow));
    bench.settle_at(120 + MINUTE - 1);
    assert_eq!(woken(&bench), 0, "it has time");
    assert_eq!(bench.decide().wake_at, Some(at(120 + MINUTE)));
    bench.settle_at(120 + MINUTE);
    assert_eq!((woken(&bench), stalled(&bench)), (1, None));
    bench.is_engine_away = false;
    bench.settle_at(120 + MINUTE + 1);
    bench.settle_at(120 + 4 * MINUTE);
    assert_eq!((woken(&bench), stalled(&bench)), (1, None), "it was forgotten");
}

#[rstest]
#[case::before_the_hand_over(json!({"spec": {"startBefore": at(600).to_string()}}), true, 600)]
#[case::without_hand_over(json!({}), false, 3600)]
fn a_job_whose_workflow_is_not_picked_up_in_its_window_expires(
    #[case] patch: serde_json::Value,
    #[case] hands_over: bool,
    #[case] limit: i64,
) {
    let mut bench = Bench::new(job("j", patch));
    bench.is_engine_away = true;
    if !hands_over {
        bench.settings.engine_handover_after = None;
    }
    bench.settle_at(10);
    bench.settle_at(limit - 1);
    assert_stalled(&bench, "True", "NotPickedUp");
    assert_eq!(bench.status().phase, Some(JobPhase::Running));
    bench.settle_at(limit);
    assert_eq!(
        bench.status().phase,
        Some(JobPhase::Skipped),
        "{}",
        bench.message()
    );
    assert_eq!(bench.is_true("Expired").as_deref(), Some("EngineStalled"));
    assert!(
        bench.message().contains("has not picked up"),
        "{}",
        bench.message()
    );
    assert_eq!((bench.desired(), bench.is_locked()), (None, false));
}

/// The operator was away, too: whoever comes back at two in the morning does not begin an upgrade of the evening.
#[test]
fn nothing_begins_after_its_window_because_everybody_was_away() {
    let mut bench = away();
    bench.settle_at(10 + 2 * MINUTE);
    assert_stalled(&bench, "True", "NotPickedUp");
    bench.settle_at(4 * 60 * MINUTE);
    assert_eq!(
        bench.status().phase,
        Some(JobPhase::Skipped),
        "{}",
        bench.message()
    );
    assert_eq!(bench.desired(), None);
}

#[test]
fn hooks_of_create_do_not_count_as_a_begun_upgrade() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.world.hooks = vec![super::fixtures::hook("early", "Create", "Ignore")];
    bench.hooks_end = Some("Complete");
    bench.settle_at(-600);
    assert_eq!(bench.step("hooks-create").unwrap().phase, StepPhase::Succeeded);
    bench.is_engine_away = true;
    bench.settings.engine_handover_after = None;
    bench.settle_at(10);
    bench.settle_at(10 + 2 * MINUTE);
    assert_stalled(&bench, "True", "NotPickedUp");
    bench.settle_at(3600);
    assert_eq!(
        bench.status().phase,
        Some(JobPhase::Skipped),
        "{}",
        bench.message()
    );
}

/// A task that a user's own template puts before a step is there to hold it back.
#[test]
fn a_step_that_the_workflow_leaves_out_is_not_done() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.world.hooks = vec![super::fixtures::hook("endless", "Start", "Ignore")];
    bench.settle_at(10);
    let left_out = Node {
        step: "set-desired-update".into(),
        phase: NodePhase::LeftOut,
        message: Some("omitted: depends condition not met".into()),
        started_at: None,
        finished_at: None,
        ended_by: None,
        broken: None,
    };
    bench.workflow.as_mut().unwrap().1.nodes.push(left_out);
    bench.settle();
    let message = bench.message();
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some("WorkflowStopped"),
        "{message}"
    );
    assert!(
        message.contains("leaves out step set-desired-update"),
        "{message}"
    );
    assert_eq!(bench.desired(), None);
    assert!(!bench.is_locked());
}

/// Killed between the record and the report: the engine waits for the operator, not the other way round.
#[test]
fn a_step_that_the_operator_has_still_to_end_in_the_engine_is_no_silence() {
    let mut bench = silent();
    let nodes = &mut bench.workflow.as_mut().unwrap().1.nodes;
    let node = nodes
        .iter_mut()
        .find(|n| n.step == "await-control-plane")
        .unwrap();
    node.phase = NodePhase::Running;
    bench.now = 60 * MINUTE;
    assert!(
        !bench
            .decide()
            .status
            .conditions
            .iter()
            .any(|c| c.type_ == "EngineStalled")
    );
}

#[test]
fn an_engine_that_is_slow_in_mid_run_is_told_and_forgiven() {
    let mut bench = silent();
    bench.settle_at(120 + 5 * MINUTE - 1);
    assert_eq!(stalled(&bench), None);
    bench.settle_at(120 + 5 * MINUTE);
    assert_stalled(&bench, "True", "Silent");
    let message = bench.message();
    assert!(
        message.contains("not gone on to step await-pools of workflow j-run-1"),
        "{message}"
    );
    bench.is_engine_away = false;
    bench.settle_at(120 + 6 * MINUTE);
    bench.settle();
    assert_stalled(&bench, "False", "AtWork");
    bench.settle_at(120 + 7 * MINUTE);
    bench.assert_succeeded();
    assert_eq!(engine(&bench), EngineChoice::Argo);
}

#[test]
fn an_engine_that_is_silent_in_mid_run_is_left_after_a_quarter_of_an_hour() {
    let mut bench = silent();
    bench.settle_at(120 + 5 * MINUTE);
    bench.settle_at(120 + 15 * MINUTE - 1);
    assert_stalled(&bench, "True", "Silent");
    bench.settle_at(120 + 15 * MINUTE);
    assert_handed_over(&bench);
    bench.assert_succeeded();
    let done = bench.status().steps;
    let twice = |s: &&crate::api::upgrade_job::StepStatus| s.name == "set-desired-update";
    assert_eq!(done.iter().filter(twice).count(), 1);
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), 1);
}

/// However soon the operator is to go on without it, somebody who watches has heard of it before.
#[rstest]
#[case::in_mid_run(true, "Silent")]
#[case::at_the_start(false, "NotPickedUp")]
fn an_engine_that_is_to_be_left_soon_is_told_in_the_first_third_of_that(
    #[case] has_begun: bool,
    #[case] reason: &str,
) {
    let (mut bench, since) = if has_begun { (silent(), 120) } else { (away(), 10) };
    bench.settings.engine_handover_after = Some(SignedDuration::from_secs(90));
    bench.settle_at(since + 29);
    assert_eq!(stalled(&bench), None);
    bench.settle_at(since + 30);
    assert_stalled(&bench, "True", reason);
    bench.settle_at(since + 89);
    assert_stalled(&bench, "True", reason);
    bench.settle_at(since + 90);
    assert_handed_over(&bench);
}

#[test]
fn an_operator_that_was_away_itself_says_so_first_and_gives_the_engine_time() {
    let mut bench = silent();
    let back = 120 + 60 * MINUTE;
    bench.settle_at(back);
    assert_stalled(&bench, "True", "Silent");
    bench.settle_at(back + 10 * MINUTE - 1);
    assert_eq!(engine(&bench), EngineChoice::Argo);
    bench.settle_at(back + 10 * MINUTE);
    assert_handed_over(&bench);
}

#[test]
fn a_pause_of_a_person_is_no_silence() {
    let mut bench = silent();
    bench.run_mut().suspended = true;
    bench.settle_at(60 * MINUTE);
    assert_eq!(stalled(&bench), None);
}

/// A template of the user's own may have it so, or a person is quick: no step was reached that could say it.
#[rstest]
#[case::argo(false, "patch workflows.argoproj.io j-run-1 ")]
#[case::tekton(true, "patch pipelineruns.tekton.dev j-run-1 ")]
fn a_workflow_that_is_paused_before_its_first_step_says_so(#[case] tekton: bool, #[case] command: &str) {
    let mut bench = Bench::new(job("j", json!({})));
    if tekton {
        bench = bench.on_tekton();
    }
    bench.is_engine_away = true;
    bench.settle_at(10);
    let run = bench.run_mut();
    (run.picked_up, run.suspended) = (true, true);
    bench.settle_at(59 * MINUTE);
    assert_eq!(stalled(&bench), None);
    let message = bench.message();
    for part in ["suspended by a person", command, "the job fails at"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(bench.desired(), None);
    bench.is_engine_away = false;
    bench.run_mut().suspended = false;
    bench.settle();
    assert_eq!(bench.desired().as_deref(), Some(NEW), "{}", bench.message());
}

/// Whoever resumes it in the morning, or comes back then, does not begin the upgrade of the night.
#[rstest]
#[case::paused_by_a_person(true, "WorkflowSuspended", "workflow j-run-1 was suspended by a person")]
#[case::operator_was_away(false, "OperatorDown", "the operator was not running")]
fn nothing_begins_after_its_window_though_the_engine_is_there(
    #[case] is_paused: bool,
    #[case] reason: &str,
    #[case] why: &str,
) {
    let mut bench = away();
    let run = bench.run_mut();
    (run.picked_up, run.suspended) = (true, is_paused);
    // It is at its first step by the first look after the window.
    bench.is_engine_away = false;
    bench.pass();
    assert_eq!(bench.run_mut().nodes.len(), 1);
    bench.settle_at(60 * MINUTE);
    assert_eq!(
        bench.status().phase,
        Some(JobPhase::Skipped),
        "{}",
        bench.message()
    );
    assert_eq!(bench.is_true("Expired").as_deref(), Some(reason));
    assert!(bench.message().contains(why), "{}", bench.message());
    assert_eq!((bench.desired(), bench.is_locked()), (None, false));
}

/// What was started in the last second of its window is not late because it begins a moment later.
#[test]
fn a_job_that_starts_in_the_last_second_gets_the_time_to_begin() {
    let mut bench = Bench::new(job("j", json!({"spec": {"startBefore": at(11).to_string()}})));
    bench.is_engine_away = true;
    bench.settle_at(10);
    bench.is_engine_away = false;
    bench.settle_at(10 + MINUTE);
    bench.settle();
    assert_eq!(bench.desired().as_deref(), Some(NEW), "{}", bench.message());
}

#[test]
fn a_kind_that_vanishes_in_mid_run_is_told_and_the_job_goes_on_without() {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    bench.workflow = None;
    bench.engine = EngineState::Missing("engine argo is not installed".into());
    bench.settle_at(100);
    assert_eq!(bench.status().workflow.unwrap().name, "j-run-2");
    bench.settle_at(100 + 5 * MINUTE);
    assert_stalled(&bench, "True", "NotCreated");
    let message = bench.message();
    assert!(
        message.contains("workflow j-run-2 could not be made (engine argo is not installed) since"),
        "{message}"
    );
    bench.settle_at(100 + 15 * MINUTE);
    assert_handed_over(&bench);
    bench.complete();
    bench.settle();
    bench.assert_succeeded();
}

#[rstest]
#[case::handed_over(true)]
#[case::not_to_be(false)]
fn a_workflow_that_is_deleted_again_and_again(#[case] hands_over: bool) {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    if !hands_over {
        bench.settings.engine_handover_after = None;
    }
    for n in 2..=5 {
        bench.workflow = None;
        bench.settle();
        assert_eq!(bench.status().workflow.unwrap().name, format!("j-run-{n}"));
    }
    bench.workflow = None;
    bench.settle();
    if hands_over {
        assert_handed_over(&bench);
        bench.complete();
        bench.settle();
        bench.assert_succeeded();
    } else {
        assert_eq!(bench.is_true("Failed").as_deref(), Some("WorkflowStopped"));
    }
}

#[test]
fn a_step_that_the_engine_itself_ends_goes_on_in_the_next_attempt() {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    let run = bench.run_mut();
    let node = run
        .nodes
        .iter_mut()
        .find(|n| n.step == "await-control-plane")
        .unwrap();
    node.phase = NodePhase::Failed;
    node.broken = Some("Failed (Step exceeded its deadline)".into());
    bench.settle_at(30);
    let status = bench.status();
    assert_eq!(status.phase, Some(JobPhase::Running), "{}", bench.message());
    assert_eq!(status.workflow.unwrap().name, "j-run-2");
    assert_eq!(status.former_workflows, []);
    assert_eq!(stops(&bench), ["j-run-1"]);
    assert_eq!(
        bench.step("await-control-plane").unwrap().phase,
        StepPhase::Running
    );
    assert!(bench.reasons.contains(&"WorkflowRenderedAgain".to_owned()));
    bench.complete();
    bench.settle_at(40);
    bench.assert_succeeded();
}

#[test]
fn a_workflow_that_was_left_is_on_record_in_the_write_that_leaves_it() {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    bench.run_mut().unsupported = Some("offloaded".into());
    let decision = bench.decide();
    let former = &decision.status.former_workflows;
    assert_eq!(
        (former[0].name.as_str(), former[0].uid.as_deref()),
        ("j-run-1", Some("uid-j-run-1"))
    );
    assert_eq!(decision.actions, [], "it is stopped after that");
}

#[rstest]
#[case::handed_over(true)]
#[case::not_to_be(false)]
fn a_workflow_that_cannot_be_read_is_left_at_once(#[case] hands_over: bool) {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    if !hands_over {
        bench.settings.engine_handover_after = None;
    }
    bench.run_mut().unsupported = Some("Argo has compressed the steps".into());
    bench.settle();
    if hands_over {
        assert_handed_over(&bench);
        bench.complete();
        bench.settle();
        bench.assert_succeeded();
    } else {
        assert_eq!(bench.is_true("Failed").as_deref(), Some("EngineUnsupported"));
        assert!(bench.message().contains("compressed"), "{}", bench.message());
    }
}

#[rstest]
#[case::running_job(false)]
#[case::finished_job(true)]
fn a_copy_of_the_workflow_is_stopped_and_nothing_of_it_is_done(#[case] finished: bool) {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    if finished {
        bench.complete();
        bench.settle_at(120);
        bench.assert_succeeded();
    }
    let before = bench.status();
    bench.others.push(OtherWorkflow {
        name: "j-run-1-x7k2p".into(),
        engine: EngineChoice::Argo,
        state: OtherState::GoesOn,
    });
    bench.settle();
    assert_eq!(stops(&bench), ["j-run-1-x7k2p"]);
    assert!(bench.reasons.contains(&"OtherWorkflowStopped".to_owned()));
    assert_eq!(bench.status(), before);
}

#[test]
fn nothing_of_a_superseded_job_is_shown_as_a_failure() {
    let mut bench = Bench::new(job("j", held()));
    // Waits for its health while somebody upgrades the cluster beyond it.
    bench.world.operators[0].status.as_mut().unwrap().conditions =
        serde_json::from_value(json!([{"type": "Available", "status": "False"}])).unwrap();
    bench.settle_at(10);
    bench.run_mut().suspended = true;
    let newer = "4.18.9";
    let cluster = bench.world.cluster_version.as_mut().unwrap();
    let history = &mut cluster.status.as_mut().unwrap().history;
    history.insert(
        0,
        object(
            json!({"state": "Completed", "startedTime": "2026-01-01T00:00:00Z",
            "completionTime": "2026-01-01T01:00:00Z", "version": newer, "image": image(newer)}),
        ),
    );
    bench.settle_at(20);
    assert_eq!(
        bench.status().phase,
        Some(JobPhase::Skipped),
        "{}",
        bench.message()
    );
    assert_eq!(
        bench.count(|a| matches!(a, Action::ResumeWorkflow)),
        1,
        "it would stay for ever"
    );
    let run = bench.run_mut();
    let failed: Vec<_> = run
        .nodes
        .iter()
        .filter(|n| n.phase == NodePhase::Failed)
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(
        run.nodes
            .iter()
            .any(|n| n.step == "release" && n.phase == NodePhase::Succeeded)
    );
}

#[test]
fn a_failed_job_ends_a_workflow_that_a_person_paused() {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    bench.run_mut().suspended = true;
    bench.settle_at(12 * 60 * MINUTE);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("TimedOut"));
    assert!(!bench.run_mut().suspended);
    let run = bench.run_mut();
    assert!(
        run.nodes.iter().all(|n| n.phase != NodePhase::Running),
        "{:#?}",
        run.nodes
    );
}

#[rstest]
#[case("Abort", Some("HookFailed"))]
#[case("Ignore", None)]
fn a_hook_that_only_the_engine_can_run_counts_as_failed_after_the_hand_over(
    #[case] policy: &str,
    #[case] fails: Option<&str>,
) {
    let mut bench = Bench::new(job("j", json!({})));
    bench.world.hooks = vec![object(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
        "spec": {"events": ["UpgradeComplete"], "failurePolicy": policy, "templateRef": {"name": "t"}},
    }))];
    let key = TemplateKey {
        kind: TemplateKind::WorkflowTemplate,
        name: "t".into(),
    };
    let template =
        json!({"entrypoint": "main", "templates": [{"name": "main", "container": {"image": "i"}}]});
    bench.templates.0.insert(key, Lookup::Found(template));
    bench = bench.accepted();
    bench.is_engine_away = true;
    bench.complete();
    bench.settle_at(120);
    bench.settle_at(120 + 5 * MINUTE);
    bench.settle_at(120 + 15 * MINUTE);
    assert_handed_over(&bench);
    let tracked = &bench.status().hook_tracker[0];
    assert_eq!(tracked.status, HookState::Failed, "{tracked:?}");
    assert_eq!(bench.is_true("Failed").as_deref(), fails, "{}", bench.message());
}

fn own_template() -> TemplateKey {
    TemplateKey {
        kind: TemplateKind::ConfigMap,
        name: "own".into(),
    }
}

#[rstest]
#[case::absent(None, Some("there is no ConfigMap own"))]
#[case::without_key(Some(json!({})), Some("ConfigMap own has no key upgrade-workflow.yaml.hbs"))]
#[case::does_not_render(Some(json!({"upgrade-workflow.yaml.hbs": "{{nothing}}"})), Some("cannot render"))]
#[case::leaves_steps_out(Some(json!({"upgrade-workflow.yaml.hbs": crate::engine::argo::TEMPLATE.replace("{{#each mainSteps}}", "{{#each exitSteps}}")})),
    Some("ConfigMap own: "))]
#[case::as_it_is(Some(json!({"upgrade-workflow.yaml.hbs": crate::engine::argo::TEMPLATE})), None)]
fn a_template_of_the_users_own_is_tried_when_the_job_is_made(
    #[case] data: Option<serde_json::Value>,
    #[case] problem: Option<&str>,
) {
    let mut bench = Bench::new(job(
        "j",
        json!({"spec": {"config": {"workflow": {"template": {"name": "own"}}}}}),
    ));
    let found = data.map_or(Lookup::Absent, Lookup::Found);
    bench.templates.0.insert(own_template(), found);
    bench.settle_at(-600);
    let status = bench.status();
    let condition = conditions::get(&status.conditions, "TemplateValid").unwrap();
    assert_eq!(
        condition.status == "True",
        problem.is_none(),
        "{}",
        condition.message
    );
    assert!(
        condition.message.contains(problem.unwrap_or("can be made")),
        "{}",
        condition.message
    );
    assert_eq!(status.phase, Some(JobPhase::Pending));
    assert_eq!(
        bench.reasons.iter().filter(|r| *r == "Invalid").count(),
        usize::from(problem.is_some())
    );

    let mended = json!({"upgrade-workflow.yaml.hbs": crate::engine::argo::TEMPLATE});
    bench.templates.0.insert(own_template(), Lookup::Found(mended));
    bench.settle_at(-300);
    assert_eq!(bench.is_true("TemplateValid").as_deref(), Some("Valid"));
}

/// What is right for one engine says nothing of another.
#[test]
fn a_template_of_the_users_own_is_tried_again_when_the_job_gets_another_engine() {
    let mut bench = Bench::new(job(
        "j",
        json!({"spec": {"config": {"workflow": {"template": {"name": "own"}}}}}),
    ));
    let data = json!({"upgrade-workflow.yaml.hbs": crate::engine::argo::TEMPLATE});
    bench.templates.0.insert(own_template(), Lookup::Found(data));
    bench.settle_at(-600);
    assert_eq!(bench.is_true("TemplateValid").as_deref(), Some("Valid"));
    bench = bench.on_tekton();
    bench.settle_at(-300);
    let status = bench.status();
    let condition = conditions::get(&status.conditions, "TemplateValid").unwrap();
    assert_eq!(condition.status, "False");
    assert!(
        condition.message.contains("ConfigMap own has no key"),
        "{}",
        condition.message
    );
}
