//! What a workflow template can use; documented at the top of the built-in ones.

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{RenderError, RunContext, describe};
use crate::plan::{Part, Plan, PlanStep, RunKind, When};

/// The values of a run. `advice` is what a person must know in the engine's UI; `of_step` adds what only this engine has of
/// a step, or overrides it.
pub fn of(
    plan: &Plan,
    context: &RunContext<'_>,
    advice: &str,
    of_step: impl Fn(&PlanStep) -> Value,
) -> Result<Value, RenderError> {
    let job = context.job;
    let ttl = match &context.config.ttl {
        None => None,
        Some(ttl) => {
            let ttl = ttl
                .get()
                .map_err(|e| RenderError::Template(format!("config.workflow.ttl: {e}")))?;
            Some(ttl.as_secs())
        }
    };
    let (run, number) = match plan.run {
        RunKind::Main { attempt } => ("Main", attempt),
        RunKind::Create { number } => ("Create", number),
    };
    let value_of = |s: &PlanStep| {
        let mut value = step(s);
        if let (Some(fields), Value::Object(own)) = (value.as_object_mut(), of_step(s)) {
            fields.extend(own);
        }
        value
    };
    let steps = |part: Part| plan.part(part).map(value_of).collect::<Vec<_>>();
    Ok(json!({
        "name": context.name,
        "namespace": job.namespace(),
        "job": job.name_any(),
        "title": describe::title(job, plan),
        "description": describe::description(job, plan, advice),
        "version": describe::version(job),
        "run": run,
        "number": number,
        "activeDeadlineSeconds": context.active_deadline_seconds,
        "serviceAccountName": context.config.service_account(context.default_service_account.as_ref()),
        "ttlSeconds": ttl,
        "mainSteps": steps(Part::Main),
        "exitSteps": steps(Part::Exit),
        "steps": plan.steps.iter().map(value_of).collect::<Vec<_>>(),
    }))
}

fn step(step: &PlanStep) -> Value {
    let when = match step.part {
        Part::Main => When::Always,
        Part::Exit => step.action.when(),
    };
    json!({
        "name": step.name,
        "title": step.title,
        "kind": step.action.kind(),
        "after": step.after,
        "onSuccess": when == When::Succeeded,
        "onFailure": when == When::Failed,
    })
}
