//! Whether what a template rendered is a Workflow that the operator can lead through the plan.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::RESULT;
use crate::{
    engine::RenderError,
    plan::{Part, Plan, PlanStep},
};

/// The parts of a Workflow that matter here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Workflow {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    entrypoint: String,
    on_exit: String,
    templates: Vec<Template>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    name: String,
    dag: Option<Dag>,
    suspend: Option<Suspend>,
    outputs: Outputs,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Dag {
    tasks: Vec<Task>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Task {
    name: String,
    template: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Suspend {
    duration: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Outputs {
    parameters: Vec<Output>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Output {
    name: String,
    value: Option<Value>,
    value_from: Option<ValueFrom>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ValueFrom {
    supplied: Option<Value>,
    default: Option<Value>,
}

/// Checks a rendered workflow.
pub fn check(value: &Value, plan: &Plan) -> Result<(), RenderError> {
    let workflow: Workflow = Workflow::deserialize(value).map_err(|e| RenderError::Output(e.to_string()))?;
    if (workflow.api_version.as_str(), workflow.kind.as_str()) != ("argoproj.io/v1alpha1", "Workflow") {
        return Err(RenderError::Output(format!(
            "it must have apiVersion argoproj.io/v1alpha1 and kind Workflow, not {:?} and {:?}",
            workflow.api_version, workflow.kind
        )));
    }
    let spec = &workflow.spec;
    let mut names = BTreeSet::new();
    if let Some(twice) = spec.templates.iter().find(|t| !names.insert(t.name.as_str())) {
        return Err(RenderError::Output(format!(
            "it has two templates named {:?}",
            twice.name
        )));
    }
    for step in &plan.steps {
        check_step(spec, step)?;
    }
    Ok(())
}

fn check_step(spec: &Spec, step: &PlanStep) -> Result<(), RenderError> {
    let part = match step.part {
        Part::Main => &spec.entrypoint,
        Part::Exit => &spec.on_exit,
    };
    let missing = || RenderError::StepMissing {
        step: step.name.clone(),
    };
    let dag = spec
        .template(part)
        .and_then(|t| t.dag.as_ref())
        .ok_or_else(missing)?;
    let task = dag
        .tasks
        .iter()
        .find(|t| t.name == step.name)
        .ok_or_else(missing)?;
    let template = spec.template(&task.template).ok_or_else(missing)?;
    let suspend = template.suspend.as_ref().ok_or_else(missing)?;
    let wrong = |problem: &str| {
        RenderError::Output(format!(
            "template {:?} of step {}: {problem}",
            task.template, step.name
        ))
    };
    if suspend.duration.is_some() {
        return Err(wrong(
            "suspend.duration would end the step by itself, as a success; remove it",
        ));
    }
    let supplied = template.outputs.parameters.iter().any(|output| {
        output.name == RESULT
            && output.value.is_none()
            && output
                .value_from
                .as_ref()
                .is_some_and(|v| v.supplied.is_some() && v.default.is_none())
    });
    if supplied {
        Ok(())
    } else {
        Err(wrong(
            "it needs the output parameter `result` with `valueFrom: {supplied: {}}` and without default, which keeps \
             people from resuming all steps at once",
        ))
    }
}

impl Spec {
    fn template(&self, name: &str) -> Option<&Template> {
        self.templates.iter().find(|t| t.name == name)
    }
}
