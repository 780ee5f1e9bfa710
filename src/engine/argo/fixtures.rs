//! Workflows for tests.

use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use super::object::node_name;
use crate::plan::Plan;

pub use crate::engine::fixtures::*;

/// ID of a node as Argo computes it: FNV-1a of 32 bits over its name, in decimal.
pub use crate::simulator::argo::node_id;

/// A Workflow `wf` as Argo's controller writes it: `status` and `nodes` (step, fields) over a running one.
pub fn recorded(plan: &Plan, status: &Value, nodes: &[(&str, Value)]) -> DynamicObject {
    let mut all = Map::new();
    all.insert(
        "wf".to_owned(),
        json!({"id": "wf", "name": "wf", "displayName": "wf", "type": "DAG", "phase": "Running"}),
    );
    for (name, fields) in nodes {
        let step = plan.step(name).unwrap();
        let full_name = node_name("wf", step);
        let id = node_id("wf", &full_name);
        let mut node = json!({
            "id": id, "name": full_name, "displayName": name, "type": "Suspend", "templateName": name,
            "templateScope": "local/wf", "phase": "Running", "boundaryID": "wf", "startedAt": "2026-11-24T21:00:05Z",
            "finishedAt": null, "progress": "0/1",
            "inputs": {"parameters": [{"name": "about", "value": step.title}]},
            "outputs": {"parameters": [{"name": "result", "valueFrom": {"supplied": {}}}]},
        });
        node.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        all.insert(id, node);
    }
    let mut full =
        json!({"phase": "Running", "startedAt": "2026-11-24T21:00:04Z", "progress": "0/1", "nodes": all});
    full.as_object_mut()
        .unwrap()
        .extend(status.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "wf", "namespace": "upgrades", "resourceVersion": "4711"},
        "spec": {"entrypoint": "main"},
        "status": full,
    }))
    .unwrap()
}
