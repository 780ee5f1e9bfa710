//! Verdicts → what changes in a Workflow.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use super::{
    RESULT, native,
    object::{NodeStatus, View},
    text,
};
use crate::{api::conditions::whole_seconds, engine::Report, plan::Plan};

/// What all reports change together, or `None` if there is nothing to say.
pub fn report(
    object: &DynamicObject,
    plan: &Plan,
    reports: &[(String, Report)],
    now: Timestamp,
) -> Option<Value> {
    let view = View::of(object);
    if view.finished() || view.unsupported().is_some() {
        return None;
    }
    let mut nodes = Map::new();
    for (step, report) in reports {
        let Some((id, node)) = plan
            .step(step)
            .and_then(|s| view.node(s))
            .filter(|(_, node)| node.waits())
        else {
            continue;
        };
        if let Some(change) = change(node, report, now) {
            nodes.insert(id.to_owned(), change);
        }
    }
    (!nodes.is_empty()).then(|| json!({"status": {"nodes": nodes}}))
}

fn change(node: &NodeStatus, report: &Report, now: Timestamp) -> Option<Value> {
    match report {
        Report::Message(message) => {
            let message = text::message(message);
            (node.message.as_deref() != Some(&message)).then(|| json!({"message": message}))
        }
        Report::Succeeded(message) => Some(ending(node, "Succeeded", message, &BTreeMap::new(), now)),
        Report::Failed(message) => Some(ending(node, "Failed", message, &BTreeMap::new(), now)),
        Report::Start(start) => {
            let outputs = native::outputs(start);
            Some(ending(node, "Succeeded", &start.message, &outputs, now))
        }
    }
}

/// What Argo's own `argo node set` writes: outputs get their values and are no longer to be supplied.
fn ending(
    node: &NodeStatus,
    phase: &str,
    message: &str,
    outputs: &BTreeMap<&'static str, String>,
    now: Timestamp,
) -> Value {
    let message = text::message(message);
    let result = json!({"name": RESULT, "value": message});
    // A merge patch replaces a list as a whole: outputs that a user's template added are kept.
    let others = node
        .outputs
        .as_ref()
        .and_then(|o| o.get("parameters"))
        .and_then(Value::as_array);
    let others = others
        .into_iter()
        .flatten()
        .filter(|p| p.get("name").and_then(Value::as_str) != Some(RESULT))
        .map(|p| supplied(p, outputs));
    let parameters: Vec<Value> = std::iter::once(result).chain(others).collect();
    json!({
        "phase": phase,
        "message": message,
        "finishedAt": whole_seconds(now).to_string(),
        "outputs": {"parameters": parameters},
    })
}

/// An output of ours with what is supplied for it, else its default; that of a user's template stays as it is.
fn supplied(parameter: &Value, outputs: &BTreeMap<&'static str, String>) -> Value {
    let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default();
    let is_ours = native::OUTPUTS.contains(&name) && parameter.pointer("/valueFrom/supplied").is_some();
    if !is_ours {
        return parameter.clone();
    }
    let default = || parameter.pointer("/valueFrom/default").cloned();
    let value = outputs.get(name).map(|v| json!(v)).or_else(default);
    json!({"name": name, "value": value})
}
