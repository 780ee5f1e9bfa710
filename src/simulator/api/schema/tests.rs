use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

/// A schema with this as its `spec`.
fn schema(spec: &Value) -> Schema {
    let all = json!({"type": "object", "properties": {"spec": spec}});
    let all: JSONSchemaProps = serde_json::from_value(all).unwrap();
    Schema::new(&all)
}

#[rstest]
#[case::unknown(json!({"type": "object", "properties": {"a": {"type": "string"}}}), json!({"a": "1", "b": 2}), json!({"a": "1"}))]
#[case::kept(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), json!({"b": {"c": 2}}), json!({"b": {"c": 2}}))]
#[case::known_below_kept(
    json!({"x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "object"}}}),
    json!({"a": {"x": 1}, "b": 2}),
    json!({"a": {}, "b": 2}),
)]
#[case::map(
    json!({"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "integer"}}}}),
    json!({"k": {"a": 1, "b": 2}}),
    json!({"k": {"a": 1}}),
)]
#[case::list(
    json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer", "default": 7}}}}),
    json!([{"b": 1}, {"a": 2}]),
    json!([{"a": 7}, {"a": 2}]),
)]
#[case::default_of_a_null(json!({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}), json!({"a": null}), json!({"a": "x"}))]
#[case::null_that_may_be(
    json!({"type": "object", "properties": {"a": {"type": "string", "default": "x", "nullable": true}}}),
    json!({"a": null}),
    json!({"a": null}),
)]
#[case::null_without_default(json!({"type": "object", "properties": {"a": {"type": "string"}}}), json!({"a": null}), json!({}))]
#[case::default_with_defaults(
    json!({"type": "object", "properties": {"a": {
        "type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}},
    }}}),
    json!({}),
    json!({"a": {"b": 1}}),
)]
fn an_object_is_shaped(#[case] spec: Value, #[case] told: Value, #[case] expected: Value) {
    let mut object = json!({"metadata": {"anything": 1}, "spec": told});
    schema(&spec).shape(&mut object);
    assert_eq!(object, json!({"metadata": {"anything": 1}, "spec": expected}));
}

#[rstest]
#[case::type_of_text(json!({"type": "string"}), json!(1), "spec in body must be of type string: \"integer\"")]
#[case::type_of_number(json!({"type": "integer"}), json!(1.5), "must be of type integer: \"number\"")]
#[case::whole_is_a_number(json!({"type": "number"}), json!(1), "")]
#[case::int_or_string(json!({"x-kubernetes-int-or-string": true}), json!("10%"), "")]
#[case::neither(json!({"x-kubernetes-int-or-string": true}), json!(true), "must be of type integer,string: \"boolean\"")]
#[case::nullable(json!({"type": "string", "nullable": true, "enum": ["a"]}), Value::Null, "")]
#[case::one_of_none(json!({"type": "string", "enum": ["a"]}), json!("b"), "Unsupported value: \"b\": supported values: \"a\"")]
#[case::pattern(json!({"type": "string", "pattern": "^a$"}), json!("b"), "spec in body should match '^a$'")]
#[case::long(json!({"type": "string", "maxLength": 2}), json!("äöü"), "Too long: may not be more than 2 bytes")]
#[case::as_long_as_may_be(json!({"type": "string", "maxLength": 2}), json!("äö"), "")]
#[case::few(json!({"type": "array", "minItems": 1}), json!([]), "should have at least 1 items")]
#[case::many(json!({"type": "array", "maxItems": 1}), json!([1, 2]), "Too many: 2: must have at most 1 items")]
#[case::low(json!({"type": "integer", "minimum": 1.0}), json!(0), "should be greater than or equal to 1")]
#[case::high(json!({"type": "integer", "maximum": 1.0}), json!(2), "should be less than or equal to 1")]
#[case::twice(
    json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object"}}),
    json!([{"k": 1}, {"k": 1}]),
    "spec[1]: Duplicate value",
)]
#[case::deep(
    json!({"type": "object", "additionalProperties": {"type": "array", "items": {"required": ["a"], "type": "object"}}}),
    json!({"x": [{}]}),
    "spec.x[0].a: Required value",
)]
#[case::rule(
    json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 3", "message": "must be more"}]}),
    json!(3),
    "spec: Invalid value: must be more",
)]
fn a_wrong_value_is_told(#[case] spec: Value, #[case] told: Value, #[case] expected: &str) {
    let errors = schema(&spec).errors(&json!({"spec": told}), None);
    let texts: Vec<String> = errors
        .iter()
        .map(|e| format!("{}: {}", e.field, e.message))
        .collect();
    let texts = texts.join("; ");
    assert_eq!(texts.is_empty(), expected.is_empty(), "{texts}");
    assert!(texts.contains(expected), "{texts}");
}

#[test]
fn what_did_not_change_is_not_looked_at_again() {
    let spec = json!({"type": "object", "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 3", "message": "must be more"}]},
        "b": {"type": "integer", "maximum": 1.0}, "c": {"type": "integer"},
    }});
    let schema = schema(&spec);
    let old = json!({"spec": {"a": 1, "b": 2, "c": 3}});
    let new = json!({"spec": {"a": 1, "b": 2, "c": 4}});
    assert_eq!(schema.errors(&new, Some(&old)), []);
    assert_eq!(schema.errors(&new, None).len(), 2);
    let worse = json!({"spec": {"a": 2, "b": 3, "c": 4}});
    assert_eq!(schema.errors(&worse, Some(&old)).len(), 2);
}
