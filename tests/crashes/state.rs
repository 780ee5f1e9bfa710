//! What a cluster is at the end, without what may differ after a fault.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use openshift_upgrade_operator::api::labels;

/// Kinds that are not compared. Events: one that cannot be written is lost, by design (`controller/events.rs`), and one
/// that is told again by the next operator has another time. Leases: times only.
const LEFT_OUT: [&str; 2] = ["events", "leases"];

/// Fields that are not compared, wherever they are:
/// - of metadata, what the API server numbers: a write more or less moves all that follow;
/// - times: after a fault everything is up to a minute later. Times that were written by people (`startAfter`, `from`,
///   `nextPossibleSchedules`) have other names, and are compared.
const VOLATILE: [&str; 16] = [
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "lastTransitionTime",
    "lastProbeTime",
    "lastUpdateTime",
    "lastHeartbeatTime",
    "startTime",
    "startedTime",
    "startedAt",
    "completionTime",
    "finishedAt",
    "decidedUntil",
    "since",
    "managedupgrade.appuio.io/channel-changed-at",
    "simulated.openshift.io/since",
];

/// Before the times in texts that are not times of the plan: when the job really started, and when it paused a pool.
const TOLD_TIMES: [&str; 2] = ["Upgrade started at ", "(paused since "];

/// The kind without a status subresource: its generation counts the writes of its status, too, and not only what is wanted of it.
const WITHOUT_STATUS: &str = "workflows/";

/// The objects, by kind and name, as they are to be compared.
pub fn comparable(objects: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let aliases = Aliases::of(objects);
    let kept = objects.iter().filter(|(key, _)| {
        let kind = key.split('/').next().unwrap_or_default();
        !LEFT_OUT.contains(&kind)
    });
    let kept = kept.map(|(key, object)| {
        let mut object = aliases.without_volatile(object);
        if key.starts_with(WITHOUT_STATUS) {
            remove(&mut object, "metadata.generation");
        }
        (aliases.apply(key), object)
    });
    kept.collect()
}

/// UIDs are numbered by the API server, also for creates that are refused, and the names of hooks' Jobs contain a hash of
/// one: both are replaced by what they stand for. That a name or an owner is the right object's is thus compared.
struct Aliases(Vec<(String, String)>);

impl Aliases {
    fn of(objects: &BTreeMap<String, Value>) -> Self {
        let mut all = Vec::new();
        for (key, object) in objects {
            let mut name = key.clone();
            let labels_of = |key: &str| object["metadata"]["labels"][key].as_str().unwrap_or_default();
            if key.starts_with("jobs/") && !labels_of(labels::HOOK).is_empty() {
                let parts = [
                    labels::HOOK_JOB,
                    labels::HOOK,
                    labels::HOOK_EVENT,
                    labels::HOOK_TRACKING_KEY,
                ];
                name = format!("hook Job {:?}", parts.map(labels_of));
                let full = object["metadata"]["name"].as_str().unwrap_or_default();
                all.push((full.to_owned(), name.clone()));
            }
            if let Some(uid) = object["metadata"]["uid"].as_str() {
                all.push((uid.to_owned(), format!("uid of {name}")));
            }
        }
        Self(all)
    }

    fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.0 {
            if text.contains(from.as_str()) {
                text = text.replace(from.as_str(), to);
            }
        }
        for told in TOLD_TIMES {
            if let Some(at) = text.find(told)
                && let Some(length) = text[at..].find(" UTC")
            {
                text.replace_range(at..at + length, told);
            }
        }
        text
    }

    fn without_volatile(&self, value: &Value) -> Value {
        match value {
            Value::Object(map) if is_environment(map) => self.environment(map),
            Value::Object(map) => {
                let kept = map.iter().filter(|(key, _)| !VOLATILE.contains(&key.as_str()));
                let entries = kept.map(|(key, value)| (self.apply(key), self.without_volatile(value)));
                Value::Object(entries.collect())
            }
            Value::Array(items) => {
                let kept = items.iter().filter(|item| !is_of_the_moment(item));
                kept.map(|item| self.without_volatile(item)).collect()
            }
            Value::String(text) => Value::String(self.apply(text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// An environment variable of a hook: `JOB` and the like are JSON, and `JOB_status_startedAt` one value of it.
    fn environment(&self, map: &Map<String, Value>) -> Value {
        let name = map["name"].as_str().unwrap_or_default();
        let field = name.rsplit('_').next().unwrap_or_default();
        let mut map = map.clone();
        if VOLATILE.contains(&field) {
            map.insert("value".to_owned(), Value::Null);
        } else if let Some(text) = map["value"].as_str()
            && let Ok(mut json @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str::<Value>(text)
        {
            for path in OF_THE_MOMENT {
                let (of, fields) = path.split_once('.').unwrap_or_default();
                if of == name {
                    remove(&mut json, fields);
                }
            }
            map.insert("value".to_owned(), self.without_volatile(&json));
        } else if let Some(text) = map["value"].as_str() {
            map.insert("value".to_owned(), Value::String(self.apply(text)));
        }
        Value::Object(map)
    }
}

/// What a hook is told of the moment at which its Job is created, and not of the upgrade: if that takes a second attempt, the
/// UpgradeJob's message is the next one, others of its hooks have ended, and at the end its finalizer is gone.
const OF_THE_MOMENT: [&str; 6] = [
    "EVENT.time",
    "EVENT.message",
    "JOB.metadata.finalizers",
    "JOB.status.message",
    "JOB.status.progress",
    "JOB.status.hookTracker",
];

fn is_of_the_moment(item: &Value) -> bool {
    let name = item["name"].as_str().unwrap_or_default();
    let is_it = |path: &str| {
        let rest = name.strip_prefix(path.replace('.', "_").as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    item.as_object().is_some_and(is_environment) && OF_THE_MOMENT.into_iter().any(is_it)
}

fn remove(value: &mut Value, path: &str) {
    match path.split_once('.') {
        Some((field, rest)) => value.get_mut(field).into_iter().for_each(|v| remove(v, rest)),
        None => {
            if let Some(map) = value.as_object_mut() {
                map.remove(path);
            }
        }
    }
}

fn is_environment(map: &Map<String, Value>) -> bool {
    map.len() == 2
        && map.get("name").is_some_and(Value::is_string)
        && map.get("value").is_some_and(Value::is_string)
}

/// Where two values differ, one line each, at most `limit`.
pub fn differences(
    expected: &BTreeMap<String, Value>,
    actual: &BTreeMap<String, Value>,
    limit: usize,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, value) in expected {
        match actual.get(key) {
            None => lines.push(format!("{key}: is not there")),
            Some(other) => differ(key, value, other, &mut lines),
        }
    }
    let new = actual.keys().filter(|key| !expected.contains_key(*key));
    lines.extend(new.map(|key| format!("{key}: should not be there")));
    lines.truncate(limit);
    lines
}

fn differ(path: &str, expected: &Value, actual: &Value, lines: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let (a, b) = (
                    a.get(key).unwrap_or(&Value::Null),
                    b.get(key).unwrap_or(&Value::Null),
                );
                differ(&format!("{path}.{key}"), a, b, lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                differ(&format!("{path}[{i}]"), a, b, lines);
            }
        }
        (a, b) if a != b => lines.push(format!("{path}: {b} instead of {a}")),
        _ => {}
    }
}
