//! Argo Workflows.
//!
//! Every step is a `suspend` node that the operator ends by a merge patch of the Workflow (which has no status
//! subresource). What runs besides are hooks that are made of WorkflowTemplates ([`native`], [`inline`]). Facts about Argo were
//! read in its source, v4.1.4.

mod check;
mod inline;
mod native;
mod object;
mod render;
mod repeat;
mod report;
mod runs;
mod text;

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use super::{
    Engine, Place, RenderError, Report, Run, RunContext, Workflow, Write,
    native::{TemplateKey, Templates},
};
use crate::{
    api::{UpgradeJobHook, annotations, job_config::EngineChoice},
    plan::Plan,
};

pub use render::TEMPLATE;

/// Name of a step's output. It is supplied by the operator and has no default: so Argo refuses to resume the whole workflow.
const RESULT: &str = "result";

/// Argo Workflows as an engine.
pub struct Argo;

impl Engine for Argo {
    fn kind(&self) -> EngineChoice {
        EngineChoice::Argo
    }

    fn title(&self) -> &'static str {
        "Argo Workflows"
    }

    fn template_key(&self) -> &'static str {
        "upgrade-workflow.yaml.hbs"
    }

    fn resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Workflow"),
            "workflows",
        )
    }

    /// The steps are nodes in the Workflow itself.
    fn step_resource(&self) -> Option<ApiResource> {
        None
    }

    fn step_label(&self) -> Option<&'static str> {
        None
    }

    /// The template sets `ttlStrategy`.
    fn removes_finished(&self) -> bool {
        true
    }

    fn render(&self, plan: &Plan, context: &RunContext<'_>) -> Result<DynamicObject, RenderError> {
        render::render(plan, context)
    }

    fn observe(&self, workflow: &Workflow, plan: &Plan) -> Run {
        object::observe(&workflow.object, plan)
    }

    fn report(
        &self,
        workflow: &Workflow,
        plan: &Plan,
        reports: &[(String, Report)],
        now: Timestamp,
    ) -> Vec<Write> {
        report::report(&workflow.object, plan, reports, now)
            .and_then(|change| self.write(workflow, change))
            .into_iter()
            .collect()
    }

    /// Argo fails the waiting nodes of a workflow that is stopped.
    fn end_steps(&self, _: &Workflow, _: Timestamp) -> Vec<Write> {
        Vec::new()
    }

    /// The pause goes too: Argo fails the waiting nodes of a paused workflow, but does not end it before it is resumed.
    fn stop(&self, workflow: &Workflow) -> Option<Write> {
        self.write(
            workflow,
            json!({"spec": {"shutdown": "Terminate", "suspend": null}}),
        )
    }

    /// The controller writes each new version of a workflow into its informer's copies (`writeBackToInformer`). Where that is
    /// quicker than the watch, the event of the watch goes for nothing, and the workflow is looked at again in 20 minutes or
    /// at the next write of somebody else.
    fn wake(&self, workflow: &Workflow, now: Timestamp) -> Option<Write> {
        let change = json!({"metadata": {"annotations": {annotations::WOKEN_AT: now.to_string()}}});
        self.write(workflow, change)
    }

    fn seal(&self, workflow: &Workflow, now: Timestamp) -> Option<Write> {
        self.write(workflow, repeat::seal(now))
    }

    fn resume(&self, workflow: &Workflow) -> Option<Write> {
        self.write(workflow, json!({"spec": {"suspend": null}}))
    }

    /// Not `argo resume`, nor *Resume* in the UI: these end every step that waits as well, and are refused therefore.
    fn resume_command(&self, namespace: &str, name: &str) -> String {
        format!(
            "oc -n {namespace} patch workflows.argoproj.io {name} --type merge --patch '{{\"spec\":{{\"suspend\":null}}}}'"
        )
    }

    fn end_main_part(&self, workflow: &Workflow) -> Option<Write> {
        self.write(workflow, json!({"spec": {"shutdown": "Stop", "suspend": null}}))
    }

    fn problem_of(&self, hook: &UpgradeJobHook, templates: &Templates) -> Option<String> {
        let reference = hook.spec.template_ref.as_ref()?;
        let place = inline::Place {
            step: "hook",
            number: 1,
            namespace: &hook.namespace().unwrap_or_default(),
        };
        let lookup = templates.get(&TemplateKey::of(reference));
        inline::inline(reference, lookup, &place, &mut BTreeSet::new())
            .err()
            .map(|e| e.to_string())
    }
}

impl Argo {
    fn write(&self, workflow: &Workflow, change: Value) -> Option<Write> {
        Write::guarded(self.resource(), &workflow.object, Place::Object, change)
    }
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
