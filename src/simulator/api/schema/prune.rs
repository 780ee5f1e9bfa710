//! Dropping unknown fields, and filling in defaults.

use serde_json::{Map, Value};

use super::{Node, Others};

/// What every object has; its metadata is not the schema's.
const EVERYWHERE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops what the schema of a whole object does not know.
pub fn prune_object(root: &Node, object: &mut Value, dropped: &mut Vec<String>) {
    if let Value::Object(map) = object {
        prune_map(root, map, "", true, dropped);
    }
}

fn prune(node: &Node, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => prune_map(node, map, path, false, dropped),
        Value::Array(list) => {
            let Some(items) = &node.items else { return };
            for (index, item) in list.iter_mut().enumerate() {
                prune(items, item, &format!("{path}[{index}]"), dropped);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn prune_map(
    node: &Node,
    map: &mut Map<String, Value>,
    path: &str,
    is_root: bool,
    dropped: &mut Vec<String>,
) {
    map.retain(|name, value| {
        if is_root && EVERYWHERE.contains(&name.as_str()) {
            return true;
        }
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        if let Some(property) = node.properties.get(name) {
            prune(property, value, &path, dropped);
            return true;
        }
        match &node.others {
            Others::Like(like) => prune(like, value, &path, dropped),
            Others::Any => {}
            Others::None if node.keeps_unknown => {}
            Others::None => {
                dropped.push(path);
                return false;
            }
        }
        true
    });
}

/// Fills in defaults. A null that is not allowed gives way to the default, or goes.
pub fn fill(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, property) in &node.properties {
                let is_missing = map.get(name).is_none_or(|v| property.forbids_null(v));
                match &property.default {
                    Some(default) if is_missing => drop(map.insert(name.clone(), default.clone())),
                    None if is_missing => drop(map.remove(name)),
                    Some(_) | None => {}
                }
                if let Some(value) = map.get_mut(name) {
                    fill(property, value);
                }
            }
            if let Others::Like(like) = &node.others {
                map.retain(|name, value| node.properties.contains_key(name) || !like.forbids_null(value));
                let others = map.iter_mut().filter(|(n, _)| !node.properties.contains_key(*n));
                others.for_each(|(_, value)| fill(like, value));
            }
        }
        Value::Array(list) => {
            if let Some(items) = &node.items {
                for item in list {
                    fill(items, item);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
