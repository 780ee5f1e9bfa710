//! A real engine that is killed again and again while it runs an upgrade.

use std::collections::BTreeSet;

use openshift_upgrade_operator::{
    api::{UpgradeJob, upgrade_job::StepPhase},
    engine::{Engine, argo::Argo, tekton::Tekton},
};
use rstest::rstest;
use serde_json::json;

use crate::{
    engine_faults::{assert_done_once, engine_of, has_succeeded, is_over},
    harness::{
        has,
        objects::{hold_night, hook, job},
        scenario_on, status,
    },
};

/// How many steps the job has reached.
fn reached(job: &UpgradeJob) -> usize {
    let steps = status(job).steps;
    steps.iter().filter(|s| s.phase != StepPhase::Pending).count()
}

/// The steps that run.
fn running(job: &UpgradeJob) -> impl Iterator<Item = String> {
    let steps = status(job).steps.into_iter();
    steps.filter(|s| s.phase == StepPhase::Running).map(|s| s.name)
}

/// Steps that last until the engine was killed at them: each waits for this node, whose drain is stuck until then.
const STUCK: [(&str, &str); 2] = [
    ("await-pools", "worker-0"),
    ("await-x-app-night", "x-app-night-0"),
];

/// The fault for the steps that it was not killed at yet.
fn stuck_but(killed_at: &BTreeSet<String>) -> String {
    let stuck = STUCK.iter().filter(|(step, _)| !killed_at.contains(*step));
    let lines: Vec<String> = stuck.map(|(_, node)| format!("{node} shop/db-0")).collect();
    lines.join("\n")
}

/// It dies whenever it has gone on to another step. Some of them it cannot leave before: those at which the cluster changes.
#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn an_engine_that_is_killed_at_each_step_is_waited_for(#[case] engine: &'static dyn Engine) {
    scenario_on(engine, &[], async |s| {
        s.create(&hook("at-complete", &["UpgradeComplete"])).await;
        s.create(&hook("at-finish", &["Finish"])).await;
        s.fault("stall-at", "40").await;
        s.fault("stuck-drains", &stuck_but(&BTreeSet::new())).await;
        let config = json!({"machineConfigPools": hold_night("1s", None)});
        s.create(&job("j", Some("4.18.5"), config)).await;
        let (mut killed_at, mut seen) = (BTreeSet::new(), 0);
        loop {
            let is_done = |j: &UpgradeJob| has(j, "Succeeded").or_else(|| has(j, "Failed")).is_some();
            let job = s
                .until_job("j", "has gone on or is over", |j| is_done(j) || reached(j) > seen)
                .await;
            seen = reached(&job);
            s.lane.component("kill", engine.kind().as_str()).await;
            killed_at.extend(running(&job));
            if killed_at.contains("await-control-plane") {
                s.fault("stall-at", "").await;
            }
            s.fault("stuck-drains", &stuck_but(&killed_at)).await;
            s.lane.component("start", engine.kind().as_str()).await;
            if is_done(&job) {
                break;
            }
        }
        println!("the engine was killed at {killed_at:?}");
        let must = ["await-control-plane", STUCK[0].0, STUCK[1].0];
        assert!(
            must.iter().all(|step| killed_at.contains(*step)),
            "the engine was killed at {killed_at:?} only"
        );
        let done = assert_done_once(s, "j").await;
        assert_eq!(
            engine_of(&done),
            Some(engine.kind()),
            "{:#?}",
            status(&done).conditions
        );
        let workflow = s.until_workflow("j-run-1", "has ended", is_over).await;
        assert!(has_succeeded(&workflow), "{workflow:#?}");
        assert_eq!(s.workflows().await.len(), 1);
    })
    .await;
}
