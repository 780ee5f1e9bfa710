//! The environment variables of a hook's containers.
//!
//! Names and encoding are those of the seed and the peer: `EVENT`, `JOB` and `META` hold JSON documents, and every leaf
//! of them has a variable of its own whose name is the path joined by `_` and whose value is JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::EnvVar;
use serde_json::{Map, Value, json};

use crate::api::{UpgradeJob, conditions::whole_seconds, upgrade_job_hook::HookEvent};

/// Largest `JOB` in bytes. Linux refuses an environment string of 131,072 bytes (`MAX_ARG_STRLEN`), name, `=` and
/// final NUL included.
pub const MAX_JOB: usize = 100 * 1024;

/// Largest `EVENT` in bytes: reason and message come from other components and may be of any length.
const MAX_EVENT: usize = 32 * 1024;

/// What happened, as hooks see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The event.
    pub name: HookEvent,
    /// When it happened; hooks see whole seconds in UTC.
    pub time: Timestamp,
    /// Why, in one word, such as `TimedOut`; may be empty.
    pub reason: String,
    /// Why, in a sentence; may be empty.
    pub message: String,
    /// The pool that is about to be unpaused, for MachineConfigPoolUnpause.
    pub pool: Option<String>,
}

/// The variables of one hook.
#[derive(Clone, Debug, PartialEq)]
pub struct Environment {
    /// The variables, sorted by name, each name once.
    pub vars: Vec<EnvVar>,
    /// Whether something was left out or cut to keep `JOB` or `EVENT` within its size.
    pub trimmed: bool,
}

/// The variables for `event` of `job`.
///
/// `JOB` leaves out `metadata.managedFields` and `status.plan`, `steps` and `workflow`, and is at most [`MAX_JOB`] bytes.
/// Two paths that become one name (labels `a.b` and `a_b`): the one that needed no replacement wins, then the first in
/// byte order; both are in `JOB`. Empty objects and lists have no variable of their own.
pub fn variables(event: &Event, job: &UpgradeJob, matches_disruptive_hooks: bool) -> Environment {
    variables_within(event, job, matches_disruptive_hooks, MAX_JOB)
}

/// [`variables`] with a `JOB` of at most `max_job` bytes (or the little that is never left out).
pub(super) fn variables_within(
    event: &Event,
    job: &UpgradeJob,
    matches_disruptive_hooks: bool,
    max_job: usize,
) -> Environment {
    let (event, event_trimmed) = shrink(event_document(event), MAX_EVENT, &[Trim::Cut(2048)]);
    let (job, job_trimmed) = shrink(job_document(job), max_job, JOB_TRIMS);
    let meta = json!({"matchesDisruptiveHooks": matches_disruptive_hooks});

    let mut values = BTreeMap::new();
    if let Some(name) = event.get("name") {
        values.insert("EVENT_NAME".to_owned(), name.to_string());
    }
    for (prefix, document) in [("EVENT", &event), ("JOB", &job), ("META", &meta)] {
        values.insert(prefix.to_owned(), document.to_string());
        values.extend(flatten(prefix, document));
    }
    let vars = values
        .into_iter()
        .map(|(name, value)| EnvVar {
            name,
            value: Some(escape(&value)),
            value_from: None,
        })
        .collect();
    Environment {
        vars,
        trimmed: event_trimmed || job_trimmed,
    }
}

/// Protects a value from the kubelet, which expands `$(NAME)` and turns `$$` into `$` in the values of variables.
///
/// Every `$` is doubled, not only one before `(`: a lone `$` before another `$` or before a character outside ASCII
/// would be changed, too.
fn escape(value: &str) -> String {
    value.replace('$', "$$")
}

fn event_document(event: &Event) -> Value {
    let mut document = json!({
        "name": event.name.as_str(),
        "time": whole_seconds(event.time).to_string(),
        "reason": event.reason,
        "message": event.message,
    });
    if let (Some(pool), Some(fields)) = (&event.pool, document.as_object_mut()) {
        fields.insert("pool".to_owned(), json!(pool));
    }
    document
}

fn job_document(job: &UpgradeJob) -> Value {
    // All keys of an UpgradeJob are strings, so this cannot fail.
    let mut document = serde_json::to_value(job).unwrap_or_default();
    for (parent, field) in [
        ("/metadata", "managedFields"),
        ("/status", "plan"),
        ("/status", "steps"),
        ("/status", "workflow"),
    ] {
        remove(&mut document, parent, field);
    }
    document
}

fn remove(document: &mut Value, parent: &str, field: &str) {
    if let Some(Value::Object(fields)) = document.pointer_mut(parent) {
        fields.remove(field);
    }
}

/// A way to make a document smaller.
#[derive(Clone, Copy, Debug)]
enum Trim {
    /// Cut strings to this many characters.
    Cut(usize),
    /// Leave a field out: pointer to its parent, and its name.
    Drop(&'static str, &'static str),
    /// Keep only what identifies the job and its version.
    Identity,
}

/// What goes first when an UpgradeJob is too large: what hooks need least.
const JOB_TRIMS: &[Trim] = &[
    Trim::Cut(4096),
    Trim::Drop("/metadata", "annotations"),
    Trim::Drop("/status", "hookTracker"),
    Trim::Drop("/status", "pausedPools"),
    Trim::Drop("/spec", "config"),
    Trim::Cut(512),
    Trim::Drop("/status", "conditions"),
    Trim::Identity,
];

/// `document` in at most `max` bytes, trimmed step by step, and whether anything was trimmed.
fn shrink(mut document: Value, max: usize, trims: &[Trim]) -> (Value, bool) {
    for (done, trim) in trims.iter().enumerate() {
        if document.to_string().len() <= max {
            return (document, done > 0);
        }
        match *trim {
            Trim::Cut(characters) => cut_strings(&mut document, characters),
            Trim::Drop(parent, field) => remove(&mut document, parent, field),
            Trim::Identity => document = identity(&document),
        }
    }
    (document, !trims.is_empty())
}

fn identity(document: &Value) -> Value {
    let pick = |parent: &str, fields: &[&str]| {
        let picked: Map<String, Value> = fields
            .iter()
            .filter_map(|f| Some(((*f).to_owned(), document.pointer(parent)?.get(*f)?.clone())))
            .collect();
        Value::Object(picked)
    };
    json!({
        "apiVersion": document.get("apiVersion"),
        "kind": document.get("kind"),
        "metadata": pick("/metadata", &["name", "namespace", "uid", "creationTimestamp"]),
        "spec": pick("/spec", &["startAfter", "startBefore", "desiredVersion"]),
        "status": pick("/status", &["phase", "startedAt", "finishedAt"]),
    })
}

fn cut_strings(value: &mut Value, characters: usize) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(characters) {
                text.truncate(end);
                text.push('…');
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|v| cut_strings(v, characters)),
        Value::Object(fields) => fields.values_mut().for_each(|v| cut_strings(v, characters)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// One variable a leaf: name → JSON.
fn flatten(prefix: &str, document: &Value) -> BTreeMap<String, String> {
    let mut leaves = Vec::new();
    collect_leaves(prefix, true, document, &mut leaves);
    // Stable: among the exact names, and among the replaced ones, the order of the document stays.
    leaves.sort_by_key(|leaf| !leaf.exact);
    let mut variables = BTreeMap::new();
    for leaf in leaves {
        variables
            .entry(leaf.name)
            .or_insert_with(|| leaf.value.to_string());
    }
    variables
}

struct Leaf<'a> {
    name: String,
    /// No character of the path had to be replaced.
    exact: bool,
    value: &'a Value,
}

fn collect_leaves<'a>(name: &str, exact: bool, value: &'a Value, leaves: &mut Vec<Leaf<'a>>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                let clean = clean(key);
                let exact = exact && clean == *key;
                collect_leaves(&format!("{name}_{clean}"), exact, field, leaves);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_leaves(&format!("{name}_{index}"), exact, item, leaves);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => leaves.push(Leaf {
            name: name.to_owned(),
            exact,
            value,
        }),
    }
}

fn clean(key: &str) -> String {
    key.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}
