//! What workflows need besides themselves: the reusable templates of hooks, and the environments of those that run.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ObjectMeta, PostParams},
    core::GroupVersionKind,
};

use super::{
    calls::{CallError, call},
    effects::Effects,
};
use crate::{
    api::{UpgradeJobHook, names, upgrade_job::HookState},
    engine::{
        Report, Start, Templates,
        native::{Lookup, TemplateKey, TemplateKind, environment_name},
    },
    plan::{Plan, StepAction},
};

/// The kind of reusable templates.
fn resource(kind: &TemplateKind) -> ApiResource {
    let (group, version, plural) = match kind {
        TemplateKind::WorkflowTemplate => ("argoproj.io", "v1alpha1", "workflowtemplates"),
        TemplateKind::ClusterWorkflowTemplate => ("argoproj.io", "v1alpha1", "clusterworkflowtemplates"),
        TemplateKind::ConfigMap => ("", "v1", "configmaps"),
        TemplateKind::Task { .. } => ("tekton.dev", "v1", "tasks"),
    };
    let kind = GroupVersionKind::gvk(group, version, kind.as_str());
    ApiResource::from_gvk_with_plural(&kind, plural)
}

/// Reads these templates.
pub async fn templates(
    client: &Client,
    namespace: &str,
    keys: &BTreeSet<TemplateKey>,
) -> Result<Templates, CallError> {
    let mut all = Templates::default();
    for key in keys {
        let found = template(client, namespace, key).await?;
        all.0.insert(key.clone(), found);
    }
    Ok(all)
}

/// Reads the templates that the hooks of a plan refer to.
pub async fn templates_of(
    client: &Client,
    namespace: &str,
    plan: &Plan,
    hooks: &[UpgradeJobHook],
) -> Result<Templates, CallError> {
    let named: BTreeSet<&str> = plan
        .steps
        .iter()
        .filter_map(|step| {
            if let StepAction::Hook { hook, .. } = &step.action {
                Some(hook.as_str())
            } else {
                None
            }
        })
        .collect();
    let keys = hooks
        .iter()
        .filter(|h| named.contains(h.name_any().as_str()))
        .filter_map(|h| h.spec.template_ref.as_ref())
        .map(TemplateKey::of)
        .collect();
    templates(client, namespace, &keys).await
}

/// Reads one.
pub async fn template(client: &Client, namespace: &str, key: &TemplateKey) -> Result<Lookup, CallError> {
    let elsewhere = match &key.kind {
        TemplateKind::Task { namespace } => namespace.as_deref(),
        TemplateKind::WorkflowTemplate | TemplateKind::ClusterWorkflowTemplate | TemplateKind::ConfigMap => {
            None
        }
    };
    if !names::is_dns_subdomain(&key.name) || !elsewhere.is_none_or(names::is_dns_subdomain) {
        // Nothing can be called so, and no request for it can be made.
        return Ok(Lookup::Absent);
    }
    let resource = resource(&key.kind);
    let client = client.clone();
    let api: Api<DynamicObject> = match &key.kind {
        TemplateKind::ClusterWorkflowTemplate => Api::all_with(client, &resource),
        TemplateKind::Task {
            namespace: Some(elsewhere),
        } => Api::namespaced_with(client, elsewhere, &resource),
        TemplateKind::WorkflowTemplate | TemplateKind::ConfigMap | TemplateKind::Task { namespace: None } => {
            Api::namespaced_with(client, namespace, &resource)
        }
    };
    let (of, field) = match &key.kind {
        TemplateKind::ConfigMap => ("the workflow template", "data"),
        TemplateKind::WorkflowTemplate
        | TemplateKind::ClusterWorkflowTemplate
        | TemplateKind::Task { .. } => ("a hook", "spec"),
    };
    match call(format!("read {key} of {of}"), api.get(&key.name)).await {
        Ok(mut object) => Ok(object
            .data
            .get_mut(field)
            .map(serde_json::Value::take)
            .map_or(Lookup::Found(serde_json::Value::Null), Lookup::Found)),
        Err(error) if error.is_not_found() => Ok(Lookup::Absent),
        Err(error) if error.is_no_such_kind() => Ok(Lookup::KindAbsent),
        Err(error) => error.forbidden().map(Lookup::Forbidden).ok_or(error),
    }
}

/// Creates the environments of the hooks that these reports start, and returns the reports that can be made, with the first
/// error. A hook whose environment the API server refuses will never run: it has failed.
pub async fn create_environments(
    effects: &mut Effects<'_>,
    workflow: &DynamicObject,
    reports: &[(String, Report)],
) -> (Vec<(String, Report)>, Option<CallError>) {
    let (mut possible, mut failed) = (Vec::new(), None);
    for (step, report) in reports {
        let result = match report {
            Report::Start(start) => create_environment(effects, workflow, step, start).await,
            Report::Message(_) | Report::Succeeded(_) | Report::Failed(_) => Ok(()),
        };
        let result = match result {
            Ok(()) => {
                possible.push((step.clone(), report.clone()));
                continue;
            }
            Err(error) if error.refusal().is_some() => refused(effects, step, &error).await,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            failed.get_or_insert(error);
        }
    }
    (possible, failed)
}

async fn create_environment(
    effects: &Effects<'_>,
    workflow: &DynamicObject,
    step: &str,
    start: &Start,
) -> Result<(), CallError> {
    let job = &effects.job;
    let namespace = job.namespace().unwrap_or_default();
    let api: Api<ConfigMap> = Api::namespaced(effects.client.clone(), &namespace);
    for run in &start.runs {
        let name = environment_name(&workflow.name_any(), step, &run.key);
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                labels: Some(labels(workflow)),
                owner_references: job.controller_owner_ref(&()).map(|o| vec![o]),
                ..ObjectMeta::default()
            },
            data: Some(run.variables.clone()),
            immutable: Some(true),
            ..ConfigMap::default()
        };
        let attempt = format!("create ConfigMap {name} with the environment of a hook");
        match call(attempt, api.create(&PostParams::default(), &map)).await {
            // A name is never used again: what is there already is ours, from before a crash.
            Err(error) if !error.is_already_exists() => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

async fn refused(effects: &mut Effects<'_>, step: &str, error: &CallError) -> Result<(), CallError> {
    let mut status = effects.job.status.clone().unwrap_or_default();
    for entry in &mut status.hook_tracker {
        let is_of_step = entry.workflow_step.as_ref().is_some_and(|by| by.step == step);
        if is_of_step && entry.status == HookState::Active {
            entry.status = HookState::Failed;
            entry.message = error.to_string();
        }
    }
    effects.write_status(&status).await
}

/// Those that name the job.
fn labels(workflow: &DynamicObject) -> std::collections::BTreeMap<String, String> {
    let ours = [
        crate::api::labels::UPGRADE_JOB,
        crate::api::labels::UPGRADE_JOB_UID,
    ];
    let all = workflow.labels();
    ours.into_iter()
        .filter_map(|key| Some((key.to_owned(), all.get(key)?.clone())))
        .collect()
}
