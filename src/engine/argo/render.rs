//! Plan → Workflow.

use kube::api::DynamicObject;
use serde_json::json;

use super::{
    check,
    native::{self, Natives},
    text,
};
use crate::{
    api::names,
    engine::{RenderError, RunContext, identity, template, values},
    plan::{Part, Plan, PlanStep},
};

/// The built-in template.
pub const TEMPLATE: &str = include_str!("../../../workflow-templates/argo/upgrade-workflow.yaml.hbs");

/// What a person must know in Argo's UI.
const ADVICE: &str = "**A yellow step means: the operator is at work. Do not resume it.** It ends by itself; its message says \
                      what it waits for. To end the upgrade, use *Stop*.";

/// Argo refuses longer names of workflows: it uses them as label values.
const MAX_NAME: usize = names::MAX;

/// The Workflow of a plan.
pub fn render(plan: &Plan, context: &RunContext<'_>) -> Result<DynamicObject, RenderError> {
    if context.name.len() > MAX_NAME {
        return Err(RenderError::Output(format!(
            "the name {} is longer than {MAX_NAME} characters, which Argo refuses",
            context.name
        )));
    }
    let natives = Natives::of(plan, context);
    let depends = |step: &PlanStep| json!({"depends": depends(step, plan, &natives)});
    let mut data = values::of(plan, context, ADVICE, depends)?;
    text::value_without_variables(&mut data);
    let template = context.template.as_deref().unwrap_or(TEMPLATE);
    let mut value = template::render(template, &data).map_err(|e| RenderError::Template(e.to_string()))?;
    check::check(&value, plan)?;
    natives.add_to(&mut value, plan, &context.name)?;
    // What was added must not be at odds with a template of the user's.
    check::check(&value, plan)?;
    let mut object: DynamicObject =
        serde_json::from_value(value).map_err(|e| RenderError::Output(e.to_string()))?;
    identity::make_ours(&mut object, context);
    Ok(object)
}

/// Argo's condition for a step to be reached.
///
/// In the main part a bare name: it ended well or its `when` was false; otherwise the step is omitted, and with it the
/// branch. The exit part runs to its end whatever becomes of a step in it: nothing in it changes the outcome. A hook that
/// Argo runs is waited for; what its failure means the operator decides.
fn depends(step: &PlanStep, plan: &Plan, natives: &Natives) -> Option<String> {
    let known = step
        .after
        .iter()
        .filter(|name| plan.step(name).is_some_and(|s| s.part == step.part));
    let mut terms: Vec<String> = Vec::new();
    for name in known {
        terms.push(match step.part {
            Part::Main => name.clone(),
            Part::Exit => has_ended(name),
        });
        if natives.runs(name) {
            terms.push(has_ended(&native::task_name(name)));
        }
    }
    (!terms.is_empty()).then(|| terms.join(" && "))
}

fn has_ended(task: &str) -> String {
    let ends = ["Succeeded", "Failed", "Errored", "Skipped", "Omitted"].map(|end| format!("{task}.{end}"));
    format!("({})", ends.join(" || "))
}
