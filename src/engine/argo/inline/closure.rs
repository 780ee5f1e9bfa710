//! The templates that a template calls, and the calls themselves.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ENVIRONMENT, InlineError, Object, object_mut, parameter, set};
use crate::{
    api::names,
    engine::native::{TemplateKey, TemplateKind},
};

/// Longest name of a template that Argo takes is 128; pods are named after it, too.
const MAX_NAME: usize = 100;

/// A template, copied.
#[derive(Clone, Debug, PartialEq)]
pub struct Copied {
    /// Its name in the WorkflowTemplate.
    pub name: String,
    /// What it says.
    pub body: Object,
}

/// The templates of a WorkflowTemplate.
pub fn templates_of(spec: &Object) -> impl Iterator<Item = &Object> {
    let all = spec.get("templates").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_object)
}

/// The entry template and all that it calls, directly or not. References to the same WorkflowTemplate become local ones; to
/// others they stay.
pub fn collect(of: &TemplateKey, spec: &Object, entry: &str) -> Result<Vec<Copied>, InlineError> {
    let known: BTreeMap<&str, &Object> = templates_of(spec)
        .filter_map(|t| Some((t.get("name")?.as_str()?, t)))
        .collect();
    let mut copied: Vec<Copied> = Vec::new();
    let mut due = vec![(entry.to_owned(), entry.to_owned())];
    while let Some((from, name)) = due.pop() {
        if copied.iter().any(|c| c.name == name) {
            continue;
        }
        let body = *known.get(name.as_str()).ok_or_else(|| InlineError::Dangling {
            of: of.clone(),
            from,
            to: name.clone(),
        })?;
        let mut body = body.clone();
        each_reference(&mut body, &mut |reference| {
            make_local(of, reference);
            if let Some(to) = local_name(reference) {
                due.push((name.clone(), to.to_owned()));
            }
        });
        copied.push(Copied { name, body });
    }
    Ok(copied)
}

/// The copies under names of our own; returns that of the entry, too.
pub fn rename(
    templates: Vec<Copied>,
    entry: &str,
    prefix: &str,
    taken: &mut BTreeSet<String>,
) -> (String, Vec<Value>) {
    let mut names = BTreeMap::new();
    for template in &templates {
        let wanted = names::fit(&format!("{prefix}-{}", template.name), MAX_NAME);
        let mut free = wanted.clone();
        let mut number = 2;
        while !taken.insert(free.clone()) {
            free = format!("{wanted}-{number}");
            number += 1;
        }
        names.insert(template.name.clone(), free);
    }
    let new = |name: &str| names.get(name).cloned().unwrap_or_else(|| name.to_owned());
    let renamed = templates
        .into_iter()
        .map(|Copied { name, mut body }| {
            each_reference(&mut body, &mut |reference| {
                if let Some(name) = local_name(reference).map(new) {
                    reference.set_name(&name);
                }
            });
            body.insert("name".to_owned(), json!(new(&name)));
            Value::Object(body)
        })
        .collect();
    (new(entry), renamed)
}

/// Passes the environment on to every template that is called here and is one of the copies.
pub fn pass_environment(body: &mut Object) {
    let value = format!("{{{{inputs.parameters.{ENVIRONMENT}}}}}");
    each_call(body, &mut |call| {
        let is_local = set(call, "template").is_some_and(|t| t.as_str().is_some_and(|t| !t.is_empty()));
        if is_local {
            add_argument(call, &value);
        }
        let Some(Value::Object(hooks)) = call.get_mut("hooks") else {
            return;
        };
        for (name, hook) in hooks {
            // What runs at the exit of a task gets the task's own arguments, unless it has some.
            let inherits = name == "exit" && hook.get("arguments").is_none_or(Value::is_null);
            if let Value::Object(hook) = hook
                && set(hook, "template").is_some()
                && !inherits
            {
                add_argument(hook, &value);
            }
        }
    });
}

fn add_argument(call: &mut Object, value: &str) {
    if let Some(arguments) = object_mut(call, "arguments")
        && let Some(parameters) = super::list_mut(arguments, "parameters")
    {
        parameters.push(parameter(ENVIRONMENT, value));
    }
}

/// Every step and task that a template calls, those of a template within a call too.
pub fn each_call(body: &mut Object, f: &mut dyn FnMut(&mut Object)) {
    if let Some(Value::Array(groups)) = body.get_mut("steps") {
        for group in groups {
            match group {
                Value::Array(steps) => {
                    for step in steps {
                        call(step, f);
                    }
                }
                one => call(one, f),
            }
        }
    }
    if let Some(Value::Array(tasks)) = body.get_mut("dag").and_then(|d| d.get_mut("tasks")) {
        for task in tasks {
            call(task, f);
        }
    }
}

fn call(value: &mut Value, f: &mut dyn FnMut(&mut Object)) {
    let Value::Object(call) = value else { return };
    f(call);
    if let Some(Value::Object(within)) = call.get_mut("inline") {
        each_call(within, f);
    }
}

/// Where a call says what it calls.
enum Reference<'a> {
    /// `template` or `templateRef` of a call or of a hook in it.
    Call(&'a mut Object),
    /// `onExit` of a call.
    OnExit(&'a mut Value),
}

impl Reference<'_> {
    fn set_name(&mut self, name: &str) {
        match self {
            Self::Call(call) => {
                call.insert("template".to_owned(), json!(name));
            }
            Self::OnExit(value) => **value = json!(name),
        }
    }
}

fn local_name<'a>(reference: &'a Reference<'_>) -> Option<&'a str> {
    let name = match reference {
        Reference::Call(call) => call.get("template").and_then(Value::as_str),
        Reference::OnExit(value) => value.as_str(),
    };
    name.filter(|n| !n.is_empty())
}

/// A reference to the WorkflowTemplate that is copied is one to a copy.
fn make_local(of: &TemplateKey, reference: &mut Reference<'_>) {
    let Reference::Call(call) = reference else { return };
    let Some(Value::Object(to)) = call.get("templateRef") else {
        return;
    };
    let text = |field: &str| to.get(field).and_then(Value::as_str).unwrap_or_default();
    let of_cluster = to.get("clusterScope").and_then(Value::as_bool);
    let kind = TemplateKind::of_argo(of_cluster.unwrap_or_default());
    if text("name") == of.name && kind == of.kind {
        let template = text("template").to_owned();
        call.remove("templateRef");
        call.insert("template".to_owned(), json!(template));
    }
}

fn each_reference(body: &mut Object, f: &mut dyn FnMut(&mut Reference<'_>)) {
    each_call(body, &mut |call| {
        if let Some(exit) = call.get_mut("onExit") {
            f(&mut Reference::OnExit(exit));
        }
        if let Some(Value::Object(hooks)) = call.get_mut("hooks") {
            for hook in hooks.values_mut().filter_map(Value::as_object_mut) {
                f(&mut Reference::Call(hook));
            }
        }
        f(&mut Reference::Call(call));
    });
}
