//! What the server demands of metadata, and what only it sets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{
    kinds::{Kind, Resource},
    refusal::FieldError,
    storage::{metadata, set_metadata},
};

/// Most bytes of all annotations of an object.
const MOST_ANNOTATED: usize = 256 * 1024;
/// Longest label value, and longest name part of a key.
const LONGEST_LABEL: usize = 63;
/// Longest subdomain.
const LONGEST_NAME: usize = 253;
/// Longest prefix that a name is made of.
const LONGEST_PREFIX: usize = 58;
/// What generated names end in: no vowels, so no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Metadata that only the server sets.
const SERVERS: [&str; 6] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "namespace",
    "uid",
];

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                           start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                           for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                         start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                     end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// Reads metadata as what it is: drops unknown fields, and what is empty.
pub fn shape(object: &mut Value) -> Result<(), serde_json::Error> {
    let Value::Object(map) = object else {
        return Ok(());
    };
    let told = map.remove("metadata").filter(|m| !m.is_null());
    let told: ObjectMeta = serde_json::from_value(told.unwrap_or_else(|| json!({})))?;
    let mut read = serde_json::to_value(told)?;
    if let Value::Object(fields) = &mut read {
        fields.remove("managedFields");
        fields.remove("selfLink");
        fields.retain(|_, value| !is_empty(value));
    }
    map.insert("metadata".to_owned(), read);
    Ok(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A name that begins with the prefix; two numbers give two names.
pub fn generated_name(prefix: &str, number: u64) -> String {
    let base = u64::try_from(ALPHABET.len()).unwrap_or(1);
    let mut rest = number;
    let mut name: String = prefix.chars().take(LONGEST_PREFIX).collect();
    for _ in 0..5 {
        let digit = usize::try_from(rest % base).unwrap_or(0);
        name.extend(ALPHABET.get(digit).map(|b| char::from(*b)));
        rest /= base;
    }
    name
}

/// Puts back what only the server sets.
pub fn keep_the_servers(old: &Value, new: &mut Value) {
    for field in SERVERS {
        match metadata(old, field) {
            Some(value) => set_metadata(new, field, value.clone()),
            None => {
                if let Some(map) = new.get_mut("metadata").and_then(Value::as_object_mut) {
                    map.remove(field);
                }
            }
        }
    }
}

/// What is wrong with the metadata of an object.
pub fn errors(resource: &Resource, kind: &Kind, object: &Value) -> Vec<FieldError> {
    let text = |field: &str| {
        metadata(object, field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let mut errors = Vec::new();
    let name = text("name");
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        errors.extend(name_error(resource, kind, name));
    }
    let entries = |field: &str| {
        let map = metadata(object, field).and_then(Value::as_object);
        map.into_iter().flatten()
    };
    for (key, value) in entries("labels") {
        errors.extend(key_error("metadata.labels", key, key));
        let value = value.as_str().unwrap_or_default();
        errors.extend(label_value_error(value));
    }
    for (key, _) in entries("annotations") {
        // The server looks at them in lower case.
        errors.extend(key_error("metadata.annotations", key, &key.to_lowercase()));
    }
    let size: usize = entries("annotations")
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > MOST_ANNOTATED {
        errors.push(FieldError::too_long("metadata.annotations", MOST_ANNOTATED));
    }
    errors.extend(finalizer_errors(object));
    errors.extend(owner_errors(object));
    errors
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    let list = metadata(object, field).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn finalizer_errors(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for finalizer in list(object, "finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        let path = "metadata.finalizers";
        if let Some(error) = key_error(path, name, name) {
            errors.push(error);
        } else if !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(path, finalizer, why));
        }
    }
    errors
}

fn owner_errors(object: &Value) -> Vec<FieldError> {
    let owners = list(object, "ownerReferences");
    let mut errors = Vec::new();
    for owner in owners {
        let fields = [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ];
        for (field, why) in fields {
            if owner.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
                let path = format!("metadata.ownerReferences.{field}");
                errors.push(FieldError::invalid(path, &Value::from(""), why));
            }
        }
    }
    let controllers = owners
        .iter()
        .filter(|o| o.get("controller") == Some(&json!(true)));
    if controllers.count() > 1 {
        let why = "Only one reference can have Controller set to true";
        errors.push(FieldError::wrong("metadata.ownerReferences", why));
    }
    errors
}

/// What a change of metadata must not do.
pub fn change_errors(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(uid) = metadata(new, "uid").filter(|uid| metadata(old, "uid") != Some(uid)) {
        errors.push(FieldError::invalid("metadata.uid", uid, "field is immutable"));
    }
    let added = list(new, "finalizers").iter();
    let added: Vec<String> = added
        .filter(|f| !list(old, "finalizers").contains(f))
        .map(Value::to_string)
        .collect();
    if metadata(old, "deletionTimestamp").is_some() && !added.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        errors.push(FieldError::forbidden("metadata.finalizers", &why));
    }
    errors
}

fn name_error(resource: &Resource, kind: &Kind, name: &str) -> Option<FieldError> {
    let wrong = |why: &str| Some(FieldError::invalid("metadata.name", &Value::from(name), why));
    // Names of RBAC objects may contain anything that fits a path.
    if resource.group == "rbac.authorization.k8s.io" {
        return None;
    }
    // A Job's name becomes a label of its pods.
    let is_label = matches!(
        (resource.group.as_str(), kind.name.as_str()),
        ("", "Namespace" | "Service")
    );
    if is_label && (name.contains('.') || !is_subdomain(name) || name.len() > LONGEST_LABEL) {
        return wrong(if name.len() > LONGEST_LABEL {
            "must be no more than 63 characters"
        } else {
            LABEL
        });
    }
    if !is_subdomain(name) {
        return wrong(SUBDOMAIN);
    }
    if name.len() > LONGEST_NAME {
        return wrong("must be no more than 253 characters");
    }
    if kind.name == "Job" && name.len() > LONGEST_LABEL {
        return wrong("must be no more than 63 characters");
    }
    None
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(|label| {
        let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.starts_with(ends) && label.ends_with(ends) && label.chars().all(|c| ends(c) || c == '-')
    })
}

fn is_name_part(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| ends(c) || matches!(c, '-' | '_' | '.');
    text.starts_with(ends) && text.ends_with(ends) && text.chars().all(inner)
}

/// Whether it could be the key of a label.
pub fn is_qualified_name(key: &str) -> bool {
    key_error("", key, key).is_none()
}

/// Whether it could be the value of a label.
pub fn is_label_value(value: &str) -> bool {
    label_value_error(value).is_none()
}

/// Whether it may be a key of a ConfigMap.
pub fn is_config_key(key: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !key.is_empty() && key.len() <= LONGEST_NAME && key.chars().all(good)
}

fn label_value_error(value: &str) -> Option<FieldError> {
    let wrong = |why: &str| Some(FieldError::invalid("metadata.labels", &Value::from(value), why));
    if value.len() > LONGEST_LABEL {
        return wrong("must be no more than 63 bytes");
    }
    if value.is_empty() || is_name_part(value) {
        return None;
    }
    wrong(LABEL_VALUE)
}

/// A key is a name of at most 63 bytes, after a subdomain and a slash if it wants.
fn key_error(field: &str, shown: &str, key: &str) -> Option<FieldError> {
    let wrong = |why: &str| Some(FieldError::invalid(field, &Value::from(shown), why));
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    match prefix {
        Some("") => return wrong("prefix part must be non-empty"),
        Some(prefix) if !is_subdomain(prefix) => return wrong(&format!("prefix part {SUBDOMAIN}")),
        Some(prefix) if prefix.len() > LONGEST_NAME => {
            return wrong("prefix part must be no more than 253 bytes");
        }
        Some(_) | None => {}
    }
    if name.contains('/') {
        let why = format!("a valid label key must consist of an optional prefix and a name: {NAME_PART}");
        return wrong(&why);
    }
    if name.is_empty() {
        return wrong("name part must be non-empty");
    }
    if name.len() > LONGEST_LABEL {
        return wrong("name part must be no more than 63 bytes");
    }
    if is_name_part(name) {
        None
    } else {
        wrong(NAME_PART)
    }
}
