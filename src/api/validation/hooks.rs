//! What a schema cannot catch of hooks.

use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::JobTemplateSpec;

use super::{Found, Problem};
use crate::api::{
    UpgradeJobHook,
    names::is_dns_subdomain,
    upgrade_job_hook::{Argument, TaskRef, TemplateRef},
};

/// Problems of an UpgradeJobHook.
pub fn upgrade_job_hook(hook: &UpgradeJobHook) -> Vec<Problem> {
    let mut found = Found::default();
    let spec = &hook.spec;
    if spec.events.is_empty() {
        let message = "no event is listed, so the hook never runs; list at least one, for example Start";
        found.add("spec.events", message);
    }
    found.selector("spec.selector", Some(&spec.selector));
    match (&spec.template, &spec.template_ref, &spec.task_ref) {
        (Some(template), None, None) => found.job_template("spec.template", template),
        (None, Some(TemplateRef { name, arguments, .. }), None) => {
            found.name("spec.templateRef.name", name);
            found.arguments("spec.templateRef.arguments", arguments);
        }
        (None, None, Some(task)) => found.task_ref("spec.taskRef", task),
        (None, None, None) => found.add(
            "spec",
            "there is nothing to run: write template (a Kubernetes Job), templateRef (Argo) or taskRef (Tekton)",
        ),
        _ => found.add(
            "spec",
            "template, templateRef and taskRef exclude each other: keep one of them, and write a hook for each other",
        ),
    }
    found.0
}

impl Found {
    fn name(&mut self, field: &str, name: &str) {
        if name.is_empty() {
            self.add(field, "it is empty: write the name of what to run");
        } else if !is_dns_subdomain(name) {
            self.add(
                field,
                format!("{name:?} is not the name of anything: write the name of what to run"),
            );
        }
    }

    fn task_ref(&mut self, field: &str, task: &TaskRef) {
        self.name(&format!("{field}.name"), &task.name);
        for (of, name) in [
            ("namespace", &task.namespace),
            ("serviceAccountName", &task.service_account_name),
        ] {
            self.object_name(&format!("{field}.{of}"), name.as_ref());
        }
        self.arguments(&format!("{field}.arguments"), &task.arguments);
        self.duration_of_at_least(
            SignedDuration::from_secs(1),
            &format!("{field}.timeout"),
            task.timeout.as_ref(),
            "the hook could never end in time; write for example 30m, or leave it out for no limit",
        );
    }

    /// A name that is given twice has one value, and nobody can say which.
    fn arguments(&mut self, field: &str, arguments: &[Argument]) {
        for (index, argument) in arguments.iter().enumerate() {
            let name = &argument.name;
            if name.is_empty() {
                let message = "it is empty: write the name of the parameter that the value is for";
                self.add(format!("{field}[{index}].name"), message);
            } else if arguments.iter().take(index).any(|a| a.name == *name) {
                let message = format!("{name} has a value already: keep one of them");
                self.add(format!("{field}[{index}].name"), message);
            }
        }
    }

    /// Only what the API server would refuse for certain when the Job is created. A missing restart policy is none of
    /// that: the operator sets Never.
    fn job_template(&mut self, field: &str, template: &JobTemplateSpec) {
        let field = format!("{field}.spec.template.spec");
        let pod = template.spec.as_ref().and_then(|s| s.template.spec.as_ref());
        let Some(pod) = pod.filter(|p| !p.containers.is_empty()) else {
            self.add(
                format!("{field}.containers"),
                "there is no container: write at least one",
            );
            return;
        };
        for (index, container) in pod.containers.iter().enumerate() {
            if container.image.as_deref().unwrap_or_default().is_empty() {
                let message = format!("container {:?} has no image: write one", container.name);
                self.add(format!("{field}.containers[{index}].image"), message);
            }
        }
        let policy = pod.restart_policy.as_deref().unwrap_or_default();
        if !["", "Never", "OnFailure"].contains(&policy) {
            let message = format!("a Job cannot have {policy}: write Never or OnFailure");
            self.add(format!("{field}.restartPolicy"), message);
        }
    }
}
