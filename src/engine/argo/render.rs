//! Plan → Workflow.

use std::collections::BTreeMap;

use kube::{Resource, ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    check, describe,
    native::{self, Natives},
    text,
};
use crate::{
    api::{labels, names},
    engine::{RenderError, RunContext, template},
    plan::{Part, Plan, PlanStep, RunKind, When},
};

/// The built-in template.
pub const TEMPLATE: &str = include_str!("../../../workflow-templates/argo/upgrade-workflow.yaml.hbs");

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
    let data = data(plan, context, &natives)?;
    let template = context.template.as_deref().unwrap_or(TEMPLATE);
    let mut value = template::render(template, &data).map_err(|e| RenderError::Template(e.to_string()))?;
    check::check(&value, plan)?;
    natives.add_to(&mut value, plan, &context.name)?;
    // What was added must not be at odds with a template of the user's.
    check::check(&value, plan)?;
    let mut object: DynamicObject =
        serde_json::from_value(value).map_err(|e| RenderError::Output(e.to_string()))?;
    make_ours(&mut object, context);
    Ok(object)
}

/// What a template can use; documented at the top of the built-in one.
fn data(plan: &Plan, context: &RunContext<'_>, natives: &Natives) -> Result<Value, RenderError> {
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
    let steps = |part: Part| {
        plan.part(part)
            .map(|s| step(s, plan, natives))
            .collect::<Vec<_>>()
    };
    let mut data = json!({
        "name": context.name,
        "namespace": job.namespace(),
        "job": job.name_any(),
        "title": describe::title(job, plan),
        "description": describe::description(job, plan),
        "version": describe::version(job),
        "run": run,
        "number": number,
        "activeDeadlineSeconds": context.active_deadline_seconds,
        "serviceAccountName": context.config.service_account_name.as_ref().or(context.default_service_account.as_ref()),
        "ttlSeconds": ttl,
        "mainSteps": steps(Part::Main),
        "exitSteps": steps(Part::Exit),
        "steps": plan.steps.iter().map(|s| step(s, plan, natives)).collect::<Vec<_>>(),
    });
    text::value_without_variables(&mut data);
    Ok(data)
}

fn step(step: &PlanStep, plan: &Plan, natives: &Natives) -> Value {
    let when = match step.part {
        Part::Main => When::Always,
        Part::Exit => step.action.when(),
    };
    json!({
        "name": step.name,
        "title": step.title,
        "kind": step.action.kind(),
        "after": step.after,
        "depends": depends(step, plan, natives),
        "onSuccess": when == When::Succeeded,
        "onFailure": when == When::Failed,
    })
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

/// Identity, owner and labels are the operator's whatever a template says: it finds and trusts workflows by them.
fn make_ours(object: &mut DynamicObject, context: &RunContext<'_>) {
    let job = context.job;
    let mut ours = BTreeMap::from([(
        labels::UPGRADE_JOB.to_owned(),
        names::label_value(&job.name_any()),
    )]);
    if let Some(uid) = job.uid() {
        ours.insert(labels::UPGRADE_JOB_UID.to_owned(), uid);
    }
    let metadata = &mut object.metadata;
    let mut all = metadata.labels.take().unwrap_or_default();
    all.remove(labels::UPGRADE_JOB_UID);
    all.extend(ours);
    let annotations = metadata.annotations.take();
    // Without `blockOwnerDeletion`: OpenShift asks for the right to set the owner's finalizers before it accepts that.
    // A job without UID is one from a file.
    let owner = job.controller_owner_ref(&());
    *metadata = kube::core::ObjectMeta {
        name: Some(context.name.clone()),
        namespace: job.namespace(),
        labels: Some(all),
        annotations,
        owner_references: owner.map(|o| vec![o]),
        ..kube::core::ObjectMeta::default()
    };
    if let Some(data) = object.data.as_object_mut() {
        data.remove("status");
    }
}
