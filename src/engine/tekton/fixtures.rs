//! PipelineRuns and CustomRuns for tests.

use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::engine::Workflow;

pub use crate::engine::fixtures::*;

/// A PipelineRun `run` as Tekton writes it, with CustomRuns (task, fields) over waiting ones.
pub fn recorded(fields: &Value, steps: &[(&str, Value)]) -> Workflow {
    let mut object = json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "run", "namespace": "upgrades", "uid": "run-uid", "resourceVersion": "4711"},
        "spec": {"pipelineSpec": {"tasks": []}},
        "status": {
            "startTime": "2026-11-24T21:00:04Z",
            "conditions": [{
                "type": "Succeeded", "status": "Unknown", "reason": "Running",
                "message": "Tasks Completed: 0 (Failed: 0, Cancelled 0), Incomplete: 9, Skipped: 0",
                "lastTransitionTime": "2026-11-24T21:00:05Z",
            }],
        },
    });
    json_patch::merge(&mut object, fields);
    Workflow {
        object: serde_json::from_value(object).unwrap(),
        steps: steps
            .iter()
            .map(|(task, fields)| custom_run(task, fields))
            .collect(),
    }
}

fn custom_run(task: &str, fields: &Value) -> DynamicObject {
    let mut object = json!({
        "apiVersion": "tekton.dev/v1beta1",
        "kind": "CustomRun",
        "metadata": {
            "name": format!("run-{task}"), "namespace": "upgrades", "uid": format!("{task}-uid"), "resourceVersion": "12",
            "creationTimestamp": "2026-11-24T21:00:05Z",
            "labels": {"tekton.dev/pipelineRun": "run", "tekton.dev/pipelineTask": task},
            "ownerReferences": [{
                "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run", "uid": "run-uid", "controller": true,
            }],
        },
        "spec": {
            "customRef": {"apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeStep", "name": "Step"},
            "params": [{"name": "about", "value": task}],
        },
    });
    json_patch::merge(&mut object, fields);
    serde_json::from_value(object).unwrap()
}

/// `status` of a CustomRun with this condition.
pub fn condition(status: &str, message: &str) -> Value {
    json!({"status": {
        "startTime": "2026-11-24T21:00:06Z",
        "conditions": [{
            "type": "Succeeded", "status": status, "reason": "R", "message": message,
            "lastTransitionTime": "2026-11-24T21:00:06Z",
        }],
    }})
}
