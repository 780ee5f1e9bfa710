//! A hook's template, copied out of its WorkflowTemplate into our Workflow. Pure.
//!
//! A copy, because a reference leaves no place for the retries that a drain asks for, nor for the environment of hooks:
//! both belong on the templates that become pods. What the WorkflowTemplate is changed to later does not count any more.

mod arguments;
mod closure;
mod error;
mod pods;
mod spec_level;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    api::upgrade_job_hook::TemplateRef,
    engine::native::{Lookup, TemplateKey, TemplateKind},
};

pub use error::InlineError;

/// Input that every copied template has: the name of the ConfigMap with the environment of hooks.
pub const ENVIRONMENT: &str = "upgrade-hook-environment";
/// Input of the entry template that gets the event as JSON, if it is declared.
pub const EVENT: &str = "event";
/// The same for the UpgradeJob.
pub const JOB: &str = "job";

/// Most bytes of templates that one hook may bring: a workflow is one object of at most 1.5 MiB, written at every change.
const MAX_TEMPLATES: usize = 128 * 1024;

type Object = Map<String, Value>;

/// A hook's template and all that it needs, for our Workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Inlined {
    /// Name of the template to call.
    pub entry: String,
    /// The copied templates, under names of our own.
    pub templates: Vec<Value>,
    /// Arguments of the call, each a parameter with name and value, besides those of the event's moment.
    pub arguments: Vec<Value>,
    /// Whether the entry template takes [`EVENT`].
    pub takes_event: bool,
    /// Whether it takes [`JOB`].
    pub takes_job: bool,
    /// Parameters for `spec.arguments` of our Workflow, under names of our own.
    pub workflow_parameters: Vec<Value>,
    /// `spec.artifactRepositoryRef` of the WorkflowTemplate.
    pub artifact_repository: Option<Value>,
}

/// For whom a template is copied.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Step of the plan; names of copies begin with it.
    pub step: &'a str,
    /// Number of the step, for names of parameters.
    pub number: usize,
    /// Namespace of the job, for messages.
    pub namespace: &'a str,
}

/// Copies a hook's template. `taken` has the names of templates that are in the Workflow, and gets those of the copies.
pub fn inline(
    reference: &TemplateRef,
    lookup: Option<&Lookup>,
    place: &Place<'_>,
    taken: &mut BTreeSet<String>,
) -> Result<Inlined, InlineError> {
    let key = TemplateKey::of(reference);
    let spec = found(&key, lookup, place)?;
    let carried = spec_level::Carried::of(&key, spec)?;
    let entry = entry_of(reference, &key, spec)?;
    let mut templates = closure::collect(&key, spec, &entry)?;
    let entry_inputs = templates
        .iter()
        .find(|t| t.name == entry)
        .and_then(|t| t.body.get("inputs"))
        .cloned()
        .unwrap_or_default();
    for template in &mut templates {
        carried.put_on(&key, &mut template.body, template.name == entry)?;
        pods::survive_drains(&mut template.body);
        pods::add_environment(&key, &template.name, &mut template.body)?;
    }
    let arguments = arguments::of(
        reference,
        &key,
        spec,
        &entry,
        &entry_inputs,
        &mut templates,
        place,
    )?;
    let (entry, templates) = closure::rename(templates, &entry, place.step, taken);
    let size: usize = templates.iter().map(|t| t.to_string().len()).sum();
    if size > MAX_TEMPLATES {
        return Err(InlineError::TooLarge {
            of: key,
            kib: size / 1024,
            most: MAX_TEMPLATES / 1024,
        });
    }
    Ok(Inlined {
        entry,
        templates,
        arguments: arguments.of_entry,
        takes_event: arguments.takes_event,
        takes_job: arguments.takes_job,
        workflow_parameters: arguments.of_workflow,
        artifact_repository: spec
            .get("artifactRepositoryRef")
            .filter(|v| !v.is_null())
            .cloned(),
    })
}

fn found<'a>(
    key: &TemplateKey,
    lookup: Option<&'a Lookup>,
    place: &Place<'_>,
) -> Result<&'a Object, InlineError> {
    let of = key.clone();
    match lookup {
        Some(Lookup::Found(Value::Object(spec))) => Ok(spec),
        Some(Lookup::Found(_)) => Err(InlineError::NoSpec { of }),
        Some(Lookup::Absent) | None => Err(InlineError::Absent {
            of,
            namespace: (key.kind == TemplateKind::WorkflowTemplate).then(|| place.namespace.to_owned()),
        }),
        Some(Lookup::KindAbsent) => Err(InlineError::KindAbsent {
            kind: key.kind.as_str(),
        }),
        Some(Lookup::Refused(why)) => Err(InlineError::Refused { of, why: why.clone() }),
        Some(Lookup::Forbidden(why)) => Err(InlineError::Forbidden { of, why: why.clone() }),
    }
}

fn entry_of(reference: &TemplateRef, key: &TemplateKey, spec: &Object) -> Result<String, InlineError> {
    let named = reference.template.as_deref().filter(|t| !t.is_empty());
    let entrypoint = spec
        .get("entrypoint")
        .and_then(Value::as_str)
        .filter(|t| !t.is_empty());
    let name = named
        .or(entrypoint)
        .ok_or_else(|| InlineError::NoEntrypoint { of: key.clone() })?;
    let known: Vec<&str> = closure::templates_of(spec)
        .filter_map(|t| t.get("name").and_then(Value::as_str))
        .collect();
    if known.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(InlineError::NoTemplate {
        of: key.clone(),
        name: name.to_owned(),
        known: known.join(", "),
    })
}

/// A parameter with a value.
fn parameter(name: &str, value: impl Into<Value>) -> Value {
    json!({"name": name, "value": value.into()})
}

/// A field that is an object, made if it is not there; `None` if it is something else.
fn object_mut<'a>(of: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    let value = of
        .entry(field)
        .and_modify(|v| {
            if v.is_null() {
                *v = json!({});
            }
        })
        .or_insert_with(|| json!({}));
    value.as_object_mut()
}

/// A field that is a list, made if it is not there; `None` if it is something else.
fn list_mut<'a>(of: &'a mut Object, field: &str) -> Option<&'a mut Vec<Value>> {
    let value = of
        .entry(field)
        .and_modify(|v| {
            if v.is_null() {
                *v = json!([]);
            }
        })
        .or_insert_with(|| json!([]));
    value.as_array_mut()
}

/// A field that says something.
fn set<'a>(of: &'a Object, field: &str) -> Option<&'a Value> {
    of.get(field).filter(|v| !v.is_null())
}

#[cfg(test)]
mod tests;
