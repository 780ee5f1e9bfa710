//! What hooks need on templates that become pods: retries after a drain, and the environment.

use serde_json::{Value, json};

use super::{ENVIRONMENT, InlineError, Object, closure, list_mut, object_mut, set};
use crate::engine::native::TemplateKey;

/// Types of templates that run as a pod of their own.
const POD_TYPES: [&str; 5] = ["container", "script", "containerSet", "resource", "data"];

/// How often a pod that an upgrade killed is tried again. A node is drained once in an upgrade, but the next pod may land on
/// one whose turn is yet to come.
const RETRIES: &str = "10";
/// What a drain looks like, told apart from a hook that fails. Read in Argo v4.1.4 (`inferFailedReason`,
/// `assessNodeStatus`) and seen on the real one:
/// - an eviction ends the container by SIGTERM (143) or SIGKILL (137): Failed, `main: Error (exit code 143)`;
/// - a pod that is gone before its end was seen is Error, `pod deleted`;
/// - a node that shuts down or is short of something leaves its own message and perhaps no exit code.
///
/// What the hook is to blame for looks alike and is not tried again: more memory than allowed, its own deadline, its disk.
const IS_DISRUPTION: &str = "(lastRetry.status == \"Error\" || asInt(lastRetry.exitCode) in [137, 143] || \
     lastRetry.message matches \"node shutdown|[Ee]vict|[Pp]reempt|low on resource|[Nn]ode.*(lost|no longer exists)|pod deleted\") \
     && !(lastRetry.message matches \"OOMKilled|deadline|exceeds the\")";

/// Whether a template runs as a pod.
pub fn is_pod(body: &Object) -> bool {
    POD_TYPES.iter().any(|t| set(body, t).is_some())
}

/// The upgrade drains the node below a hook's pod: that is no failure of the hook. A template with a rule of its own keeps it.
///
/// On the pod, not on what calls it: there the cause would be lost (`child … failed`).
pub fn survive_drains(body: &mut Object) {
    if is_pod(body) && set(body, "retryStrategy").is_none() {
        body.insert(
            "retryStrategy".to_owned(),
            json!({
                "limit": RETRIES,
                "retryPolicy": "Always",
                "backoff": {"duration": "10s"},
                "expression": IS_DISRUPTION,
            }),
        );
    }
    each_inline(body, &mut survive_drains);
}

/// Gives every container the environment of hooks, out of the ConfigMap that the input [`ENVIRONMENT`] names.
pub fn add_environment(of: &TemplateKey, name: &str, body: &mut Object) -> Result<(), InlineError> {
    let wrong = |field: &'static str| InlineError::Shape {
        of: of.clone(),
        template: name.to_owned(),
        field,
    };
    closure::pass_environment(body);
    add_to_containers(body);
    let inputs = object_mut(body, "inputs").ok_or_else(|| wrong("inputs"))?;
    let parameters = list_mut(inputs, "parameters").ok_or_else(|| wrong("inputs.parameters"))?;
    if parameters
        .iter()
        .any(|p| p.get("name").and_then(Value::as_str) == Some(ENVIRONMENT))
    {
        return Err(InlineError::Reserved {
            of: of.clone(),
            template: name.to_owned(),
            name: ENVIRONMENT,
        });
    }
    parameters.push(json!({"name": ENVIRONMENT}));
    Ok(())
}

fn add_to_containers(body: &mut Object) {
    for field in ["container", "script"] {
        if let Some(Value::Object(container)) = body.get_mut(field) {
            add_to(container);
        }
    }
    let set = body.get_mut("containerSet").and_then(|c| c.get_mut("containers"));
    each_container(set);
    for field in ["initContainers", "sidecars"] {
        each_container(body.get_mut(field));
    }
    // A template within a call has no inputs: those of the template around it are put in.
    each_inline(body, &mut add_to_containers);
}

fn each_container(list: Option<&mut Value>) {
    let list = list.and_then(Value::as_array_mut);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
        .for_each(add_to);
}

/// Ours win over the template's of the same name, as in Jobs; in a pod `env` would win over `envFrom`.
fn add_to(container: &mut Object) {
    if let Some(Value::Array(env)) = container.get_mut("env") {
        env.retain(|v| !v.get("name").and_then(Value::as_str).is_some_and(is_ours));
    }
    if let Some(sources) = list_mut(container, "envFrom") {
        sources.push(json!({"configMapRef": {"name": format!("{{{{inputs.parameters.{ENVIRONMENT}}}}}")}}));
    }
}

/// Names of variables that every hook has, or may have.
fn is_ours(name: &str) -> bool {
    let prefixes = [
        "EVENT_",
        "META_",
        "JOB_metadata_",
        "JOB_spec_",
        "JOB_status_",
        "JOB_kind",
        "JOB_apiVersion",
    ];
    ["EVENT", "JOB", "META"].contains(&name) || prefixes.iter().any(|p| name.starts_with(p))
}

/// The templates that are written within the calls of a template.
pub fn each_inline(body: &mut Object, f: &mut dyn FnMut(&mut Object)) {
    let groups = body.get_mut("steps").and_then(Value::as_array_mut);
    for group in groups.into_iter().flatten() {
        for step in group.as_array_mut().into_iter().flatten() {
            inline_of(step, f);
        }
    }
    let tasks = body.get_mut("dag").and_then(|d| d.get_mut("tasks"));
    for task in tasks.and_then(Value::as_array_mut).into_iter().flatten() {
        inline_of(task, f);
    }
}

fn inline_of(call: &mut Value, f: &mut dyn FnMut(&mut Object)) {
    if let Some(Value::Object(within)) = call.get_mut("inline") {
        f(within);
    }
}
