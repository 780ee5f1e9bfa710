//! Argo's Workflow and the UpgradeJob tell the same.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, api::DynamicObject};
use openshift_upgrade_operator::{
    api::{
        UpgradeJob,
        upgrade_job::{StepPhase, StepStatus},
    },
    plan::{Part, Plan},
};
use serde_json::Value;

/// Argo is told a moment after the job has it on record.
const APART: SignedDuration = SignedDuration::from_secs(5);

/// The workflow has succeeded, and has one node for each step: same phase, same message, same times.
pub fn assert_same(workflow: &DynamicObject, job: &UpgradeJob) {
    let status = &workflow.data["status"];
    assert_eq!(
        status["phase"],
        "Succeeded",
        "workflow {}: {}",
        workflow.name_any(),
        status["message"]
    );
    let job_status = job.status.as_ref().unwrap();
    let recorded = job_status.workflow.as_ref().unwrap();
    assert_eq!(recorded.name, workflow.name_any());
    assert_eq!(recorded.phase.as_deref(), Some("Succeeded"));

    let nodes = suspend_nodes(status);
    let plan = Plan::from_value(job_status.plan.as_ref().unwrap()).unwrap();
    let mut compared = 0;
    for step in &job_status.steps {
        // Steps of the Create run have a workflow of their own.
        let Some(planned) = plan.step(&step.name) else {
            continue;
        };
        let node = nodes.get(step.name.as_str());
        if step.phase == StepPhase::Skipped && planned.part == Part::Exit {
            assert!(
                node.is_none_or(|n| n["phase"] == "Skipped"),
                "{} in Argo: {node:?}",
                step.name
            );
        } else {
            same_step(
                step,
                node.unwrap_or_else(|| panic!("Argo has no node for step {}", step.name)),
            );
        }
        compared += 1;
    }
    assert_eq!(compared, plan.steps.len(), "every step of the plan is in the job");
    let unknown: Vec<_> = nodes.keys().filter(|name| plan.step(name).is_none()).collect();
    assert!(unknown.is_empty(), "nodes without a step: {unknown:?}");
}

/// By display name. A skipped node has lost its type.
fn suspend_nodes(status: &Value) -> BTreeMap<&str, &Value> {
    let mut nodes = BTreeMap::new();
    for node in status["nodes"].as_object().unwrap().values() {
        if node["type"] == "Suspend" || node["type"] == "Skipped" {
            let name = node["displayName"].as_str().unwrap();
            assert!(nodes.insert(name, node).is_none(), "two nodes of step {name}");
        }
    }
    nodes
}

fn same_step(step: &StepStatus, node: &Value) {
    let name = &step.name;
    assert_eq!(
        step.phase,
        StepPhase::Succeeded,
        "step {name}: {:?}",
        step.message
    );
    assert_eq!(node["phase"], "Succeeded", "{name} in Argo: {node}");
    assert_eq!(
        node["message"].as_str(),
        step.message.as_deref(),
        "message of {name}"
    );
    for (what, ours, argos) in [
        ("start", &step.started_at, &node["startedAt"]),
        ("end", &step.finished_at, &node["finishedAt"]),
    ] {
        let ours = ours
            .as_ref()
            .unwrap_or_else(|| panic!("step {name} has no {what}"))
            .0;
        let argos: Timestamp = argos.as_str().unwrap().parse().unwrap();
        assert!(
            ours.duration_since(argos).abs() <= APART,
            "{what} of {name}: {ours} in the job, {argos} in Argo"
        );
    }
}
