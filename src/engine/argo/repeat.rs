//! What *Retry* does with an ended Workflow, and how it is kept from doing it.
//!
//! `argo retry`, as the UI, takes the nodes that failed out of the Workflow, with their pods, and the controller runs them anew at
//! once. It leaves `spec.suspend` as it is (`createNewRetryWorkflow`), and a suspended Workflow makes no pod
//! (`ShouldSuspend` in `operate`). So does one that is submitted again, which gets a copy of the spec. A Workflow that has ended
//! is none the worse for it: the controller does not look at it any more. Read in Argo v4.1.4 and v3.7.18.

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use crate::{api::annotations, engine::Repeat};

/// What comes of a *Retry* of this Workflow.
pub fn repeat(object: &DynamicObject, finished: bool) -> Repeat {
    let suspended = object.data.pointer("/spec/suspend").and_then(Value::as_bool);
    match (finished, sealed_at(object).is_some()) {
        (true, true) if suspended == Some(true) => Repeat::Harmless,
        (true, _) if runs_something(object) => Repeat::Possible,
        (true, _) | (false, false) => Repeat::Harmless,
        (false, true) => Repeat::Begun,
    }
}

/// When it was sealed, whatever became of it since.
pub fn sealed_at(object: &DynamicObject) -> Option<&String> {
    object.annotations().get(annotations::SEALED_AT)
}

/// Suspends an ended Workflow; the annotation tells that from a person's pause.
pub fn seal(now: Timestamp) -> Value {
    json!({
        "metadata": {"annotations": {annotations::SEALED_AT: now.to_string()}},
        "spec": {"suspend": true},
    })
}

/// Whether Argo does anything in it but to wait for the operator.
fn runs_something(object: &DynamicObject) -> bool {
    let Some(spec) = object.data.get("spec") else {
        return false;
    };
    let templates = spec.get("templates").and_then(Value::as_array);
    let only_waits = |template: &Value| has(template, "suspend") || only_orders(template);
    has(spec, "workflowTemplateRef") || has(spec, "hooks") || !templates.into_iter().flatten().all(only_waits)
}

/// A DAG whose tasks all call templates of the same Workflow.
fn only_orders(template: &Value) -> bool {
    let tasks = template.pointer("/dag/tasks").and_then(Value::as_array);
    let is_local = |task: &Value| !["templateRef", "inline", "hooks"].iter().any(|f| has(task, f));
    tasks.is_some_and(|tasks| tasks.iter().all(is_local))
}

fn has(object: &Value, field: &str) -> bool {
    object.get(field).is_some_and(|v| !v.is_null())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn workflow(spec: &Value, is_sealed: bool) -> DynamicObject {
        let sealed = if is_sealed {
            seal(Timestamp::UNIX_EPOCH)
        } else {
            json!({})
        };
        let mut object = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "j-run-1"}, "spec": spec,
        });
        json_patch::merge(&mut object, &sealed);
        serde_json::from_value(object).unwrap()
    }

    /// Two steps that wait, and this template.
    fn with(template: &Value) -> Value {
        let tasks = json!([{"name": "a", "template": "a"}, {"name": "b", "template": "b", "depends": "a"}]);
        json!({"entrypoint": "main", "templates": [
            {"name": "main", "dag": {"tasks": tasks}},
            {"name": "a", "suspend": {}}, {"name": "b", "suspend": {}},
            template,
        ]})
    }

    #[rstest]
    #[case::only_waits(with(&json!({"name": "c", "suspend": {}})), Repeat::Harmless)]
    #[case::pod(with(&json!({"name": "c", "container": {"image": "i"}})), Repeat::Possible)]
    #[case::request(with(&json!({"name": "c", "http": {"url": "https://example.com"}})), Repeat::Possible)]
    #[case::steps(with(&json!({"name": "c", "steps": [[{"name": "x", "template": "a"}]]})), Repeat::Possible)]
    #[case::template_elsewhere(
        with(&json!({"name": "c", "dag": {"tasks": [{"name": "x", "templateRef": {"name": "t", "template": "x"}}]}})),
        Repeat::Possible
    )]
    #[case::template_within(
        with(&json!({"name": "c", "dag": {"tasks": [{"name": "x", "inline": {"container": {"image": "i"}}}]}})),
        Repeat::Possible
    )]
    #[case::all_of_it_elsewhere(json!({"workflowTemplateRef": {"name": "t"}}), Repeat::Possible)]
    #[case::hooks_of_argo(
        json!({"templates": [], "hooks": {"exit": {"templateRef": {"name": "t", "template": "x"}}}}),
        Repeat::Possible
    )]
    fn an_ended_workflow_is_to_be_sealed_if_argo_runs_anything_in_it(
        #[case] spec: Value,
        #[case] expected: Repeat,
    ) {
        assert_eq!(repeat(&workflow(&spec, false), true), expected);
        assert_eq!(repeat(&workflow(&spec, false), false), Repeat::Harmless);
        // Sealed once, and ended: nothing is to be done.
        assert_eq!(repeat(&workflow(&spec, true), true), Repeat::Harmless);
        // Sealed, and not ended: somebody has retried it.
        assert_eq!(repeat(&workflow(&spec, true), false), Repeat::Begun);
    }

    /// *Resume* of a person, or the operator's own stop of one that was retried.
    #[test]
    fn a_seal_that_is_gone_is_put_back() {
        let mut object = workflow(&with(&json!({"name": "c", "container": {}})), true);
        object.data["spec"]["suspend"] = Value::Null;
        assert_eq!(repeat(&object, true), Repeat::Possible);
    }

    /// What a person paused, and stopped then.
    #[test]
    fn a_pause_is_no_seal() {
        let mut object = workflow(&with(&json!({"name": "c", "container": {}})), false);
        object.data["spec"]["suspend"] = json!(true);
        assert_eq!(repeat(&object, true), Repeat::Possible);
        assert_eq!(repeat(&object, false), Repeat::Harmless);
    }
}
