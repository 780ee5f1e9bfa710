//! Plan → PipelineRun.

use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{check, text};
use crate::{
    api::names,
    engine::{RenderError, RunContext, identity, template, values},
    plan::{Plan, PlanStep},
};

/// The built-in template.
pub const TEMPLATE: &str = include_str!("../../../workflow-templates/tekton/upgrade-pipelinerun.yaml.hbs");

/// What a person must know in Tekton's UI.
const ADVICE: &str = "**A running step means: the operator is at work.** There is no pod and no log: its message says what it \
                      waits for, and it ends by itself. To end the upgrade, stop or cancel this run.";

/// Tekton's names of runs are label values of what it makes for them.
const MAX_NAME: usize = names::MAX;

/// The PipelineRun of a plan.
pub fn render(plan: &Plan, context: &RunContext<'_>) -> Result<DynamicObject, RenderError> {
    if context.name.len() > MAX_NAME {
        return Err(RenderError::Output(format!(
            "the name {} is longer than {MAX_NAME} characters, which Tekton refuses",
            context.name
        )));
    }
    let mut data = values::of(plan, context, ADVICE, |s| step(s, plan))?;
    text::value_without_variables(&mut data);
    let template = context.template.as_deref().unwrap_or(TEMPLATE);
    let value = template::render(template, &data).map_err(|e| RenderError::Template(e.to_string()))?;
    check::check(&value, plan)?;
    let mut object: DynamicObject =
        serde_json::from_value(value).map_err(|e| RenderError::Output(e.to_string()))?;
    identity::make_ours(&mut object, context);
    Ok(object)
}

/// Tasks of `finally` have no order in Tekton: the operator ends them in theirs.
fn step(step: &PlanStep, plan: &Plan) -> Value {
    let is_before = |name: &&String| plan.step(name).is_some_and(|s| s.part == step.part);
    json!({"after": step.after.iter().filter(is_before).collect::<Vec<_>>()})
}
