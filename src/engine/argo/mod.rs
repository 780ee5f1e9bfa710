//! Argo Workflows.
//!
//! Every step is a `suspend` node that the operator ends by a merge patch of the Workflow (which has no status
//! subresource). What runs besides are hooks that are made of WorkflowTemplates ([`native`], [`inline`]). Facts about Argo were
//! read in its source, v4.1.4.

mod check;
mod describe;
mod inline;
mod native;
mod object;
mod render;
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
    Engine, RenderError, Report, Run, RunContext,
    native::{TemplateKey, Templates},
};
use crate::{
    api::{UpgradeJobHook, job_config::EngineChoice},
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

    fn resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Workflow"),
            "workflows",
        )
    }

    fn render(&self, plan: &Plan, context: &RunContext<'_>) -> Result<DynamicObject, RenderError> {
        render::render(plan, context)
    }

    fn observe(&self, object: &DynamicObject, plan: &Plan) -> Run {
        object::observe(object, plan)
    }

    fn report(
        &self,
        object: &DynamicObject,
        plan: &Plan,
        reports: &[(String, Report)],
        now: Timestamp,
    ) -> Option<Value> {
        report::report(object, plan, reports, now)
    }

    /// The pause goes too: Argo fails the waiting nodes of a paused workflow, but does not end it before it is resumed.
    fn stop(&self, object: &DynamicObject) -> Value {
        json!({
            "metadata": {"resourceVersion": object.metadata.resource_version},
            "spec": {"shutdown": "Terminate", "suspend": null},
        })
    }

    fn end_main_part(&self, object: &DynamicObject) -> Value {
        json!({
            "metadata": {"resourceVersion": object.metadata.resource_version},
            "spec": {"shutdown": "Stop", "suspend": null},
        })
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

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
