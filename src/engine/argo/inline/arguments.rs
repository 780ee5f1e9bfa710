//! Arguments of a hook: inputs of the entry template, and parameters of the workflow that its WorkflowTemplate would be.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{EVENT, InlineError, JOB, Object, Place, closure::Copied, parameter, set};
use crate::{
    api::upgrade_job_hook::TemplateRef,
    engine::{argo::text, native::TemplateKey},
};

/// How templates refer to parameters of the workflow.
const REFERENCE: &str = "workflow.parameters";

/// Where the arguments of a hook go.
pub struct Arguments {
    /// Parameters for the call of the entry template.
    pub of_entry: Vec<Value>,
    /// Parameters for our Workflow.
    pub of_workflow: Vec<Value>,
    /// The entry template takes the event, and the hook gives it no other.
    pub takes_event: bool,
    /// The same for the job.
    pub takes_job: bool,
}

/// Sorts the arguments of a hook, and gives the parameters of the workflow names of their own in the templates.
pub fn of(
    reference: &TemplateRef,
    of: &TemplateKey,
    spec: &Object,
    entry: &str,
    inputs: &Value,
    templates: &mut [Copied],
    place: &Place<'_>,
) -> Result<Arguments, InlineError> {
    let given = Given::of(reference)?;
    let declared = inputs.get("parameters").and_then(Value::as_array);
    let declared: Vec<&Value> = declared.into_iter().flatten().collect();
    let global = spec.get("arguments").and_then(|a| a.get("parameters"));
    let global: Vec<&Value> = global.and_then(Value::as_array).into_iter().flatten().collect();

    let names: BTreeSet<&str> = declared.iter().chain(&global).filter_map(|p| name(p)).collect();
    if let Some(unknown) = given.0.iter().map(|(name, _)| *name).find(|n| !names.contains(n)) {
        return Err(InlineError::UnknownArgument {
            of: of.clone(),
            template: entry.to_owned(),
            name: unknown.to_owned(),
            known: listed(&names),
        });
    }
    needs_no_artifact(of, entry, inputs)?;
    let used = rename_references(templates, &global, of, place)?;
    let mut of_workflow = Vec::new();
    for parameter in &global {
        let Some(name) = name(parameter) else { continue };
        match (given.value(name), has_value(parameter)) {
            (Some(value), _) => of_workflow.push(super::parameter(&own_name(place, name), value)),
            (None, true) => of_workflow.push(with_name(parameter, &own_name(place, name))),
            (None, false) if used.contains(name) => return Err(missing(of, name)),
            (None, false) => {}
        }
    }
    let mut all = Arguments {
        of_entry: Vec::new(),
        of_workflow,
        takes_event: false,
        takes_job: false,
    };
    for declared in declared {
        let Some(name) = name(declared) else { continue };
        match given.value(name) {
            Some(value) => all.of_entry.push(parameter(name, value)),
            None if name == EVENT => all.takes_event = true,
            None if name == JOB => all.takes_job = true,
            None if has_value(declared) || set_default(declared) => {}
            None => return Err(missing(of, name)),
        }
    }
    Ok(all)
}

/// The arguments of a hook. They are taken as they are: Argo must find no variable in them.
struct Given<'a>(Vec<(&'a str, String)>);

impl<'a> Given<'a> {
    fn of(reference: &'a TemplateRef) -> Result<Self, InlineError> {
        let mut all: Vec<(&str, String)> = Vec::new();
        for argument in &reference.arguments {
            if all.iter().any(|(name, _)| *name == argument.name) {
                return Err(InlineError::ArgumentTwice {
                    name: argument.name.clone(),
                });
            }
            all.push((&argument.name, text::without_variables(&argument.value)));
        }
        Ok(Self(all))
    }

    fn value(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(n, _)| *n == name)?;
        Some(value)
    }
}

fn missing(of: &TemplateKey, name: &str) -> InlineError {
    InlineError::MissingArgument {
        of: of.clone(),
        name: name.to_owned(),
    }
}

fn listed(names: &BTreeSet<&str>) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

fn name(of: &Value) -> Option<&str> {
    of.get("name").and_then(Value::as_str)
}

/// Name of a template, for messages.
pub fn name_of(body: &Object) -> String {
    set(body, "name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn has_value(parameter: &Value) -> bool {
    ["value", "valueFrom"]
        .iter()
        .any(|f| parameter.get(f).is_some_and(|v| !v.is_null()))
}

fn set_default(parameter: &Value) -> bool {
    parameter.get("default").is_some_and(|v| !v.is_null())
}

fn with_name(parameter: &Value, name: &str) -> Value {
    let mut renamed = parameter.clone();
    if let Some(fields) = renamed.as_object_mut() {
        fields.insert("name".to_owned(), json!(name));
    }
    renamed
}

fn needs_no_artifact(of: &TemplateKey, entry: &str, inputs: &Value) -> Result<(), InlineError> {
    let artifacts = inputs.get("artifacts").and_then(Value::as_array);
    for artifact in artifacts.into_iter().flatten().filter_map(Value::as_object) {
        let says_where = |field: &str| {
            !matches!(
                field,
                "name" | "path" | "mode" | "recurseMode" | "archive" | "optional" | "subPath" | "deleted"
            )
        };
        let optional = set(artifact, "optional").and_then(Value::as_bool) == Some(true);
        if !optional && !artifact.keys().any(|f| says_where(f)) {
            return Err(InlineError::MissingArtifact {
                of: of.clone(),
                template: entry.to_owned(),
                name: set(artifact, "name")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
            });
        }
    }
    Ok(())
}

/// Without hyphens: Argo's expressions would subtract.
fn own_name(place: &Place<'_>, name: &str) -> String {
    format!("hook{}_{name}", place.number)
}

/// Gives every reference to a parameter of the workflow its name in our Workflow; returns those that are referred to.
fn rename_references(
    templates: &mut [Copied],
    declared: &[&Value],
    of: &TemplateKey,
    place: &Place<'_>,
) -> Result<BTreeSet<String>, InlineError> {
    let known: BTreeSet<&str> = declared.iter().filter_map(|p| name(p)).collect();
    let mut used = BTreeSet::new();
    for template in templates {
        for value in template.body.values_mut() {
            rename_in(value, &mut |name| {
                if !known.contains(name) {
                    return Err(InlineError::UndeclaredParameter {
                        of: of.clone(),
                        name: name.to_owned(),
                    });
                }
                used.insert(name.to_owned());
                Ok(own_name(place, name))
            })?;
        }
    }
    Ok(used)
}

type Rename<'a> = dyn FnMut(&str) -> Result<String, InlineError> + 'a;

fn rename_in(value: &mut Value, rename: &mut Rename<'_>) -> Result<(), InlineError> {
    match value {
        Value::String(text) => {
            if text.contains(REFERENCE) {
                *text = renamed(text, rename)?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|v| rename_in(v, rename)),
        Value::Object(fields) => fields.values_mut().try_for_each(|v| rename_in(v, rename)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Replaces `workflow.parameters.x`, `workflow.parameters['x']` and `workflow.parameters["x"]`.
fn renamed(text: &str, rename: &mut Rename<'_>) -> Result<String, InlineError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(REFERENCE) {
        out.push_str(before);
        out.push_str(REFERENCE);
        let opening = [".", "['", "[\""].into_iter().find(|o| after.starts_with(o));
        let Some((opening, tail)) = opening.and_then(|o| Some((o, after.strip_prefix(o)?))) else {
            rest = after;
            continue;
        };
        let end = tail
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
            .unwrap_or(tail.len());
        let (name, tail) = tail.split_at(end);
        out.push_str(opening);
        if !name.is_empty() {
            out.push_str(&rename(name)?);
        }
        rest = tail;
    }
    Ok(out + rest)
}
