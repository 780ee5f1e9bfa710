//! CEL rules: `x-kubernetes-validations`.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::core::cel::{CompiledSchema, compile_schema, validate_compiled};
use serde_json::Value;

use crate::simulator::api::refusal::FieldError;

/// The rules of a schema, compiled.
pub struct Rules {
    compiled: CompiledSchema,
    /// Fields of the object below which there is a rule.
    ruled: Vec<String>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("ruled", &self.ruled)
            .finish_non_exhaustive()
    }
}

impl Rules {
    /// Compiles the rules.
    pub fn new(schema: &JSONSchemaProps) -> Self {
        // A schema is always valid JSON: it came as such.
        let json = serde_json::to_value(schema).unwrap_or_default();
        let properties = json.get("properties").and_then(Value::as_object);
        let ruled = properties
            .into_iter()
            .flatten()
            .filter(|(_, below)| has_rules(below))
            .map(|(name, _)| name.clone())
            .collect();
        Self {
            compiled: compile_schema(&json),
            ruled,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ruled.is_empty()
    }

    /// What breaks a rule. A rule about what did not change is not asked again.
    pub fn errors(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let changed = |name: &String| old.is_none_or(|old| old.get(name) != object.get(name));
        if !self.ruled.iter().any(changed) {
            return Vec::new();
        }
        let Err(broken) = validate_compiled(&self.compiled, object, old) else {
            return Vec::new();
        };
        // A rule is not asked about a null that is allowed.
        let is_null = |path: &str| at(object, path).is_some_and(Value::is_null);
        let errors = broken.into_vec().into_iter().filter(|e| !is_null(&e.field_path));
        errors
            .filter(|e| old.is_none_or(|old| at(old, &e.field_path) != at(object, &e.field_path)))
            .map(|e| FieldError::wrong(e.field_path, &e.message))
            .collect()
    }
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key("x-kubernetes-validations") || map.values().any(has_rules),
        Value::Array(list) => list.iter().any(has_rules),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The value at a path such as `spec.pools[1].name`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let parts = path.split(['.', '[']).filter(|p| !p.is_empty());
    parts
        .map(|part| part.trim_end_matches(']'))
        .try_fold(object, |value, part| match part.parse::<usize>() {
            Ok(index) if value.is_array() => value.get(index),
            Ok(_) | Err(_) => value.get(part),
        })
}
