//! Tekton Pipelines.
//!
//! Every step is a custom task: Tekton makes a `CustomRun` of it, which has no pod, and the operator writes its status. What
//! comes after the main part is `finally`. Hooks are custom tasks as well, those that are Tasks too: see
//! [`crate::hooks::task_run`]. Facts about Tekton were read in its source, v1.15.0.

mod check;
mod object;
mod render;
mod report;
mod text;

use jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use super::{
    Engine, Place, RenderError, Report, Run, RunContext, Templates, Workflow, Write, native::TemplateKey,
};
use crate::{
    api::{UpgradeJobHook, job_config::EngineChoice},
    hooks::{job, task_run},
    plan::Plan,
};

pub use render::TEMPLATE;

/// `apiVersion` of the custom task of every step.
const STEP_API_VERSION: &str = "managedupgrade.appuio.io/v1beta1";
/// Its `kind`. There is no such kind in the API server: it tells Tekton that somebody else runs the task.
const STEP_KIND: &str = "UpgradeStep";
/// Name of a step's result, for tasks that users add to the template.
const RESULT: &str = "result";
/// Label with the name of the PipelineRun, on everything that Tekton makes for it.
const RUN_LABEL: &str = "tekton.dev/pipelineRun";
/// Label with the name of the task in the pipeline.
const TASK_LABEL: &str = "tekton.dev/pipelineTask";

/// Tekton Pipelines as an engine.
pub struct Tekton;

impl Engine for Tekton {
    fn kind(&self) -> EngineChoice {
        EngineChoice::Tekton
    }

    fn title(&self) -> &'static str {
        "Tekton Pipelines"
    }

    fn template_key(&self) -> &'static str {
        "upgrade-pipelinerun.yaml.hbs"
    }

    fn resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun"),
            "pipelineruns",
        )
    }

    fn step_resource(&self) -> Option<ApiResource> {
        Some(custom_runs())
    }

    fn step_label(&self) -> Option<&'static str> {
        Some(RUN_LABEL)
    }

    fn removes_finished(&self) -> bool {
        false
    }

    fn render(&self, plan: &Plan, context: &RunContext<'_>) -> Result<DynamicObject, RenderError> {
        render::render(plan, context)
    }

    fn observe(&self, workflow: &Workflow, plan: &Plan) -> Run {
        object::observe(workflow, plan)
    }

    fn report(
        &self,
        workflow: &Workflow,
        plan: &Plan,
        reports: &[(String, Report)],
        now: Timestamp,
    ) -> Vec<Write> {
        report::report(workflow, plan, reports, now)
    }

    fn end_steps(&self, workflow: &Workflow, now: Timestamp) -> Vec<Write> {
        report::end_steps(workflow, now)
    }

    fn stop(&self, workflow: &Workflow) -> Option<Write> {
        end(workflow, "Cancelled")
    }

    /// Tekton forgets none.
    fn wake(&self, _: &Workflow, _: Timestamp) -> Option<Write> {
        None
    }

    /// Tekton's *Rerun* makes another run; one that has ended stays so.
    fn seal(&self, _: &Workflow, _: Timestamp) -> Option<Write> {
        None
    }

    /// Tekton knows one pause: of a run that has not begun.
    fn resume(&self, workflow: &Workflow) -> Option<Write> {
        let change: Value = json!({"spec": {"status": null}});
        Write::guarded(self.resource(), &workflow.object, Place::Object, change)
    }

    fn resume_command(&self, namespace: &str, name: &str) -> String {
        format!(
            "oc -n {namespace} patch pipelineruns.tekton.dev {name} --type merge --patch '{{\"spec\":{{\"status\":null}}}}'"
        )
    }

    fn end_main_part(&self, workflow: &Workflow) -> Option<Write> {
        end(workflow, "CancelledRunFinally")
    }

    fn problem_of(&self, hook: &UpgradeJobHook, templates: &Templates) -> Option<String> {
        let Some(task) = &hook.spec.task_ref else {
            return job::native(hook);
        };
        let namespace = hook.namespace().unwrap_or_default();
        let lookup = templates.get(&TemplateKey::of_task(task));
        task_run::problem::of(task, &namespace, lookup).map(|problem| problem.to_string())
    }
}

/// The kind of what Tekton makes of a custom task.
fn custom_runs() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("tekton.dev", "v1beta1", "CustomRun"),
        "customruns",
    )
}

/// Tekton's webhook refuses to change the spec of a PipelineRun that has ended.
fn end(workflow: &Workflow, how: &str) -> Option<Write> {
    if object::View::of(&workflow.object).finished() {
        return None;
    }
    let change: Value = json!({"spec": {"status": how}});
    Write::guarded(Tekton.resource(), &workflow.object, Place::Object, change)
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
