//! Workflows that have ended are sealed: whoever retries them runs no hook again.

use rstest::rstest;
use serde_json::json;

use super::{
    bench::{Bench, SEALED_AT},
    fixtures::{hook, job},
};
use crate::{
    api::upgrade_job::EngineChoice,
    engine::{Repeat, Run, StopRequest},
    lifecycle::{OtherState, OtherWorkflow},
    steps::Action,
};

fn done() -> Bench {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    bench.complete();
    bench.settle_at(120);
    bench.assert_succeeded();
    bench
}

/// Of all workflows, in order.
fn sealed_and_stopped(bench: &Bench) -> Vec<String> {
    let is_of_seals = |a: &&Action| {
        matches!(
            a,
            Action::SealWorkflow
                | Action::SealOtherWorkflow { .. }
                | Action::StopWorkflow
                | Action::StopOtherWorkflow { .. }
        )
    };
    bench
        .acted
        .iter()
        .filter(is_of_seals)
        .map(ToString::to_string)
        .collect()
}

#[test]
fn what_would_only_wait_again_is_left_as_it_is() {
    assert!(sealed_and_stopped(&done()).is_empty());
}

#[test]
fn a_workflow_that_has_ended_is_sealed_once() {
    let mut bench = done();
    let run = bench.run_mut();
    (run.finished, run.repeat) = (true, Repeat::Possible);
    bench.settle_at(130);
    bench.settle_at(7_000);
    assert_eq!(sealed_and_stopped(&bench), ["seal the workflow, which has ended"]);
}

/// In the very pass in which the job fails by it.
#[test]
fn one_that_a_person_stopped_is_sealed_when_it_has_ended() {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    let run = bench.run_mut();
    (run.finished, run.repeat, run.stop) = (true, Repeat::Possible, Some(StopRequest::Terminate));
    let decision = bench.decide();
    assert!(decision.status.finished_at.is_some());
    assert!(
        decision.actions.contains(&Action::SealWorkflow),
        "{:?}",
        decision.actions
    );
}

#[test]
fn one_that_is_retried_after_its_end_is_stopped_and_nothing_of_it_counts() {
    let mut bench = done();
    let before = bench.status();
    let run = bench.run_mut();
    // As it is then: paused by the seal, and at its first step again.
    (run.repeat, run.suspended) = (Repeat::Begun, true);
    run.sealed_at = Some(SEALED_AT.to_owned());
    for node in &mut run.nodes {
        node.phase = crate::engine::NodePhase::Running;
    }
    let decision = bench.decide();
    assert_eq!(
        decision.actions,
        [Action::StopWorkflow],
        "above all it is not resumed"
    );
    assert!(decision.reports.is_empty(), "{:?}", decision.reports);
    assert_eq!(decision.status, before);

    bench.run_mut().stop = Some(StopRequest::Terminate);
    assert_eq!(bench.decide().actions, [], "it is asked once");
}

/// The operator ends it again, which is no person's stop of the upgrade.
#[rstest]
#[case::done(true)]
#[case::given_up(false)]
fn a_run_of_create_hooks_that_is_retried_before_the_start_does_not_end_the_job(#[case] hooks_end: bool) {
    let mut bench = Bench::new(job("j", json!({})));
    bench.world.hooks = vec![hook("a", "Create", "Ignore")];
    bench.settle_at(-60);
    if hooks_end {
        bench.end_hook_jobs("Complete");
        bench.settle_at(-50);
    }
    // As after an end of its own, which the engine brought about where the hooks have not ended.
    let run = bench.run_mut();
    (run.finished, run.repeat, run.suspended) = (false, Repeat::Begun, true);
    run.sealed_at = Some(SEALED_AT.to_owned());
    let asked = bench.decide().actions;
    assert_eq!(asked.first(), Some(&Action::StopWorkflow), "{asked:?}");
    bench.run_mut().stop = Some(StopRequest::Terminate);
    bench.settle_at(-40);
    let run = bench.run_mut();
    (run.finished, run.repeat, run.suspended) = (true, Repeat::Possible, false);
    bench.end_hook_jobs("Complete");
    bench.settle_at(-30);
    assert_eq!(bench.is_true("Failed"), None, "{}", bench.message());
    bench.settle_at(10);
    assert!(bench.is_true("Started").is_some(), "{}", bench.message());
}

/// A TTL of 0 may take it away before the operator has looked.
#[test]
fn a_run_of_create_hooks_that_was_stopped_and_vanished_at_once_was_stopped() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.world.hooks = vec![hook("a", "Create", "Ignore")];
    bench.settle_at(-60);
    let (_, run) = bench.workflow.take().unwrap();
    let stop = Some(StopRequest::Terminate);
    bench.gone = Some(Run { stop, ..run });
    bench.settle_at(-50);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("WorkflowStopped"));
}

#[rstest]
#[case::earlier_run("j-run-0")]
#[case::run_of_create_hooks("j-create-1")]
#[case::copy("j-run-1-x7k2p")]
fn others_are_sealed_too_and_stopped_when_they_are_retried(#[case] name: &str) {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    let other = |state| OtherWorkflow {
        name: name.to_owned(),
        engine: EngineChoice::Argo,
        state,
    };
    bench.others = vec![other(OtherState::EndedUnsealed)];
    let before = bench.status();
    bench.settle();
    assert_eq!(
        sealed_and_stopped(&bench),
        [format!("seal workflow {name}, which has ended")]
    );
    bench.others = vec![other(OtherState::Repeated)];
    bench.settle();
    assert_eq!(sealed_and_stopped(&bench)[1..], [format!("stop workflow {name}")]);
    assert_eq!(bench.status(), before);
}
