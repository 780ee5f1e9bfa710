//! Creating, changing and deleting objects, as a real API server does it.

use http::Method;
use serde_json::{Map, Value, json};

use super::{
    answer::Refusal,
    kinds::Kind,
    request::{Place, Request},
    storage::{Key, Storage, generation, is_held, metadata, set_metadata},
};

/// What a write came to.
#[derive(Debug)]
pub struct Written {
    /// HTTP status.
    pub code: u16,
    /// The object as it is now, or a Status.
    pub document: Value,
}

/// Metadata that only the server sets.
const SERVERS: [&str; 8] = [
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
    "namespace",
    "name",
];

/// Longest name of most kinds.
const MAX_NAME: usize = 253;

/// The context of one write.
pub struct Writer<'a> {
    /// Where it is written.
    pub storage: &'a mut Storage,
    /// What is written.
    pub place: &'a Place,
    /// Its kind.
    pub kind: &'a Kind,
    /// Now, as metadata has it.
    pub now: String,
}

impl Writer<'_> {
    fn key(&self, name: &str) -> Key {
        Key {
            resource: self.place.resource.clone(),
            namespace: self.place.namespace.clone().unwrap_or_default(),
            name: name.to_owned(),
        }
    }

    /// As messages name the kind.
    fn resource(&self) -> String {
        let resource = &self.place.resource;
        if resource.group.is_empty() {
            resource.plural.clone()
        } else {
            format!("{}.{}", resource.plural, resource.group)
        }
    }

    fn existing(&self, name: &str) -> Result<(Key, Value), Refusal> {
        let key = self.key(name);
        match self.storage.objects.get(&key) {
            Some(object) => Ok((key, object.as_ref().clone())),
            None => Err(Refusal::not_found(&self.resource(), name)),
        }
    }

    /// POST on a collection.
    pub fn create(&mut self, request: &Request) -> Result<Written, Refusal> {
        let mut object = parse(&request.body)?;
        let namespace = self.place.namespace.clone();
        let uid = self.storage.new_uid();
        let api_version = self.kind.api_version(&self.place.resource);
        let map = object
            .as_object_mut()
            .ok_or_else(|| Refusal::bad_request("the body is no object"))?;
        map.insert("apiVersion".to_owned(), json!(api_version));
        map.insert("kind".to_owned(), json!(self.kind.name));
        if self.kind.has_status {
            map.remove("status");
        }
        let meta = map
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()))
            .as_object_mut()
            .ok_or_else(|| Refusal::bad_request("metadata is no object"))?;
        for field in [
            "resourceVersion",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
        ] {
            meta.remove(field);
        }
        let told = |field: &str| meta.get(field).and_then(Value::as_str).filter(|s| !s.is_empty());
        let name = match (told("name"), told("generateName")) {
            (Some(name), _) => name.to_owned(),
            (None, Some(prefix)) => format!("{prefix}{:05}", self.storage.revision % 100_000),
            (None, None) => {
                let message = "name or generateName is required";
                return Err(self.invalid("", "metadata.name", "FieldValueRequired", message));
            }
        };
        meta.insert("name".to_owned(), json!(name));
        meta.insert("uid".to_owned(), json!(uid));
        meta.insert("creationTimestamp".to_owned(), json!(self.now));
        meta.insert("generation".to_owned(), json!(1));
        match namespace {
            Some(namespace) => {
                meta.insert("namespace".to_owned(), json!(namespace));
            }
            // As the real server does for an object that is not namespaced.
            None => {
                meta.remove("namespace");
            }
        }
        self.check_metadata(&name, &object)?;
        let key = self.key(&name);
        if self.storage.objects.contains_key(&key) {
            let message = format!("{} {name:?} already exists", self.resource());
            return Err(Refusal::new(409, "AlreadyExists", message));
        }
        let stored = self.storage.put(&key, object);
        Ok(Written {
            code: 201,
            document: stored.as_ref().clone(),
        })
    }

    fn invalid(&self, name: &str, field: &str, reason: &str, message: &str) -> Refusal {
        let kind = &self.kind.name;
        Refusal {
            code: 422,
            reason: "Invalid",
            message: format!(
                "{kind}.{} {name:?} is invalid: {field}: {message}",
                self.place.resource.group
            ),
            details: json!({
                "name": name, "group": self.place.resource.group, "kind": kind,
                "causes": [{"reason": reason, "message": message, "field": field}],
            }),
        }
    }

    /// The server's limits on names, labels and annotations.
    fn check_metadata(&self, name: &str, object: &Value) -> Result<(), Refusal> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let good = name.len() <= MAX_NAME
            && name.chars().all(is_name)
            && name.starts_with(ends)
            && name.ends_with(ends);
        // Names of RBAC objects may contain anything that fits a path.
        if !good && self.place.resource.group != "rbac.authorization.k8s.io" {
            let message = format!("Invalid value: {name:?}: a lowercase RFC 1123 subdomain must be used");
            return Err(self.invalid(name, "metadata.name", "FieldValueInvalid", &message));
        }
        let labels = metadata(object, "labels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            if !is_label_value(value) || key.is_empty() {
                let message = format!("Invalid value: {value:?}: a valid label must be used (key {key:?})");
                return Err(self.invalid(name, "metadata.labels", "FieldValueInvalid", &message));
            }
        }
        let annotations = metadata(object, "annotations").and_then(Value::as_object);
        let size: usize = annotations
            .into_iter()
            .flatten()
            .map(|(k, v)| k.len() + v.as_str().map_or(0, str::len))
            .sum();
        if size > 256 * 1024 {
            let message = "Too long: may not be more than 262144 bytes";
            return Err(self.invalid(name, "metadata.annotations", "FieldValueTooLong", message));
        }
        Ok(())
    }

    /// PUT and PATCH of an object or of its status.
    pub fn update(&mut self, request: &Request, name: &str, status_only: bool) -> Result<Written, Refusal> {
        let (key, old) = self.existing(name)?;
        let new = if request.method == Method::PUT {
            parse(&request.body)?
        } else {
            patched(&old, request)?
        };
        let told = metadata(&new, "resourceVersion");
        if told.is_some() && told != metadata(&old, "resourceVersion") {
            return Err(Refusal::conflict(&self.resource(), name));
        }
        let uid = metadata(&new, "uid");
        if uid.is_some() && uid != metadata(&old, "uid") {
            return Err(Refusal::conflict(&self.resource(), name));
        }
        let mut new = if status_only {
            let mut object = old.clone();
            replace(&mut object, "status", new.get("status").cloned());
            object
        } else {
            self.without_the_servers_fields(&old, new)
        };
        if !status_only {
            self.check_metadata(name, &new)?;
            if self.is_new_generation(&old, &new) {
                set_metadata(&mut new, "generation", json!(generation(&old) + 1));
            }
        }
        let document = if metadata(&new, "deletionTimestamp").is_some() && !is_held(&new) {
            // The last finalizer went away.
            self.storage.put(&key, new);
            self.storage.remove(&key, &self.now)
        } else if new == old {
            // A write that changes nothing makes no event and no new revision.
            self.storage.objects.get(&key).cloned()
        } else {
            Some(self.storage.put(&key, new))
        };
        Ok(Written {
            code: 200,
            document: document.map_or(Value::Null, |o| o.as_ref().clone()),
        })
    }

    fn without_the_servers_fields(&self, old: &Value, mut new: Value) -> Value {
        for field in SERVERS {
            match metadata(old, field) {
                Some(value) => set_metadata(&mut new, field, value.clone()),
                None => {
                    if let Some(map) = new.get_mut("metadata").and_then(Value::as_object_mut) {
                        map.remove(field);
                    }
                }
            }
        }
        for field in ["apiVersion", "kind"] {
            replace(&mut new, field, old.get(field).cloned());
        }
        if self.kind.has_status {
            replace(&mut new, "status", old.get("status").cloned());
        }
        new
    }

    /// A change of anything but metadata and, where it is a subresource, status.
    fn is_new_generation(&self, old: &Value, new: &Value) -> bool {
        let rest = |object: &Value| {
            let mut map = object.as_object().cloned().unwrap_or_default();
            map.remove("metadata");
            if self.kind.has_status {
                map.remove("status");
            }
            map
        };
        rest(old) != rest(new)
    }

    /// DELETE of an object.
    pub fn delete(&mut self, request: &Request, name: &str) -> Result<Written, Refusal> {
        let (key, old) = self.existing(name)?;
        let options = if request.body.is_empty() {
            Value::Null
        } else {
            parse(&request.body)?
        };
        for field in ["uid", "resourceVersion"] {
            let wanted = options.pointer(&format!("/preconditions/{field}"));
            let is = metadata(&old, field);
            if wanted.is_some_and(|w| !w.is_null() && Some(w) != is) {
                let text = |v: Option<&Value>| v.and_then(Value::as_str).unwrap_or_default().to_owned();
                let message = format!(
                    "Precondition failed: {field} in precondition: {}, {field} in object meta: {}",
                    text(wanted),
                    text(is)
                );
                return Err(Refusal::new(409, "Conflict", message));
            }
        }
        let document = if is_held(&old) {
            let left = self.storage.delete(&key, &self.now);
            left.map_or(Value::Null, |o| o.as_ref().clone())
        } else {
            self.storage.remove(&key, &self.now);
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {"name": name, "kind": self.place.resource.plural, "uid": metadata(&old, "uid")},
            })
        };
        Ok(Written { code: 200, document })
    }

    /// POST on `pods/eviction`: the pod is deleted. Budgets are not looked at.
    pub fn evict(&mut self, name: &str) -> Result<Written, Refusal> {
        let (key, _) = self.existing(name)?;
        self.storage.delete(&key, &self.now);
        Ok(success())
    }

    /// POST on `pods/binding`.
    pub fn bind(&mut self, request: &Request, name: &str) -> Result<Written, Refusal> {
        let (key, mut pod) = self.existing(name)?;
        let node = parse(&request.body)?.pointer("/target/name").cloned();
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("nodeName".to_owned(), node.unwrap_or_default());
        }
        self.storage.put(&key, pod);
        Ok(success())
    }
}

fn success() -> Written {
    Written {
        code: 201,
        document: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    }
}

fn is_label_value(value: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    value.is_empty()
        || (value.len() <= 63
            && value
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
            && value.starts_with(ends)
            && value.ends_with(ends))
}

fn parse(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|e| Refusal::bad_request(format!("the body is not valid JSON: {e}")))
}

/// Sets or removes a field.
fn replace(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(map) = object.as_object_mut() {
        match value {
            Some(value) => map.insert(field.to_owned(), value),
            None => map.remove(field),
        };
    }
}

fn patched(old: &Value, request: &Request) -> Result<Value, Refusal> {
    let patch = parse(&request.body)?;
    let mut new = old.clone();
    match request.content_type.as_str() {
        "application/merge-patch+json" => json_patch::merge(&mut new, &patch),
        "application/json-patch+json" => {
            // Go's library lets `test` of an absent path against null pass; kube's finalizers rely on that.
            let operations: Vec<Value> = patch
                .as_array()
                .cloned()
                .unwrap_or_default()
                .into_iter()
                .filter(|o| !is_test_of_absent(o, old))
                .collect();
            let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations))
                .map_err(|e| Refusal::bad_request(format!("the body is no JSON patch: {e}")))?;
            json_patch::patch(&mut new, &patch).map_err(|e| {
                Refusal::new(
                    422,
                    "Invalid",
                    format!("the server rejected our request due to an error in our request: {e}"),
                )
            })?;
        }
        other => {
            let message = format!("patches of type {other:?} are not simulated");
            return Err(Refusal::new(415, "UnsupportedMediaType", message));
        }
    }
    Ok(new)
}

fn is_test_of_absent(operation: &Value, object: &Value) -> bool {
    let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
    text("op") == "test"
        && operation.get("value").is_none_or(Value::is_null)
        && object.pointer(text("path")).is_none()
}
