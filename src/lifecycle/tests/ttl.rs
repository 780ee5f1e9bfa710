//! `config.workflow.ttl`.

use rstest::rstest;
use serde_json::json;

use super::{
    bench::Bench,
    fixtures::{at, job},
};
use crate::{
    api::upgrade_job::EngineChoice,
    lifecycle::{OtherState, OtherWorkflow},
    steps::Action,
};

fn done(bench: Bench) -> Bench {
    let mut bench = bench.completed();
    bench.assert_succeeded();
    end(&mut bench, true);
    assert_eq!(bench.count(|a| *a == Action::DeleteWorkflow), 0);
    bench
}

/// The engine has ended the workflow, or not yet.
fn end(bench: &mut Bench, finished: bool) {
    bench.workflow.as_mut().unwrap().1.finished = finished;
}

fn with_ttl() -> Bench {
    Bench::new(job("j", json!({"spec": {"config": {"workflow": {"ttl": "1h"}}}})))
}

#[test]
fn a_finished_pipeline_run_goes_when_its_time_has_come() {
    let mut bench = done(with_ttl().on_tekton());
    let due = 120 + 3_600;
    assert_eq!(bench.decide().wake_at, Some(at(due)));
    bench.settle_at(due - 1);
    assert!(bench.workflow.is_some());
    bench.settle_at(due);
    assert_eq!(bench.count(|a| *a == Action::DeleteWorkflow), 1);
    assert!(bench.workflow.is_none());
    bench.assert_succeeded();
}

#[test]
fn a_failed_one_goes_too() {
    let mut bench = with_ttl().on_tekton().accepted();
    bench.workflow.as_mut().unwrap().1.stop = Some(crate::engine::StopRequest::Stop);
    bench.settle_at(30);
    end(&mut bench, true);
    bench.settle_at(30 + 3_600);
    assert_eq!(
        bench.count(|a| *a == Action::DeleteWorkflow),
        1,
        "{}",
        bench.message()
    );
}

#[test]
fn one_that_still_runs_stays() {
    let mut bench = done(with_ttl().on_tekton());
    end(&mut bench, false);
    bench.settle_at(100_000);
    assert!(bench.workflow.is_some());
}

#[test]
fn argo_sees_to_it_itself() {
    let mut bench = done(with_ttl());
    bench.settle_at(100_000);
    assert!(bench.workflow.is_some());
}

#[test]
fn without_a_limit_it_stays_as_long_as_the_job() {
    let mut bench = done(Bench::new(job("j", json!({}))).on_tekton());
    bench.settle_at(10_000_000);
    assert!(bench.workflow.is_some());
}

fn other(name: &str, engine: EngineChoice, state: OtherState) -> OtherWorkflow {
    OtherWorkflow {
        name: name.into(),
        engine,
        state,
    }
}

/// Runs of Create hooks, earlier attempts, copies: all that carry the name of the job.
#[rstest]
#[case::followed_on_tekton(false)]
#[case::left_for_the_operator_itself(true)]
fn all_pipeline_runs_of_the_job_go(#[case] left: bool) {
    let mut bench = done(with_ttl().on_tekton());
    if left {
        bench.workflow = None;
        let mut status = bench.status();
        status.workflow.as_mut().unwrap().engine = EngineChoice::Embedded;
        bench.job_mut().status = Some(status);
    }
    bench.others = vec![
        other("j-create-1", EngineChoice::Tekton, OtherState::Ended),
        other("j-run-1-again", EngineChoice::Tekton, OtherState::Ending),
        other("j-run-0", EngineChoice::Argo, OtherState::Ended),
    ];
    let due = 120 + 3_600;
    assert_eq!(bench.decide().wake_at, Some(at(due)));
    bench.settle_at(due);
    let names: Vec<&str> = bench.others.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["j-run-1-again", "j-run-0"]);
    bench.others[0].state = OtherState::Ended;
    bench.settle();
    assert_eq!(bench.others.len(), 1, "once it has ended it goes, too");
    bench.assert_succeeded();
}

#[test]
fn no_other_goes_while_the_job_runs() {
    let mut bench = with_ttl().on_tekton().accepted();
    bench.others = vec![other("j-create-1", EngineChoice::Tekton, OtherState::Ended)];
    bench.settle_at(10_000);
    assert_eq!(bench.others.len(), 1);
}
