//! One suite of plans for all engines: they must run in the same order with the same outcome.
//!
//! The embedded engine, which is a pure function, says what has to happen; real Argo Workflows and real Tekton are held
//! against it, step by step.
//!
//! Needs a control plane with the engines:
//! `export LANE_ENGINES=argo,tekton; tests/cluster/lane up 7; eval "$(tests/cluster/lane env 7)";
//! cargo test --test engines -- --ignored`.

// Helpers of tests may fail loudly, as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod lead;
mod model;
mod plays;
#[path = "../worlds/rng.rs"]
#[allow(dead_code)]
mod rng;

use futures::{StreamExt, stream};
use openshift_upgrade_operator::engine::{Engine, argo::Argo, tekton::Tekton};

/// So many workflows run at once: they mostly wait for the engine.
const AT_ONCE: usize = 12;

async fn holds(engine: &'static dyn Engine) {
    let client = lead::client().await;
    let plays = plays::all();
    let all = plays.len();
    let led = stream::iter(plays)
        .map(|play| {
            let client = client.clone();
            async move {
                let name = play.name.clone();
                let wrong = lead::play(&client, engine, play).await.err();
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

/// The plays are worth something only if each part of a plan is in one of them.
#[test]
fn every_play_comes_to_an_end_on_the_embedded_engine() {
    for play in plays::all() {
        let mut model = model::Model::new(&play.plan);
        let mut rounds = 0;
        while let Some(step) = model.next(&play) {
            model.end(&step, play.verdict(&step));
            rounds += 1;
            assert!(rounds <= play.plan.steps.len(), "{}", play.name);
        }
        assert_eq!(model.has_failed(), !play.failing.is_empty(), "{}", play.name);
    }
}
