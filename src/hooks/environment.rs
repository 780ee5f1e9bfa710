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
    let (values, trimmed) = values_within(event, job, matches_disruptive_hooks, max_job);
    let vars = values
        .into_iter()
        .map(|(name, value)| EnvVar {
            name,
            value: Some(escape(&value)),
            value_from: None,
        })
        .collect();
    Environment { vars, trimmed }
}

/// The same as a process in a container sees them, and whether something was trimmed.
pub(super) fn values_within(
    event: &Event,
    job: &UpgradeJob,
    matches_disruptive_hooks: bool,
    max_job: usize,
) -> (BTreeMap<String, String>, bool) {
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
    (values, event_trimmed || job_trimmed)
}

/// Event and job as JSON documents, each in at most `max` bytes (or the little that is never left out).
pub(super) fn documents(event: &Event, job: &UpgradeJob, max: usize) -> (String, String) {
    let (event, _) = shrink(event_document(event), max, &[Trim::Cut(2048), Trim::Cut(512)]);
    let (job, _) = shrink(job_document(job), max, JOB_TRIMS);
    (event.to_string(), job.to_string())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::hooks::fixtures::{event, upgrade_job};

    /// What the kubelet makes of the value of a variable; `mapping` resolves references.
    /// Rule: Kubernetes, third_party/forked/golang/expansion.
    fn kubelet_expand(input: &str, mapping: &dyn Fn(&str) -> String) -> String {
        let mut out = String::new();
        let mut rest = input;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            if let Some(tail) = after.strip_prefix('$') {
                out.push('$');
                rest = tail;
            } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|a| a.split_once(')')) {
                out.push_str(&mapping(name));
                rest = tail;
            } else {
                out.push('$');
                rest = after;
            }
        }
        out + rest
    }

    /// The variables as a process in the container sees them.
    fn seen(environment: &Environment) -> BTreeMap<String, String> {
        let mut seen = BTreeMap::new();
        for var in &environment.vars {
            let value = kubelet_expand(var.value.as_deref().unwrap(), &|_| "EXPANDED".to_owned());
            assert_eq!(
                seen.insert(var.name.clone(), value),
                None,
                "{} is there twice",
                var.name
            );
        }
        seen
    }

    fn parse(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[rstest]
    #[case("EVENT_NAME", r#""Start""#)]
    #[case("EVENT_name", r#""Start""#)]
    #[case("EVENT_time", r#""2021-01-01T21:00:03Z""#)]
    #[case("EVENT_reason", r#""Started""#)]
    #[case("EVENT_message", r#""The upgrade has started""#)]
    #[case("JOB_metadata_name", r#""cluster-upgrade-1609531200-ef11c47""#)]
    #[case("JOB_metadata_labels_my_var_io_info", r#""hello""#)]
    #[case("JOB_spec_desiredVersion_image", r#""quay.io/ocp@sha256:1234""#)]
    #[case("JOB_spec_startAfter", r#""2021-01-01T21:00:00Z""#)]
    #[case("JOB_status_conditions_0_type", r#""Started""#)]
    #[case("META", r#"{"matchesDisruptiveHooks":true}"#)]
    #[case("META_matchesDisruptiveHooks", "true")]
    fn the_documented_variables_are_there(#[case] name: &str, #[case] value: &str) {
        let environment = variables(&event(HookEvent::Start), &upgrade_job(), true);
        assert_eq!(seen(&environment).get(name).map(String::as_str), Some(value));
        assert!(!environment.trimmed);
    }

    #[test]
    fn event_and_job_are_complete_documents() {
        let at_pool = Event {
            pool: Some("worker".to_owned()),
            ..event(HookEvent::MachineConfigPoolUnpause)
        };
        let seen = seen(&variables(&at_pool, &upgrade_job(), false));
        assert_eq!(
            parse(&seen["EVENT"]),
            json!({
                "name": "MachineConfigPoolUnpause", "time": "2021-01-01T21:00:03Z", "reason": "Started",
                "message": "The upgrade has started", "pool": "worker",
            })
        );
        assert_eq!(seen["EVENT_pool"], r#""worker""#);
        let job: UpgradeJob = serde_json::from_str(&seen["JOB"]).unwrap();
        assert_eq!(job, upgrade_job());
    }

    #[test]
    fn an_event_without_pool_has_no_pool_variable() {
        let seen = seen(&variables(&event(HookEvent::Start), &upgrade_job(), false));
        assert!(!seen.contains_key("EVENT_pool"));
    }

    #[test]
    fn the_example_of_the_seed_becomes_json() {
        let seen = seen(&variables(&event(HookEvent::Start), &upgrade_job(), false));
        let argument = r#"{"event": $(EVENT_NAME), "version": $(JOB_spec_desiredVersion_image)}"#;
        let body = kubelet_expand(argument, &|name| seen[name].clone());
        assert_eq!(
            parse(&body),
            json!({"event": "Start", "version": "quay.io/ocp@sha256:1234"})
        );
    }

    #[test]
    fn what_only_the_operator_needs_is_left_out() {
        let mut document = serde_json::to_value(upgrade_job()).unwrap();
        document["metadata"]["managedFields"] = json!([{"manager": "x"}]);
        document["status"]["plan"] = json!({"version": 1});
        document["status"]["steps"] = json!([{"name": "a", "kind": "Hold", "phase": "Running"}]);
        document["status"]["workflow"] = json!({"engine": "argo", "name": "w"});
        let job: UpgradeJob = serde_json::from_value(document).unwrap();
        let environment = variables(&event(HookEvent::Start), &job, false);
        assert_eq!(
            environment,
            variables(&event(HookEvent::Start), &upgrade_job(), false)
        );
    }

    #[rstest]
    #[case(&[("a.b", "dots"), ("a_b", "plain")], "plain")]
    #[case(&[("a-b", "dash"), ("a.b", "dot")], "dash")]
    #[case(&[("a/b", "slash"), ("a-b", "dash")], "dash")]
    fn of_colliding_labels_the_plain_one_wins_then_the_first(
        #[case] labels: &[(&str, &str)],
        #[case] winner: &str,
    ) {
        let mut job = upgrade_job();
        job.metadata.labels = Some(labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect());
        let seen = seen(&variables(&event(HookEvent::Start), &job, false));
        assert_eq!(parse(&seen["JOB_metadata_labels_a_b"]), winner);
        for (key, value) in labels {
            assert_eq!(parse(&seen["JOB"])["metadata"]["labels"][*key], *value);
        }
    }

    #[test]
    fn a_field_and_a_list_item_of_one_name_do_not_make_two_variables() {
        let document = json!({"a": ["item"], "a_0": "field", "a.0": "dot"});
        let variables = flatten("X", &document);
        assert_eq!(
            variables,
            BTreeMap::from([("X_a_0".to_owned(), r#""item""#.to_owned())])
        );
    }

    #[rstest]
    #[case(200_000, "x")]
    #[case(60_000, "\u{1}")]
    #[case(60_000, "🦀")]
    #[case(120_000, "$")]
    fn long_texts_are_trimmed_below_the_limit_of_linux(#[case] count: usize, #[case] text: &str) {
        let mut job = upgrade_job();
        let long = text.repeat(count);
        job.metadata.annotations = Some(BTreeMap::from([("note".to_owned(), long.clone())]));
        job.status.as_mut().unwrap().message = Some(long.clone());
        let event = Event {
            message: long.clone(),
            reason: long,
            ..event(HookEvent::Failure)
        };
        let environment = variables(&event, &job, false);
        assert!(environment.trimmed);
        let seen = seen(&environment);
        for (name, value) in &seen {
            assert!(name.len() + value.len() + 2 < 131_072, "{name} is too long");
            parse(value);
        }
        assert!(seen["JOB"].len() <= MAX_JOB);
        assert!(seen["EVENT"].len() <= MAX_EVENT);
        assert_eq!(
            seen["JOB_metadata_name"],
            r#""cluster-upgrade-1609531200-ef11c47""#
        );
        assert_eq!(seen["JOB_status_conditions_0_type"], r#""Started""#);
    }

    #[test]
    fn many_short_texts_are_trimmed_too_and_the_identity_stays() {
        let mut job = upgrade_job();
        job.metadata.labels = Some(
            (0..20_000)
                .map(|i| (format!("label-{i}"), "x".to_owned()))
                .collect(),
        );
        let environment = variables(&event(HookEvent::Start), &job, false);
        assert!(environment.trimmed);
        let seen = seen(&environment);
        assert!(seen["JOB"].len() <= MAX_JOB);
        assert_eq!(seen["JOB_metadata_uid"], r#""job-uid""#);
        assert_eq!(seen["JOB_spec_desiredVersion_version"], r#""4.6.1""#);
    }

    #[test]
    fn what_just_fits_is_not_trimmed() {
        let mut job = upgrade_job();
        let size = |job: &UpgradeJob| seen(&variables(&event(HookEvent::Start), job, false))["JOB"].len();
        job.metadata.annotations = Some(BTreeMap::from([("a".to_owned(), "x".to_owned())]));
        let filler = MAX_JOB - size(&job) + 1;
        for (length, trimmed) in [(filler, false), (filler + 1, true)] {
            job.metadata.annotations = Some(BTreeMap::from([("a".to_owned(), "x".repeat(length))]));
            assert_eq!(variables(&event(HookEvent::Start), &job, false).trimmed, trimmed);
        }
    }

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                // Letters only: such paths cannot collide.
                prop::collection::btree_map("[a-zA-Z]{1,6}", inner, 0..6)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    /// The leaves by their path, by way of RFC 6901 pointers: another walk than the one under test.
    fn leaves(pointer: &str, value: &Value) -> Vec<String> {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields
                .iter()
                .map(|(k, v)| (format!("{pointer}/{k}"), v))
                .collect(),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(i, v)| (format!("{pointer}/{i}"), v))
                .collect(),
            _ => return vec![pointer.to_owned()],
        };
        children.iter().flat_map(|(p, v)| leaves(p, v)).collect()
    }

    proptest! {
        #[test]
        fn every_leaf_can_be_read_back(document in documents()) {
            let variables = flatten("X", &document);
            let pointers = leaves("", &document);
            prop_assert_eq!(variables.len(), pointers.len());
            for pointer in pointers {
                let name = format!("X{}", pointer.replace('/', "_"));
                prop_assert_eq!(Some(&parse(&variables[&name])), document.pointer(&pointer));
            }
        }

        #[test]
        fn names_are_valid_and_values_survive_the_kubelet(key in any::<String>(), text in "[$()a-zé]{0,20}") {
            let mut job = upgrade_job();
            job.metadata.annotations = Some(BTreeMap::from([(key.clone(), text.clone())]));
            let seen = seen(&variables(&event(HookEvent::Start), &job, false));
            for name in seen.keys() {
                prop_assert!(name.starts_with(|c: char| c.is_ascii_uppercase()));
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
            }
            prop_assert_eq!(&parse(&seen[&format!("JOB_metadata_annotations_{}", clean(&key))]), &text);
            prop_assert_eq!(&parse(&seen["JOB"])["metadata"]["annotations"][&key], &text);
        }
    }
}
