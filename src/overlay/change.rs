//! A write to the spec of the cluster's ClusterVersion.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::spec::{self, FieldChange};
use crate::{
    api::{annotations, conditions::whole_seconds},
    openshift::cluster_version::ClusterVersion,
};

/// A write to the spec of the cluster's ClusterVersion.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The fields that are to change.
    pub fields: Vec<FieldChange>,
    /// Who brought the spec out of line, where it was in line before; `None` = we want something new.
    pub by_hand: Option<String>,
}

impl Change {
    /// The fields, for people.
    pub fn describe(&self) -> String {
        spec::describe(&self.fields)
    }

    /// A JSON patch, field by field, so that `desiredUpdate` cannot be touched; refused if `cluster` is not what is
    /// there any more (as in the other writes, a lost race is a conflict).
    pub fn patch(&self, cluster: &ClusterVersion, now: Timestamp) -> Value {
        let version = cluster.resource_version();
        let guard = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version});
        let fields = self.fields.iter().map(|change| {
            let at = format!("/spec/{}", escaped(&change.field));
            match &change.after {
                Some(value) => json!({"op": "add", "path": at, "value": value}),
                None => json!({"op": "remove", "path": at}),
            }
        });
        let mark = self.is_about_updates().then(|| mark(cluster, now));
        Value::Array(std::iter::once(guard).chain(fields).chain(mark).collect())
    }

    /// Whether it changes where the list of updates comes from.
    fn is_about_updates(&self) -> bool {
        let fields = self.fields.iter().map(|c| c.field.as_str());
        fields
            .into_iter()
            .any(|field| ["channel", "upstream"].contains(&field))
    }
}

/// Records on the ClusterVersion when its channel was changed: in the same write, so that no crash parts the two.
fn mark(cluster: &ClusterVersion, now: Timestamp) -> Value {
    let (key, now) = (annotations::CHANNEL_CHANGED_AT, whole_seconds(now).to_string());
    if cluster.metadata.annotations.is_some() {
        let at = format!("/metadata/annotations/{}", escaped(key));
        json!({"op": "add", "path": at, "value": now})
    } else {
        json!({"op": "add", "path": "/metadata/annotations", "value": {key: now}})
    }
}

/// A key as part of a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Who last wrote one of these fields, as far as the API server knows.
pub(super) fn who(cluster: &ClusterVersion, changes: &[FieldChange]) -> String {
    let wrote = |fields: &Value| {
        let spec = fields.get("f:spec");
        changes
            .iter()
            .any(|c| spec.is_some_and(|s| s.get(format!("f:{}", c.field)).is_some()))
    };
    let entries = cluster.metadata.managed_fields.iter().flatten();
    entries
        .filter(|entry| entry.fields_v1.as_ref().is_some_and(|f| wrote(&f.0)))
        .max_by_key(|entry| entry.time.as_ref().map(|t| t.0))
        .and_then(|entry| entry.manager.clone())
        .unwrap_or_else(|| "somebody".to_owned())
}
