//! `podJQSelector` in a process of its own: what an expression may take, and that it is ended when it takes more.

// Helpers of tests may fail loudly, as tests do.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use openshift_upgrade_operator::{controller::pod_selector::PodSelector, force_drain::jq::Question};
use rstest::rstest;
use serde_json::json;

fn question(program: &str) -> Question {
    Question {
        program: program.to_owned(),
        pods: vec![
            json!({"metadata": {"name": "db-0"}}),
            json!({"metadata": {"name": "web-0"}}),
        ],
    }
}

fn selector() -> PodSelector {
    PodSelector::Program(env!("CARGO_BIN_EXE_upgrade-operator").into())
}

#[tokio::test]
async fn pods_are_chosen_one_by_one() {
    let answer = selector()
        .ask(&question(r#".metadata.name | test("^db-") or error("which?")"#))
        .await;
    assert_eq!(answer.unwrap(), [Ok(true), Err("\"which?\"".to_owned())]);
}

#[rstest]
#[case::no_end("def f: f; f")]
#[case::no_end_of_values("last(range(1e18))")]
#[case::all_of_the_memory("[range(1e18)] | length == 0")]
#[case::doubling("reduce range(60) as $i (\"x\"; . + .) | length == 0")]
#[case::the_whole_stack("def f: 1 + f; f")]
#[tokio::test]
async fn an_expression_without_measure_is_ended(#[case] program: &str) {
    let began = Instant::now();
    let error = selector().ask(&question(program)).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(error.contains("make it simpler"), "{error}");
}

#[tokio::test]
async fn an_expression_sees_nothing_of_the_environment() {
    let answer = selector().ask(&question("env | length == 0")).await;
    assert_eq!(answer.unwrap(), [Ok(true), Ok(true)]);
}
