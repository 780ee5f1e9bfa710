//! What a schema refuses, but for its rules.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{Node, Others, Type};
use crate::simulator::api::refusal::FieldError;

/// Checks a whole object.
pub fn check_object(root: &Node, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    check(root, object, old, "", errors);
}

fn check(node: &Node, value: &Value, old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    if old == Some(value) || (value.is_null() && node.is_nullable) {
        return;
    }
    if let Some(error) = wrong_type(node, value, path) {
        errors.push(error);
        return;
    }
    if let Some(allowed) = &node.allowed
        && !allowed.contains(value)
    {
        errors.push(FieldError::not_supported(path, value, allowed));
    }
    match value {
        Value::Object(map) => check_map(node, map, old, path, errors),
        Value::Array(list) => check_list(node, list, old, path, errors),
        Value::String(text) => check_text(node, text, path, errors),
        Value::Number(number) => check_number(node, number, path, errors),
        Value::Null | Value::Bool(_) => {}
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => Type::Boolean.as_str(),
        Value::Number(n) if n.is_f64() => Type::Number.as_str(),
        Value::Number(_) => Type::Integer.as_str(),
        Value::String(_) => Type::String.as_str(),
        Value::Array(_) => Type::Array.as_str(),
        Value::Object(_) => Type::Object.as_str(),
    }
}

/// As go-openapi words it, which names formats where it knows one.
fn wrong_type(node: &Node, value: &Value, path: &str) -> Option<FieldError> {
    let is = type_of(value);
    let fits = node.types.is_empty()
        || node.types.iter().any(|t| {
            let whole = *t == Type::Number && is == "integer";
            t.as_str() == is || whole
        });
    if fits {
        return None;
    }
    let wanted: Vec<&str> = node.types.iter().map(|t| t.as_str()).collect();
    let (wanted, is) = match (&node.format, value) {
        (Some(format), Value::Number(n)) => (format.clone(), if n.is_f64() { "double" } else { "int64" }),
        (Some(format), Value::Bool(_) | Value::Object(_) | Value::Null) => (format.clone(), ""),
        (Some(_), Value::Array(_) | Value::String(_)) | (None, _) => (wanted.join(","), is),
    };
    let why = format!("{path} in body must be of type {wanted}: {is:?}");
    Some(FieldError::wrong_type(path, is, &why))
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn check_map(
    node: &Node,
    map: &Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for name in &node.required {
        if !map.contains_key(name) {
            errors.push(FieldError::required(below(path, name), ""));
        }
    }
    for (name, value) in map {
        let old = old.and_then(|o| o.get(name));
        let known = node.properties.get(name);
        let like = match &node.others {
            Others::Like(like) => Some(like.as_ref()),
            Others::None | Others::Any => None,
        };
        if let Some(node) = known.or(like) {
            check(node, value, old, &below(path, name), errors);
        }
    }
}

fn count(limit: Option<i64>) -> Option<usize> {
    limit.and_then(|l| usize::try_from(l).ok())
}

fn check_list(node: &Node, list: &[Value], old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(most) = count(node.limits.max_items).filter(|most| list.len() > *most) {
        errors.push(FieldError::too_many(path, list.len(), most));
    }
    if let Some(least) = count(node.limits.min_items).filter(|least| list.len() < *least) {
        let why = format!("{path} in body should have at least {least} items");
        let is = Value::from(list.len());
        errors.push(FieldError::invalid(path, &is, &why));
    }
    let key = |item: &Value| -> Vec<Value> {
        let parts = node.list_keys.iter().map(|k| item.get(k));
        parts.map(|v| v.cloned().unwrap_or_default()).collect()
    };
    let is_map = !node.list_keys.is_empty();
    let old = old.and_then(Value::as_array).filter(|_| is_map);
    for (index, item) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let before = list.get(..index).unwrap_or_default();
        if is_map && before.iter().any(|b| key(b) == key(item)) {
            let keys = node.list_keys.iter().cloned().zip(key(item)).collect();
            errors.push(FieldError::duplicate(&path, &Value::Object(keys)));
        }
        let same = old.and_then(|old| old.iter().find(|o| key(o) == key(item)));
        if let Some(items) = &node.items {
            check(items, item, same, &path, errors);
        }
    }
}

fn check_text(node: &Node, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let is = Value::from(text);
    let mut wrong = |why: &str| errors.push(FieldError::invalid(path, &is, &format!("{path} in body {why}")));
    let length = text.chars().count();
    if let Some(least) = count(node.limits.min_length).filter(|least| length < *least) {
        wrong(&format!("should be at least {least} chars long"));
    }
    if let Some(pattern) = node.pattern.as_ref().filter(|p| !p.is_match(text)) {
        wrong(&format!("should match '{pattern}'"));
    }
    if node.format.as_deref() == Some("date-time") && text.parse::<Timestamp>().is_err() {
        wrong(&format!("must be of type date-time: {text:?}"));
    }
    if let Some(most) = count(node.limits.max_length).filter(|most| length > *most) {
        errors.push(FieldError::too_long(path, most));
    }
}

fn check_number(node: &Node, number: &serde_json::Number, path: &str, errors: &mut Vec<FieldError>) {
    let is = number.as_f64().unwrap_or_default();
    let mut wrong = |why: &str| {
        let why = format!("{path} in body should be {why}");
        errors.push(FieldError::invalid(path, &Value::Number(number.clone()), &why));
    };
    if let Some(least) = node.limits.minimum.filter(|least| is < *least) {
        wrong(&format!("greater than or equal to {least}"));
    }
    if let Some(most) = node.limits.maximum.filter(|most| is > *most) {
        wrong(&format!("less than or equal to {most}"));
    }
}
