//! Verdicts → the status of CustomRuns.
//!
//! What Tekton expects of the controller of a custom task (docs/customruns.md, "Developer guide for custom controllers"):
//! `Succeeded` is Unknown with a start time while it runs, True or False with a completion time at the end; a run that was
//! cancelled ends as False, with a reason of its own.

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{
    RESULT, custom_runs,
    object::{self, View},
    text,
};
use crate::{
    api::conditions::whole_seconds,
    engine::{Place, Report, Workflow, Write},
    plan::Plan,
};

/// One write for each report that has something to say.
pub fn report(workflow: &Workflow, plan: &Plan, reports: &[(String, Report)], now: Timestamp) -> Vec<Write> {
    let steps = object::steps(workflow, plan);
    let write = |(step, report): &(String, Report)| {
        let (object, view) = steps.get(step)?;
        write(object, view, report, now)
    };
    reports.iter().filter_map(write).collect()
}

/// Whoever cancels a PipelineRun cancels its CustomRuns, and those wait for us to say that they have ended.
pub fn end_steps(workflow: &Workflow, now: Timestamp) -> Vec<Write> {
    let left = Report::Failed("the operator no longer follows this run".to_owned());
    object::custom_runs(workflow)
        .filter_map(|(object, view)| write(object, &view, &left, now))
        .collect()
}

/// Also when the PipelineRun has ended: a CustomRun that was cancelled with it waits for somebody to end it.
fn write(object: &DynamicObject, view: &View, report: &Report, now: Timestamp) -> Option<Write> {
    if view.finished() {
        return None;
    }
    let now = whole_seconds(now).to_string();
    let status = match report {
        Report::Message(message) => running(view, &text::message(message), &now)?,
        // Hooks are Jobs and TaskRuns of the operator's: Tekton has nothing to start by itself.
        Report::Succeeded(message) => ended(view, true, message, &now),
        Report::Start(start) => ended(view, true, &start.message, &now),
        Report::Failed(message) => ended(view, false, message, &now),
    };
    Write::guarded(custom_runs(), object, Place::Status, json!({"status": status}))
}

fn running(view: &View, message: &str, now: &str) -> Option<Value> {
    let before = view.succeeded();
    if before.is_some_and(|c| c.message == message) {
        return None;
    }
    let since = before
        .and_then(|c| c.last_transition_time.as_deref())
        .unwrap_or(now);
    Some(json!({
        "startTime": view.started_at().map_or(now, String::as_str),
        "conditions": [{
            "type": "Succeeded", "status": "Unknown", "reason": "Running", "message": message, "lastTransitionTime": since,
        }],
    }))
}

fn ended(view: &View, well: bool, message: &str, now: &str) -> Value {
    let message = text::message(message);
    let (status, reason) = match (well, view.is_cancelled()) {
        (true, _) => ("True", "Succeeded"),
        (false, true) => ("False", "CustomRunCancelled"),
        (false, false) => ("False", "Failed"),
    };
    json!({
        "startTime": view.started_at().map_or(now, String::as_str),
        "completionTime": now,
        "conditions": [{
            "type": "Succeeded", "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
        }],
        "results": [{"name": RESULT, "value": message}],
    })
}
