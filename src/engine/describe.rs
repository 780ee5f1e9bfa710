//! What a person reads at the top of a workflow in the engine's UI. Both texts are Markdown.

use std::fmt::Write;

use kube::ResourceExt;

use super::text::markdown;
use crate::{
    api::UpgradeJob,
    plan::{Part, Plan, PlanStep, RunKind, When},
};

/// The headline of a run.
pub fn title(job: &UpgradeJob, plan: &Plan) -> String {
    let name = markdown(&job.name_any());
    let purpose = match version(job) {
        Some(version) => format!("Upgrade to {}", markdown(version)),
        None => "Maintenance without upgrade".to_owned(),
    };
    match plan.run {
        RunKind::Main { attempt: 0 | 1 } => format!("{purpose} ({name})"),
        RunKind::Main { attempt } => format!("{purpose}, attempt {attempt} ({name})"),
        RunKind::Create { number } => format!("{purpose}: Create hooks, run {number} ({name})"),
    }
}

/// What the run is, what a person must not do in this UI, and the whole plan: Argo draws only steps that were reached.
pub fn description(job: &UpgradeJob, plan: &Plan, advice: &str) -> String {
    let name = job.name_any();
    let (namespace_flag, qualified) = match job.namespace() {
        Some(namespace) => (format!("-n {namespace} "), format!("{namespace}/{name}")),
        None => (String::new(), name.clone()),
    };
    let mut text = format!(
        "Run by the upgrade operator for UpgradeJob **{qualified}**: \
         `kubectl {namespace_flag}get upgradejob {name} -o yaml`\n\n\
         {advice}\n\n",
        qualified = markdown(&qualified),
    );
    list(&mut text, "Plan", plan.part(Part::Main));
    list(&mut text, "When the plan has ended", plan.part(Part::Exit));
    text
}

fn list<'a>(text: &mut String, heading: &str, steps: impl Iterator<Item = &'a PlanStep>) {
    let mut lines = String::new();
    for (step, number) in steps.zip(1..) {
        let when = match step.action.when() {
            When::Always => "",
            When::Succeeded => " (if it succeeded)",
            When::Failed => " (if it failed)",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "{number}. `{}` {}{when}", step.name, markdown(&step.title));
    }
    if !lines.is_empty() {
        let _ = write!(text, "**{heading}**\n\n{lines}\n");
    }
}

/// The version as people call it.
pub fn version(job: &UpgradeJob) -> Option<&str> {
    let desired = job.spec.desired_version.as_ref()?;
    Some(
        desired
            .version
            .as_deref()
            .or(desired.image.as_deref())
            .unwrap_or("a version that is not given"),
    )
}
