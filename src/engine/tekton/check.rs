//! Whether what a template rendered is a PipelineRun that the operator can lead through the plan.

use serde::Deserialize;
use serde_json::Value;

use super::{STEP_API_VERSION, STEP_KIND};
use crate::{
    api::GoDuration,
    engine::RenderError,
    plan::{Part, Plan, PlanStep},
};

/// The parts of a PipelineRun that matter here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PipelineRun {
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
    pipeline_spec: Pipeline,
    timeouts: Timeouts,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Timeouts {
    pipeline: Option<GoDuration>,
    tasks: Option<GoDuration>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pipeline {
    tasks: Vec<Task>,
    finally: Vec<Task>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Task {
    name: String,
    #[serde(rename = "taskRef")]
    reference: TaskRef,
    run_after: Vec<String>,
    timeout: Option<Value>,
    retries: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TaskRef {
    api_version: String,
    kind: String,
}

/// Checks a rendered PipelineRun.
pub fn check(value: &Value, plan: &Plan) -> Result<(), RenderError> {
    let run = PipelineRun::deserialize(value).map_err(|e| RenderError::Output(e.to_string()))?;
    if (run.api_version.as_str(), run.kind.as_str()) != ("tekton.dev/v1", "PipelineRun") {
        return Err(RenderError::Output(format!(
            "it must have apiVersion tekton.dev/v1 and kind PipelineRun, not {:?} and {:?}",
            run.api_version, run.kind
        )));
    }
    let Timeouts { pipeline, tasks } = &run.spec.timeouts;
    let is_none = |d: &GoDuration| d.get().is_ok_and(|d| d.is_zero());
    if !pipeline.as_ref().is_some_and(is_none) || !tasks.as_ref().is_none_or(is_none) {
        return Err(RenderError::Output(
            "it needs spec.timeouts.pipeline: \"0\", and no timeouts.tasks: Tekton would end the upgrade by itself, after an hour \
             where there is none"
                .to_owned(),
        ));
    }
    let pipeline = &run.spec.pipeline_spec;
    plan.steps
        .iter()
        .try_for_each(|step| check_step(pipeline, step, plan))
}

fn check_step(pipeline: &Pipeline, step: &PlanStep, plan: &Plan) -> Result<(), RenderError> {
    let tasks = match step.part {
        Part::Main => &pipeline.tasks,
        Part::Exit => &pipeline.finally,
    };
    let is_ours = |t: &&Task| {
        (t.reference.api_version.as_str(), t.reference.kind.as_str()) == (STEP_API_VERSION, STEP_KIND)
    };
    let missing = || RenderError::StepMissing {
        step: step.name.clone(),
    };
    let task = tasks
        .iter()
        .find(|t| t.name == step.name)
        .filter(is_ours)
        .ok_or_else(missing)?;
    let wrong = |problem: String| RenderError::Output(format!("task {}: {problem}", step.name));
    if task.timeout.is_some() {
        return Err(wrong(
            "with a timeout Tekton would end the step by itself; remove it".to_owned(),
        ));
    }
    if task.retries.is_some() {
        return Err(wrong("a step is not repeated; remove retries".to_owned()));
    }
    let is_step = |name: &&String| plan.step(name).is_some_and(|s| s.part == step.part);
    let mut before = step.after.iter().filter(is_step);
    match before.find(|name| step.part == Part::Main && !task.run_after.contains(name)) {
        Some(name) => Err(wrong(format!("its runAfter must name {name}"))),
        None => Ok(()),
    }
}
