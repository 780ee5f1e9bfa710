//! Label selectors as written in resources.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A selector in either spelling: a Kubernetes `LabelSelector` (the peer's), or a plain label map (the seed's).
///
/// `{}` is an empty LabelSelector and matches everything; absent (an `Option` around it) matches nothing.
/// An object whose only keys are `matchLabels` (an object) and `matchExpressions` (a list) is a LabelSelector.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// The seed's spelling, `{name: x}`: every label must be equal.
    Map(BTreeMap<String, String>),
    /// The peer's spelling, `{matchLabels: …, matchExpressions: …}`.
    LabelSelector(LabelSelector),
    /// Neither, such as `{name: true}`: selects nothing, and [`crate::api::validation`] says so. The object around
    /// it stays readable.
    Unreadable(Value),
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Map(labels) => labels.serialize(serializer),
            Self::LabelSelector(selector) => selector.serialize(serializer),
            Self::Unreadable(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

impl From<Value> for Selector {
    /// Tells the spellings apart; never fails.
    fn from(value: Value) -> Self {
        let Value::Object(fields) = &value else {
            return Self::Unreadable(value);
        };
        let is_label_selector = fields.iter().all(|(key, below)| match key.as_str() {
            "matchLabels" => below.is_object() || below.is_null(),
            "matchExpressions" => below.is_array() || below.is_null(),
            _ => false,
        });
        let read = if is_label_selector {
            LabelSelector::deserialize(&value).map(Self::LabelSelector)
        } else {
            BTreeMap::deserialize(&value).map(Self::Map)
        };
        read.unwrap_or(Self::Unreadable(value))
    }
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
        json_schema!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-map-type": "atomic"
        })
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
            Self::Unreadable(_) => false,
        }
    }

    /// What is wrong with the selector, if anything.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Map(_) => None,
            Self::LabelSelector(selector) => label_selector_problem(selector),
            Self::Unreadable(value) => Some(format!(
                "{value} is neither a label map nor a label selector: write labels with their values as text, \
                 such as {{name: \"x\"}}, or {{matchLabels: …, matchExpressions: …}}"
            )),
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

/// What is wrong with a Kubernetes label selector, if anything: its schema does not know the operators.
pub fn label_selector_problem(selector: &LabelSelector) -> Option<String> {
    selector.match_expressions.iter().flatten().find_map(|e| {
        let has_values = e.values.as_ref().is_some_and(|v| !v.is_empty());
        let (key, operator) = (&e.key, e.operator.as_str());
        match operator {
            "In" | "NotIn" if !has_values => Some(format!(
                "the expression on {key:?} has operator {operator} and no values: list at least one value"
            )),
            "Exists" | "DoesNotExist" if has_values => Some(format!(
                "the expression on {key:?} has operator {operator} and values: leave the values out"
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
            _ => Some(format!(
                "the expression on {key:?} has the unknown operator {operator:?}: write In, NotIn, Exists or DoesNotExist"
            )),
        }
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[rstest]
    #[case(json!({}), true, true)]
    #[case(json!({"name": "x"}), true, false)]
    #[case(json!({"name": "x", "zone": "a"}), false, false)]
    #[case(json!({"matchLabels": {"name": "x"}}), true, false)]
    #[case(json!({"matchLabels": {}}), true, true)]
    #[case(json!({"matchLabels": null}), true, true)]
    #[case(json!({"matchLabels": {"name": "y"}}), false, false)]
    #[case(json!({"matchExpressions": [{"key": "name", "operator": "In", "values": ["x", "y"]}]}), true, false)]
    #[case(json!({"matchExpressions": [{"key": "name", "operator": "NotIn", "values": ["x"]}]}), false, true)]
    #[case(json!({"matchExpressions": [{"key": "name", "operator": "Exists"}]}), true, false)]
    #[case(json!({"matchExpressions": [{"key": "name", "operator": "DoesNotExist"}]}), false, true)]
    #[case(json!({"matchExpressions": [{"key": "name", "operator": "Gt", "values": ["1"]}]}), false, false)]
    #[case(json!({"matchExpressions": []}), true, true)]
    #[case(json!({"matchLabels": {"name": "x"}, "matchExpressions": [{"key": "zone", "operator": "Exists"}]}), false, false)]
    // Labels that happen to be called like the fields of a LabelSelector.
    #[case(json!({"matchLabels": "a"}), false, false)]
    #[case(json!({"matchLabels": "a", "name": "x"}), false, false)]
    // Neither spelling: nothing is selected, above all not everything.
    #[case(json!({"matchLabels": {"name": "x"}, "name": "x"}), false, false)]
    #[case(json!({"matchLabel": {"name": "x"}}), false, false)]
    #[case(json!({"matchLabels": ["name"]}), false, false)]
    #[case(json!({"matchLabels": {"name": true}}), false, false)]
    #[case(json!({"matchExpressions": {"key": "name"}}), false, false)]
    #[case(json!({"name": true}), false, false)]
    #[case(json!({"name": 1}), false, false)]
    #[case(json!("name"), false, false)]
    #[case(json!([]), false, false)]
    fn both_spellings_select_and_survive_a_round_trip(
        #[case] written: Value,
        #[case] named_x: bool,
        #[case] unlabelled: bool,
    ) {
        let selector: Selector = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(selector.matches(Some(&labels(&[("name", "x")]))), named_x);
        assert_eq!(selector.matches(None), unlabelled);
        let again: Selector = serde_json::from_value(serde_json::to_value(&selector).unwrap()).unwrap();
        assert_eq!(again, selector);
    }

    #[rstest]
    #[case("{}", true)]
    #[case("{name: x}", false)]
    #[case("{matchLabels: {name: x}}", false)]
    fn an_empty_object_is_a_label_selector_in_yaml_too(#[case] text: &str, #[case] everything: bool) {
        let selector: Selector = serde_yaml::from_str(text).unwrap();
        assert_eq!(selector.matches(None), everything);
        assert_eq!(selector.problem(), None);
    }

    #[rstest]
    #[case("{matchLabels: a}", "a")]
    #[case("{matchLabels: a, matchExpressions: b}", "a")]
    fn a_label_may_be_called_match_labels(#[case] text: &str, #[case] value: &str) {
        let Selector::Map(map) = serde_yaml::from_str(text).unwrap() else {
            panic!("{text} is a label map");
        };
        assert_eq!(map.get("matchLabels").map(String::as_str), Some(value));
    }

    #[rstest]
    #[case(json!({"name": true}), r#"{"name":true} is neither"#)]
    #[case(json!({"matchLabel": {"a": "b"}}), "is neither")]
    #[case(json!({"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}), "unknown operator \"in\"")]
    #[case(json!({"matchExpressions": [{"key": "a"}]}), "unknown operator \"\"")]
    #[case(json!({"matchExpressions": [{"key": "a", "operator": "In"}]}), "list at least one value")]
    #[case(json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}), "leave the values out")]
    fn what_is_wrong_with_a_selector_is_said(#[case] written: Value, #[case] expected: &str) {
        let problem = Selector::from(written).problem().unwrap();
        assert!(problem.contains(expected), "{problem}");
    }

    #[test]
    fn an_absent_or_null_selector_is_none() {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Entry {
            #[serde(default)]
            match_labels: Option<Selector>,
        }
        for text in ["{}", "{matchLabels: null}"] {
            assert_eq!(serde_yaml::from_str::<Entry>(text).unwrap().match_labels, None);
        }
        assert!(
            serde_yaml::from_str::<Entry>("{matchLabels: {}}")
                .unwrap()
                .match_labels
                .unwrap()
                .matches(None)
        );
    }
}
