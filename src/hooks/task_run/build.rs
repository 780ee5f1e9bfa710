//! The TaskRun of a hook.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use kube::{
    ResourceExt,
    api::{DynamicObject, ObjectMeta},
};
use serde_json::{Value, json};

use super::resource;
use crate::{
    api::{
        GoDuration, UpgradeJob, UpgradeJobHook, annotations, finalizers, labels,
        upgrade_job_hook::{Argument, TaskRef},
    },
    hooks::{
        environment::Event,
        job::{self, BuildError},
        naming,
        run::Settings,
        tracker::NextTry,
    },
};

/// So many steps of a Task have room for the environment, which every one of them gets: how many there are is not known.
const STEPS: usize = 8;

/// The TaskRun that runs the Task of `hook` at `event` for `job`, as [`job::build`] makes the Job of others.
///
/// Without `taskRef.timeout` it has the default deadline, or no limit: Tekton's own hour is none that people wrote.
/// `account` is the ServiceAccount of its pod where the hook names none; `None` leaves that to Tekton.
pub fn build(
    hook: &UpgradeJobHook,
    task: &TaskRef,
    event: &Event,
    job: &UpgradeJob,
    tracking_key: &str,
    settings: &Settings,
    account: Option<&str>,
) -> Result<DynamicObject, BuildError> {
    let hook_name = hook.name_any();
    let owner = job::owner(job, &hook_name)?;
    let environment = job::environment_for(&hook_name, STEPS, event, job, settings.matches_disruptive)?;
    let mut of_run = BTreeMap::new();
    let mut annotations = BTreeMap::new();
    naming::identify(
        &mut of_run,
        &mut annotations,
        &hook_name,
        event.name,
        job,
        tracking_key,
    );
    if environment.trimmed {
        annotations.insert(job::ENVIRONMENT_TRIMMED.to_owned(), "true".to_owned());
    }
    let timeout = task.timeout.as_ref().and_then(GoDuration::positive);
    let account = task.service_account_name.as_deref().or(account);
    let mut spec = serde_json::Map::new();
    let mut set = |field: &str, value: Value| spec.insert(field.to_owned(), value);
    set("taskRef", reference(task));
    let param = |Argument { name, value }: &Argument| json!({"name": name, "value": value});
    set("params", task.arguments.iter().map(param).collect());
    set("timeout", duration(timeout.or(settings.default_deadline)));
    set("podTemplate", json!({"env": environment.vars}));
    if let Some(account) = account {
        set("serviceAccountName", json!(account));
    }
    if let Some(retries) = task.retries.filter(|r| *r > 0) {
        set("retries", json!(retries));
    }
    let name = naming::name(job, &hook_name, event.name, tracking_key);
    let metadata = ObjectMeta {
        namespace: job.namespace(),
        labels: Some(of_run),
        annotations: (!annotations.is_empty()).then_some(annotations),
        finalizers: Some(vec![finalizers::HOOK_JOB.to_owned()]),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Ok(object(&name, metadata, &Value::Object(spec)))
}

/// The next try of a TaskRun whose pod was killed: what it was told and given, under a name of its own.
pub fn next(of: &DynamicObject, next: &NextTry) -> DynamicObject {
    // What others wrote on it, such as Tekton, is theirs to write again.
    let ours = |key: &String| {
        [
            labels::HOOK,
            labels::HOOK_JOB,
            labels::HOOK_EVENT,
            labels::HOOK_TRACKING_KEY,
            job::ENVIRONMENT_TRIMMED,
        ]
        .contains(&key.as_str())
    };
    let mut annotations = of.annotations().clone();
    annotations.retain(|key, _| ours(key));
    annotations.insert(annotations::ATTEMPT.to_owned(), next.attempt.to_string());
    let mut of_run = of.labels().clone();
    of_run.retain(|key, _| ours(key));
    let mut spec = of.data.get("spec").cloned().unwrap_or_default();
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|key, _| key != "status" && key != "statusMessage");
        spec.insert("timeout".to_owned(), duration(next.again.timeout));
    }
    let metadata = ObjectMeta {
        namespace: of.namespace(),
        labels: Some(of_run),
        annotations: Some(annotations),
        finalizers: Some(vec![finalizers::HOOK_JOB.to_owned()]),
        owner_references: of.metadata.owner_references.clone(),
        ..ObjectMeta::default()
    };
    object(&next.name, metadata, &spec)
}

fn object(name: &str, metadata: ObjectMeta, spec: &Value) -> DynamicObject {
    let object = DynamicObject::new(name, &resource()).data(json!({"spec": spec}));
    DynamicObject {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..metadata
        },
        ..object
    }
}

/// Whether a TaskRun of ours may take as long as it wants.
pub fn has_no_limit(run: &DynamicObject) -> bool {
    run.data.pointer("/spec/timeout") == Some(&duration(None))
}

/// Zero is Tekton's word for no limit.
fn duration(timeout: Option<SignedDuration>) -> Value {
    json!(GoDuration::from(timeout.unwrap_or_default()).0)
}

fn reference(task: &TaskRef) -> Value {
    let name = &task.name;
    match &task.namespace {
        None => json!({"kind": "Task", "name": name}),
        Some(namespace) => json!({"resolver": "cluster", "params": [
            {"name": "kind", "value": "task"},
            {"name": "name", "value": name},
            {"name": "namespace", "value": namespace},
        ]}),
    }
}
