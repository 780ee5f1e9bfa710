//! The schema of a custom resource: what the server drops, fills in and refuses.
//!
//! As Kubernetes' `apiextensions-apiserver` does it with structural schemas. Compiled once a server; used at each write.

mod prune;
mod rules;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use serde_json::Value;

use self::rules::Rules;
use super::refusal::FieldError;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    root: Node,
    rules: Rules,
}

/// The schema of one value.
#[derive(Debug, Default)]
struct Node {
    /// Types; none = any.
    types: Vec<Type>,
    format: Option<String>,
    is_nullable: bool,
    keeps_unknown: bool,
    properties: BTreeMap<String, Node>,
    others: Others,
    items: Option<Box<Node>>,
    /// Keys that tell the entries of a list apart.
    list_keys: Vec<String>,
    required: Vec<String>,
    default: Option<Value>,
    allowed: Option<Vec<Value>>,
    limits: Limits,
    pattern: Option<Regex>,
}

/// Type of a value, as schemas call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// What an object may have besides its named properties.
#[derive(Debug, Default)]
enum Others {
    /// Nothing that is kept.
    #[default]
    None,
    /// Anything.
    Any,
    /// Values like this.
    Like(Box<Node>),
}

#[derive(Debug, Default)]
struct Limits {
    min_length: Option<i64>,
    max_length: Option<i64>,
    min_items: Option<i64>,
    max_items: Option<i64>,
    minimum: Option<f64>,
    maximum: Option<f64>,
}

impl Schema {
    /// Compiles the schema of a CustomResourceDefinition.
    pub fn new(schema: &JSONSchemaProps) -> Self {
        Self {
            root: Node::new(schema),
            rules: Rules::new(schema),
        }
    }

    /// Drops what the schema does not know, then fills in defaults. Returns the paths of what was dropped.
    pub fn shape(&self, object: &mut Value) -> Vec<String> {
        let mut dropped = Vec::new();
        prune::prune_object(&self.root, object, &mut dropped);
        prune::fill(&self.root, object);
        dropped
    }

    /// What is wrong with the object. What is as it was in `old` is not looked at again, as the real server does it
    /// (ratcheting).
    pub fn errors(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validate::check_object(&self.root, object, old, &mut errors);
        if self.rules.is_empty() {
            return errors;
        }
        if errors.iter().any(|e| e.reason.is_blocking()) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                       complete validation";
            errors.push(FieldError::invalid("<nil>", &Value::Null, why));
        } else {
            errors.extend(self.rules.errors(object, old));
        }
        errors
    }
}

impl Node {
    fn new(schema: &JSONSchemaProps) -> Self {
        let types = if schema.x_kubernetes_int_or_string == Some(true) {
            vec![Type::Integer, Type::String]
        } else {
            schema
                .type_
                .as_deref()
                .and_then(Type::named)
                .into_iter()
                .collect()
        };
        let inner = |s: &JSONSchemaProps| Box::new(Self::new(s));
        Self {
            types,
            format: schema.format.clone(),
            is_nullable: schema.nullable == Some(true),
            keeps_unknown: schema.x_kubernetes_preserve_unknown_fields == Some(true),
            properties: schema
                .properties
                .iter()
                .flatten()
                .map(|(name, s)| (name.clone(), Self::new(s)))
                .collect(),
            others: match &schema.additional_properties {
                None | Some(JSONSchemaPropsOrBool::Bool(false)) => Others::None,
                Some(JSONSchemaPropsOrBool::Bool(true)) => Others::Any,
                Some(JSONSchemaPropsOrBool::Schema(s)) => Others::Like(inner(s)),
            },
            items: match &schema.items {
                Some(JSONSchemaPropsOrArray::Schema(s)) => Some(inner(s)),
                // Not allowed in a structural schema.
                Some(JSONSchemaPropsOrArray::Schemas(_)) | None => None,
            },
            list_keys: schema.x_kubernetes_list_map_keys.clone().unwrap_or_default(),
            required: schema.required.clone().unwrap_or_default(),
            default: schema.default.as_ref().map(|d| d.0.clone()),
            allowed: schema
                .enum_
                .as_ref()
                .map(|all| all.iter().map(|v| v.0.clone()).collect()),
            limits: Limits {
                min_length: schema.min_length,
                max_length: schema.max_length,
                min_items: schema.min_items,
                max_items: schema.max_items,
                minimum: schema.minimum,
                maximum: schema.maximum,
            },
            // One that is none would have been refused with the CRD.
            pattern: schema.pattern.as_deref().and_then(|p| Regex::new(p).ok()),
        }
    }

    fn forbids_null(&self, value: &Value) -> bool {
        value.is_null() && !self.is_nullable
    }
}

impl Type {
    fn named(name: &str) -> Option<Self> {
        let all = [
            Self::Object,
            Self::Array,
            Self::String,
            Self::Integer,
            Self::Number,
            Self::Boolean,
        ];
        all.into_iter().find(|t| t.as_str() == name)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}
