//! Label selectors as written in resources.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A selector in either spelling: a Kubernetes `LabelSelector` (the peer's), or a plain label map (the seed's).
///
/// `{}` is an empty LabelSelector and matches everything; absent (an `Option` around it) matches nothing.
/// A map whose only keys are `matchLabels` and `matchExpressions` with an object and a list below is a LabelSelector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Selector {
    /// The seed's spelling, `{name: x}`: every label must be equal.
    Map(BTreeMap<String, String>),
    /// The peer's spelling, `{matchLabels: …, matchExpressions: …}`.
    LabelSelector(LabelSelector),
}

impl JsonSchema for Selector {
    fn schema_name() -> Cow<'static, str> {
        "Selector".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Unknown fields are kept: pruning `{name: x}` to `{}` would select every pool.
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

impl Selector {
    /// Whether an object with these labels is selected. An expression with an unknown operator selects nothing.
    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let none = BTreeMap::new();
        let labels = labels.unwrap_or(&none);
        match self {
            Self::Map(wanted) => wanted.iter().all(|(k, v)| labels.get(k) == Some(v)),
            Self::LabelSelector(selector) => label_selector_matches(selector, labels),
        }
    }
}

/// Whether `labels` are selected by a Kubernetes label selector; an empty one selects everything.
pub fn label_selector_matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let LabelSelector {
        match_labels,
        match_expressions,
    } = selector;
    let equal = match_labels
        .iter()
        .flatten()
        .all(|(k, v)| labels.get(k) == Some(v));
    equal
        && match_expressions.iter().flatten().all(|e| {
            let value = labels.get(&e.key);
            let values = e.values.as_deref().unwrap_or_default();
            match e.operator.as_str() {
                "In" => value.is_some_and(|v| values.contains(v)),
                "NotIn" => value.is_none_or(|v| !values.contains(v)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
