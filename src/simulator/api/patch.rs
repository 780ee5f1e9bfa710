//! Patches: merge patches (RFC 7386) and JSON patches (RFC 6902).

use serde_json::Value;

use super::{refusal::Refusal, request::Request};

/// The object as the patch in the request makes it.
pub fn patched(old: &Value, request: &Request, is_custom: bool) -> Result<Value, Refusal> {
    let patch: Value = serde_json::from_slice(&request.body)
        .map_err(|e| Refusal::bad_request(format!("error decoding patch: {e}")))?;
    match request.content_type.as_str() {
        "application/merge-patch+json" => {
            let mut new = old.clone();
            json_patch::merge(&mut new, &patch);
            Ok(new)
        }
        "application/json-patch+json" => {
            let operations = patch
                .as_array()
                .ok_or_else(|| Refusal::bad_request("error decoding patch: it is no list"))?;
            let mut new = old.clone();
            for operation in operations {
                // The server does not say more either.
                apply(&mut new, operation).ok_or_else(|| Refusal {
                    details: Value::Object(serde_json::Map::new()),
                    ..Refusal::new(
                        422,
                        "Invalid",
                        "the server rejected our request due to an error in our request",
                    )
                })?;
            }
            Ok(new)
        }
        "application/apply-patch+yaml" => Err(not_simulated(request)),
        "application/strategic-merge-patch+json" if !is_custom => Err(not_simulated(request)),
        _ => {
            let message = "the body of the request was in an unknown format - accepted media types include: \
                           application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            Err(Refusal::new(415, "UnsupportedMediaType", message))
        }
    }
}

fn not_simulated(request: &Request) -> Refusal {
    let message = format!("not simulated: {} with {}", request.line, request.content_type);
    Refusal::new(501, "NotImplemented", message)
}

/// Does one operation; `None` if it does not fit. In the manner of the library of the real server (evanphx/json-patch), which
/// is laxer than the RFC: what is not there may be replaced, and passes a test for null.
fn apply(object: &mut Value, operation: &Value) -> Option<()> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let path = text("path")?;
    let value = || operation.get("value").cloned().unwrap_or_default();
    match text("op")? {
        "add" => add(object, path, value()),
        "remove" => remove(object, path).map(drop),
        "replace" => replace(object, path, value()),
        "move" => {
            let moved = remove(object, text("from")?)?;
            add(object, path, moved)
        }
        "copy" => {
            let copied = object.pointer(text("from")?)?.clone();
            add(object, path, copied)
        }
        "test" => {
            let found = object.pointer(path).cloned().unwrap_or_default();
            (found == value()).then_some(())
        }
        _ => None,
    }
}

/// What contains the value at a path, and the value's key in it.
fn container<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (above, key) = path.rsplit_once('/')?;
    let key = key.replace("~1", "/").replace("~0", "~");
    Some((object.pointer_mut(above)?, key))
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    match container(object, path)? {
        (Value::Object(map), key) => drop(map.insert(key, value)),
        (Value::Array(list), key) if key == "-" => list.push(value),
        (Value::Array(list), key) => {
            let index = key.parse().ok().filter(|i| *i <= list.len())?;
            list.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    match container(object, path)? {
        (Value::Object(map), key) => map.remove(&key),
        (Value::Array(list), key) => {
            let index = key.parse().ok().filter(|i| *i < list.len())?;
            Some(list.remove(index))
        }
        _ => None,
    }
}

fn replace(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    match container(object, path)? {
        (Value::Object(map), key) => drop(map.insert(key, value)),
        (Value::Array(list), key) => *list.get_mut(key.parse::<usize>().ok()?)? = value,
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({"op": "add", "path": "/a", "value": 1}), Some(json!({"a": 1, "l": [0, 1]})))]
    #[case(json!({"op": "add", "path": "/l/-", "value": 2}), Some(json!({"l": [0, 1, 2]})))]
    #[case(json!({"op": "add", "path": "/l/3", "value": 2}), None)]
    #[case(json!({"op": "add", "path": "/x/y", "value": 2}), None)]
    #[case(json!({"op": "replace", "path": "/x", "value": 2}), Some(json!({"l": [0, 1], "x": 2})))]
    #[case(json!({"op": "replace", "path": "/l/2", "value": 2}), None)]
    #[case(json!({"op": "remove", "path": "/l/0"}), Some(json!({"l": [1]})))]
    #[case(json!({"op": "remove", "path": "/x"}), None)]
    #[case(json!({"op": "move", "from": "/l", "path": "/a~1b"}), Some(json!({"a/b": [0, 1]})))]
    #[case(json!({"op": "test", "path": "/x", "value": null}), Some(json!({"l": [0, 1]})))]
    #[case(json!({"op": "test", "path": "/l/0", "value": 1}), None)]
    #[case(json!({"op": "sing", "path": "/l"}), None)]
    #[case(json!({"op": "add"}), None)]
    fn an_operation_does_what_the_real_server_does(
        #[case] operation: Value,
        #[case] expected: Option<Value>,
    ) {
        let mut object = json!({"l": [0, 1]});
        let done = apply(&mut object, &operation);
        assert_eq!(done.map(|()| object), expected);
    }
}
