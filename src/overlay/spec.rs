//! Specs of the ClusterVersion: how an overlay is laid over the base, and what tells two specs apart.

use serde_json::{Map, Value};

use crate::{
    api::cluster_version::UpstreamSpec,
    openshift::cluster_version::{ClusterVersion, ClusterVersionSpec},
};

/// Set by jobs and by people, never from Git (the seed: "ignored and set by the UpgradeJob controller").
const DESIRED_UPDATE: &str = "desiredUpdate";
/// Identity of the cluster.
pub const CLUSTER_ID: &str = "clusterID";

/// The overlay over the base: what it does not say, or says with an empty value, stays as in the base. Objects are
/// merged; lists are replaced as a whole.
///
/// Rules of the peer, so that its resources mean the same here: an overlay cannot remove a field.
pub fn merge(base: &UpstreamSpec, overlay: &UpstreamSpec) -> UpstreamSpec {
    let mut merged = base.clone();
    lay_over(&mut merged, overlay);
    tidy(&merged)
}

fn lay_over(base: &mut Map<String, Value>, overlay: &Map<String, Value>) {
    for (key, above) in overlay {
        match (base.get_mut(key), above) {
            (Some(Value::Object(below)), Value::Object(above)) => lay_over(below, above),
            _ if is_empty(above) => {}
            _ => {
                base.insert(key.clone(), above.clone());
            }
        }
    }
}

/// Nothing, as far as the spec is concerned. `false` and 0 are something.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The spec in the one spelling that is written and compared: without `desiredUpdate`, without empty values.
///
/// Within lists only nulls go: an override of a core kind has `group: ""`, and the API server asks for it.
pub fn tidy(spec: &UpstreamSpec) -> UpstreamSpec {
    let mut tidy = without_empty(spec);
    tidy.remove(DESIRED_UPDATE);
    tidy
}

fn without_empty(fields: &Map<String, Value>) -> Map<String, Value> {
    let filled = fields.iter().filter(|(_, value)| !is_empty(value));
    filled
        .map(|(key, value)| {
            let value = match value {
                Value::Object(fields) => Value::Object(without_empty(fields)),
                Value::Array(list) => Value::Array(list.iter().map(without_nulls).collect()),
                other => other.clone(),
            };
            (key.clone(), value)
        })
        .collect()
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(k, v)| (k.clone(), without_nulls(v))).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// The spec of the cluster as it is, tidy.
pub fn of(cluster: &ClusterVersion) -> UpstreamSpec {
    let ClusterVersionSpec {
        cluster_id,
        channel,
        desired_update: _,
        other,
    } = &cluster.spec;
    let mut spec = other.clone();
    spec.insert(CLUSTER_ID.to_owned(), Value::String(cluster_id.clone()));
    spec.insert(
        "channel".to_owned(),
        channel.clone().map_or(Value::Null, Value::String),
    );
    tidy(&spec)
}

/// A text field; empty where it is absent.
pub fn text<'s>(spec: &'s UpstreamSpec, field: &str) -> &'s str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A field of the spec that is to change.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// Name of the field, directly below `spec`.
    pub field: String,
    /// Its value now.
    pub before: Option<Value>,
    /// Its value as it shall be.
    pub after: Option<Value>,
}

/// What makes `after` of `before`, both tidy; sorted by field.
pub fn differences(before: &UpstreamSpec, after: &UpstreamSpec) -> Vec<FieldChange> {
    let mut fields: Vec<&String> = before.keys().chain(after.keys()).collect();
    fields.sort();
    fields.dedup();
    fields
        .into_iter()
        .filter(|field| before.get(*field) != after.get(*field))
        .map(|field| FieldChange {
            field: field.clone(),
            before: before.get(field).cloned(),
            after: after.get(field).cloned(),
        })
        .collect()
}

/// Changes for people, such as `channel stable-4.18 → stable-4.19, overrides removed`.
pub fn describe(changes: &[FieldChange]) -> String {
    let one = |change: &FieldChange| {
        let FieldChange { field, before, after } = change;
        match (before, after) {
            (Some(Value::String(before)), Some(Value::String(after))) => {
                format!("{field} {before} → {after}")
            }
            (Some(_), Some(_)) => format!("{field} changed"),
            (None, Some(Value::String(after))) => format!("{field} set to {after}"),
            (None, _) => format!("{field} added"),
            (Some(_), None) => format!("{field} removed"),
        }
    };
    let all: Vec<String> = changes.iter().map(one).collect();
    all.join(", ")
}
