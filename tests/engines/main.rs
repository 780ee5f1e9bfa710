//! One suite of plans for all engines: they must run in the same order with the same outcome, and the job must tell the same of
//! them.
//!
//! Each play is the whole life of a job, decided by the operator's own code on a cluster in memory. On the embedded engine, which
//! is a pure function, that takes no time and gives what the status has to be at each point at which nothing goes on by itself.
//! Then the job is played with its workflow on real Argo Workflows and on real Tekton: the status must come to the same points,
//! all of it but the times, and the workflow must show the same steps with the same texts.
//!
//! What Tekton's webhook would say of all that is ours for Tekton is looked at here too, since the webhook is not there.
//!
//! Needs a control plane with the engines:
//! `export LANE_ENGINES=argo,tekton; tests/cluster/lane up 7; eval "$(tests/cluster/lane env 7)";
//! cargo test --test engines -- --ignored`. `PLAYS=withdrawn,rejected` before that plays only these.

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod cluster;
mod failures;
mod lead;
mod life;
mod plays;
#[path = "../worlds/rng.rs"]
#[allow(dead_code)]
mod rng;
mod upsets;
mod valid;

use std::{collections::BTreeSet, time::Instant};

use futures::{StreamExt, stream};
use openshift_upgrade_operator::engine::{Engine, argo::Argo, tekton::Tekton};
use serde_json::json;

/// So many workflows run at once: they mostly wait for the engine.
const AT_ONCE: usize = 12;

/// Each way in which the operator's own steps fail, and each end that is no step's own.
const FAILURES: [&str; 16] = [
    "pre-health-check: PreHealthCheckFailed",
    "set-desired-update: PreHealthCheckFailed",
    "set-desired-update: UpgradeWithdrawn",
    "set-desired-update: UpgradeConditional",
    "set-desired-update: UpdateServiceUnavailable",
    "set-desired-update: DesiredUpdateChanged",
    "await-control-plane: UpgradeInvalid",
    "await-control-plane: UpgradeRejected",
    "await-control-plane: DesiredUpdateChanged",
    "post-health-check: PostHealthCheckFailed",
    "final-health-check: PostHealthCheckFailed",
    "UnpausingPoolsExpired",
    "TimedOut",
    "LockLost",
    "WorkflowStopped",
    "HookFailed",
];

/// All plays, or those that `PLAYS` names.
fn wanted() -> Vec<plays::Play> {
    let mut all = plays::all();
    let Ok(names) = std::env::var("PLAYS") else {
        return all;
    };
    let names: BTreeSet<&str> = names.split(',').collect();
    all.retain(|play| names.contains(play.name.as_str()));
    assert_eq!(
        all.len(),
        names.len(),
        "PLAYS={names:?} names plays that are none"
    );
    all
}

async fn holds(engine: &'static dyn Engine) {
    let client = lead::client().await;
    let plays = wanted();
    let all = plays.len();
    let led = stream::iter(plays)
        .map(|play| {
            let client = client.clone();
            async move {
                let (name, begun) = (play.name.clone(), Instant::now());
                let wrong = lead::play(&client, engine, &play).await.err();
                println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
                wrong.map(|wrong| format!("{name}: {wrong}"))
            }
        })
        .buffer_unordered(AT_ONCE);
    let wrong: Vec<String> = led.filter_map(std::future::ready).collect().await;
    assert!(
        wrong.is_empty(),
        "{} of {all} plays went otherwise on {}:\n{}",
        wrong.len(),
        engine.title(),
        wrong.join("\n")
    );
}

#[tokio::test]
#[ignore = "needs a cluster with Argo Workflows"]
async fn argo_runs_every_plan_as_the_embedded_engine_does() {
    holds(&Argo).await;
}

#[tokio::test]
#[ignore = "needs a cluster with Tekton"]
async fn tekton_runs_every_plan_as_the_embedded_engine_does() {
    holds(&Tekton).await;
}

/// The plays are worth something only if each kind of ending is in one of them, and steps in each state.
#[test]
fn every_play_comes_to_its_end_on_the_embedded_engine() {
    let (mut phases, mut failures) = (BTreeSet::new(), BTreeSet::new());
    for play in plays::all() {
        let told = life::story(&play, &play.name);
        let last = told.last().unwrap();
        let conditions = last["conditions"].as_array().unwrap();
        let outcome = conditions.iter().find(|c| {
            c["status"] == "True" && ["Succeeded", "Failed"].contains(&c["type"].as_str().unwrap())
        });
        let reason = outcome.map(|c| c["reason"].clone());
        assert_eq!(reason, Some(json!(play.ends)), "{}: {last:#}", play.name);
        let shown = plays::phases(last);
        assert!(!shown.contains_key("Running"), "{}: {last:#}", play.name);
        phases.extend(shown.into_keys());
        failures.extend(plays::failed_steps(last).map(|step| format!("{step}: {}", play.ends)));
        failures.insert(play.ends.to_owned());
    }
    let all = ["Failed", "Pending", "Skipped", "Succeeded"];
    assert_eq!(phases, all.map(str::to_owned).into());
    for failure in FAILURES {
        assert!(
            failures.contains(failure),
            "{failure} is in no play: {failures:#?}"
        );
    }
}
