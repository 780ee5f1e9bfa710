//! Why a hook's Task cannot be run, told before the night it is needed.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    api::upgrade_job_hook::TaskRef,
    engine::native::{Lookup, TemplateKey},
};

/// A Task that a hook cannot run. Every message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskProblem {
    /// There is none.
    #[error("there is no {of} in namespace {namespace}: create it, or correct spec.taskRef")]
    Absent {
        /// Which.
        of: TemplateKey,
        /// Where it was looked for.
        namespace: String,
    },
    /// The cluster does not know the kind.
    #[error("the API server has no kind Task of tekton.dev: install Tekton Pipelines")]
    KindAbsent,
    /// Parameters of it have no value.
    #[error("{of} needs a value for {names}: add it to spec.taskRef.arguments")]
    Missing {
        /// Which.
        of: TemplateKey,
        /// The parameters.
        names: String,
    },
    /// It does not have what the hook gives it.
    #[error("{of} has no parameter {names}: correct spec.taskRef.arguments")]
    Unknown {
        /// Which.
        of: TemplateKey,
        /// The arguments.
        names: String,
    },
    /// A hook gives texts only.
    #[error(
        "parameter {name} of {of} is of type {type_}, and hooks give texts only: use a Task that takes a text"
    )]
    NotText {
        /// Which.
        of: TemplateKey,
        /// The parameter.
        name: String,
        /// Its type.
        type_: String,
    },
    /// Nobody could say what the workspace is.
    #[error(
        "{of} needs the workspace {name}, which hooks cannot give: make it optional, or use a volume of the Task"
    )]
    Workspace {
        /// Which.
        of: TemplateKey,
        /// The workspace.
        name: String,
    },
}

/// Why a hook of this namespace cannot run its Task; `None` if it can, or if nobody can tell: a Task that the operator may
/// not read may be one that Tekton may.
///
/// Rules: `ValidateResolvedTask` and `workspace.ValidateBindings` of Tekton, which fail the TaskRun for the same reasons.
/// An argument that the Task does not have is no failure there, but it is a mistake.
pub fn of(task: &TaskRef, namespace: &str, lookup: Option<&Lookup>) -> Option<TaskProblem> {
    let of = TemplateKey::of_task(task);
    let spec = match lookup? {
        Lookup::Found(spec) => spec,
        Lookup::Absent => {
            let namespace = task.namespace.as_deref().unwrap_or(namespace).to_owned();
            return Some(TaskProblem::Absent { of, namespace });
        }
        Lookup::KindAbsent => return Some(TaskProblem::KindAbsent),
        Lookup::Forbidden(_) | Lookup::Refused(_) => return None,
    };
    let list = |key: &str| spec[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let declared: Vec<Parameter<'_>> = list("params").iter().filter_map(Parameter::read).collect();
    let given: BTreeSet<&str> = task.arguments.iter().map(|a| a.name.as_str()).collect();
    let known: BTreeSet<&str> = declared.iter().map(|p| p.name).collect();
    let unknown: Vec<&str> = given.difference(&known).copied().collect();
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        return Some(TaskProblem::Unknown { of, names });
    }
    if let Some(odd) = declared
        .iter()
        .find(|p| p.is_asked(&given) && p.type_ != "string")
    {
        let (name, type_) = (odd.name.to_owned(), odd.type_.to_owned());
        return Some(TaskProblem::NotText { of, name, type_ });
    }
    let missing: Vec<&str> = declared
        .iter()
        .filter(|p| !p.has_default && !given.contains(p.name))
        .map(|p| p.name)
        .collect();
    if !missing.is_empty() {
        let names = missing.join(", ");
        return Some(TaskProblem::Missing { of, names });
    }
    let needed = list("workspaces").iter().find(|w| w["optional"] != true)?;
    let name = needed["name"].as_str().unwrap_or_default().to_owned();
    Some(TaskProblem::Workspace { of, name })
}

struct Parameter<'a> {
    name: &'a str,
    type_: &'a str,
    has_default: bool,
}

impl<'a> Parameter<'a> {
    /// As Tekton reads it: without a type, it is that of the default, or `object` where there are properties
    /// (`ParamSpec.setDefaultsForProperties` and `SetDefaults`).
    fn read(spec: &'a Value) -> Option<Self> {
        let default = spec.get("default").filter(|d| !d.is_null());
        let implied = match default {
            Some(Value::Array(_)) => "array",
            Some(Value::Object(_)) => "object",
            Some(_) | None if spec.get("properties").is_some_and(|p| !p.is_null()) => "object",
            Some(_) | None => "string",
        };
        Some(Self {
            name: spec["name"].as_str()?,
            type_: spec["type"].as_str().filter(|t| !t.is_empty()).unwrap_or(implied),
            has_default: default.is_some(),
        })
    }

    /// Whether the hook gives its value, or would have to.
    fn is_asked(&self, given: &BTreeSet<&str>) -> bool {
        given.contains(self.name) || !self.has_default
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn task(arguments: &[&str]) -> TaskRef {
        let arguments: Vec<Value> = arguments
            .iter()
            .map(|a| json!({"name": a, "value": "v"}))
            .collect();
        serde_json::from_value(json!({"name": "notify", "arguments": arguments})).unwrap()
    }

    fn params(params: &Value) -> Lookup {
        Lookup::Found(json!({"params": params}))
    }

    #[rstest]
    #[case::no_parameters(&[], Lookup::Found(json!({"steps": []})))]
    #[case::defaults(&[], params(&json!([{"name": "a", "default": ""}, {"name": "b", "default": ["x"]}])))]
    #[case::given(&["a"], params(&json!([{"name": "a"}, {"name": "b", "type": "string", "default": "x"}])))]
    #[case::workspace_that_may_lack(&[], Lookup::Found(json!({"workspaces": [{"name": "w", "optional": true}]})))]
    #[case::not_ours_to_read(&["a"], Lookup::Forbidden("no".to_owned()))]
    fn a_task_can_be_run(#[case] arguments: &[&str], #[case] lookup: Lookup) {
        assert_eq!(of(&task(arguments), "ns", Some(&lookup)), None);
    }

    #[rstest]
    #[case(&[], Lookup::Absent, "there is no Task notify in namespace ns: create it, or correct spec.taskRef")]
    #[case(&[], Lookup::KindAbsent, "the API server has no kind Task of tekton.dev: install Tekton Pipelines")]
    #[case(&["a"], params(&json!([])), "Task notify has no parameter a: correct spec.taskRef.arguments")]
    #[case(&["b"], params(&json!([{"name": "a"}, {"name": "b"}, {"name": "c"}])), "Task notify needs a value for a, c: add it to spec.taskRef.arguments")]
    #[case(&["a"], params(&json!([{"name": "a", "type": "array"}])), "parameter a of Task notify is of type array, and hooks give texts only: use a Task that takes a text")]
    #[case(&[], params(&json!([{"name": "a", "properties": {"b": {}}}])), "parameter a of Task notify is of type object, and hooks give texts only: use a Task that takes a text")]
    #[case(&[], Lookup::Found(json!({"workspaces": [{"name": "o", "optional": true}, {"name": "w"}]})), "Task notify needs the workspace w, which hooks cannot give: make it optional, or use a volume of the Task")]
    fn a_task_that_cannot_be_run_says_why(
        #[case] arguments: &[&str],
        #[case] lookup: Lookup,
        #[case] expected: &str,
    ) {
        let problem = of(&task(arguments), "ns", Some(&lookup)).unwrap();
        assert_eq!(problem.to_string(), expected);
    }

    #[test]
    fn a_task_elsewhere_is_named_with_its_namespace() {
        let elsewhere = TaskRef {
            namespace: Some("ops".to_owned()),
            ..task(&[])
        };
        let problem = of(&elsewhere, "ns", Some(&Lookup::Absent)).unwrap();
        assert_eq!(
            problem.to_string(),
            "there is no Task notify in namespace ops: create it, or correct spec.taskRef"
        );
    }
}
