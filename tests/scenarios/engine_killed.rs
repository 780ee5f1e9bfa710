//! A real engine that is killed at each step of an upgrade.
//!
//! Operator and engine take turns: one stands still while the other is at work. So the engine dies with each step begun and not
//! ended, whatever the machine's speed, and a new one finds it ended.

use std::collections::BTreeSet;

use openshift_upgrade_operator::{
    api::{UpgradeJob, upgrade_job::EngineChoice},
    engine::{Engine, NodePhase, Run, argo::Argo, tekton::Tekton},
    plan::{Part, Plan, PlanStep},
};
use rstest::rstest;
use serde_json::json;

use crate::{
    engine_faults::{ALONE, assert_done_once, engine_of, has_succeeded, is_over},
    harness::{
        Scenario, condition, node_phase,
        objects::{hold_night, hook, job},
        plan_of, scenario_on, status, until,
    },
};

fn running(run: &Run) -> impl Iterator<Item = &str> {
    let nodes = run.nodes.iter().filter(|n| n.phase == NodePhase::Running);
    nodes.map(|n| n.step.as_str())
}

/// The engine has begun all that it can begin before the operator ends something.
fn waits_for_operator(engine: EngineChoice, plan: &Plan, run: &Run) -> bool {
    let is_over = |step: &str| node_phase(run, step).is_some_and(|p| p != NodePhase::Running);
    let is_main_over = plan.part(Part::Main).all(|s| is_over(&s.name));
    let is_due = |step: &&PlanStep| match step.part {
        Part::Main => step.after.iter().all(|s| is_over(s)),
        // Tekton begins all of `finally` at once.
        Part::Exit => {
            is_main_over && (engine == EngineChoice::Tekton || step.after.iter().all(|s| is_over(s)))
        }
    };
    let mut due = plan.steps.iter().filter(is_due);
    running(run).next().is_some() && due.all(|s| node_phase(run, &s.name).is_some())
}

/// The engine's turn: it begins what it can, and is killed. What it has left to be done.
async fn engine_takes_its_turn(s: &Scenario, plan: &Plan) -> Run {
    let engine = s.engine.kind();
    s.lane.component("start", engine.as_str()).await;
    let what = "the engine has begun all that it can";
    until(what, async || {
        let run = s.run("j-run-1", plan).await;
        (run.finished || waits_for_operator(engine, plan, &run)).then_some(())
    })
    .await;
    s.lane.component("kill", engine.as_str()).await;
    s.run("j-run-1", plan).await
}

/// The operator's turn: it ends all steps that have begun.
async fn operator_takes_its_turn(s: &Scenario, plan: &Plan) {
    s.operator().signal("CONT");
    until("the operator has ended all steps that have begun", async || {
        running(&s.run("j-run-1", plan).await)
            .next()
            .is_none()
            .then_some(())
    })
    .await;
    s.operator().signal("STOP");
}

#[rstest]
#[case::argo(&Argo)]
#[case::tekton(&Tekton)]
#[tokio::test]
#[ignore = "needs a lane of the test cluster"]
async fn an_engine_that_is_killed_at_each_step_is_waited_for(#[case] engine: &'static dyn Engine) {
    // Nobody else may lead while the operator stands still.
    scenario_on(engine, &ALONE, async |s| {
        s.lane.component("kill", engine.kind().as_str()).await;
        s.create(&hook("at-complete", &["UpgradeComplete"])).await;
        s.create(&hook("at-finish", &["Finish"])).await;
        let config = json!({"machineConfigPools": hold_night("1s", None)});
        s.create(&job("j", Some("4.18.5"), config)).await;
        let made = |j: &UpgradeJob| status(j).workflow.is_some_and(|w| w.uid.is_some());
        let plan = plan_of(&s.until_job("j", "has a workflow", made).await);
        s.operator().signal("STOP");

        let mut killed_at = BTreeSet::new();
        loop {
            let run = engine_takes_its_turn(s, &plan).await;
            killed_at.extend(running(&run).map(str::to_owned));
            if run.finished {
                break;
            }
            operator_takes_its_turn(s, &plan).await;
        }
        s.operator().signal("CONT");

        let spared: Vec<&str> = plan
            .steps
            .iter()
            .map(|step| step.name.as_str())
            .filter(|step| !killed_at.contains(*step))
            .collect();
        assert_eq!(spared, ["hooks-failure"], "the engine leaves that out");
        let done = assert_done_once(s, "j").await;
        let told = condition(&done, "EngineStalled");
        assert_eq!((engine_of(&done), told.as_str()), (Some(engine.kind()), ""));
        let workflow = s.until_workflow("j-run-1", "has ended", is_over).await;
        assert!(has_succeeded(&workflow), "{workflow:#?}");
        assert_eq!(s.workflows().await.len(), 1);
    })
    .await;
}
