//! Creating and changing objects, as a real API server does it.

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    budget,
    built_in::NewStatus,
    kinds::{Kind, Model},
    metadata as meta,
    patch::patched,
    refusal::{FieldError, Refusal},
    request::{Place, Request},
    storage::{Key, Storage, generation, is_held, metadata, set_metadata},
    whole_seconds,
};

/// What a write came to.
#[derive(Debug)]
pub struct Written {
    /// HTTP status.
    pub code: u16,
    /// The object as it is now, or a Status.
    pub document: Value,
}

/// Which part of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but the status, where that is a subresource.
    Main,
    /// The status.
    Status,
}

/// Where an object that is to be written comes from: the server words its refusals accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Body,
    Patch,
}

/// The context of one write.
pub struct Writer<'a> {
    /// Where it is written.
    pub storage: &'a mut Storage,
    /// What is written.
    pub place: &'a Place,
    /// Its kind.
    pub kind: &'a Kind,
    /// Now.
    pub now: Timestamp,
}

impl Writer<'_> {
    /// Key of the object of this name.
    pub fn key(&self, name: &str) -> Key {
        Key {
            resource: self.place.resource.clone(),
            namespace: self.place.namespace.clone().unwrap_or_default(),
            name: name.to_owned(),
        }
    }

    /// The object of this name.
    pub fn existing(&self, name: &str) -> Result<(Key, Value), Refusal> {
        let key = self.key(name);
        match self.storage.objects.get(&key) {
            Some(object) => Ok((key, object.as_ref().clone())),
            None => Err(Refusal::not_found(&self.place.resource, name)),
        }
    }

    /// Reads what a client sent as an object of this kind: drops the unknown, fills in defaults.
    fn shaped(&self, mut object: Value, origin: Origin, request: &Request) -> Result<Value, Refusal> {
        self.check_types(&mut object, origin)?;
        let dropped = match &self.kind.model {
            Model::BuiltIn(built_in) => {
                let told = object.clone();
                object = built_in
                    .shape(object)
                    .map_err(|e| self.unreadable(&told, origin, &e.to_string()))?;
                Vec::new()
            }
            Model::Custom(schema) => schema.shape(&mut object),
            Model::Unchecked => Vec::new(),
        };
        let told = object.get("metadata").cloned();
        meta::shape(&mut object)
            .map_err(|e| self.unreadable(&told.unwrap_or_default(), origin, &e.to_string()))?;
        if request.parameter("fieldValidation") == Some("Strict") && !dropped.is_empty() {
            let fields: Vec<String> = dropped.iter().map(|f| format!("unknown field {f:?}")).collect();
            let problem = format!("strict decoding error: {}", fields.join(", "));
            return Err(match origin {
                Origin::Body => Refusal::bad_request(format!(
                    "{} in version {:?} cannot be handled as a {0}: {problem}",
                    self.kind.name, self.kind.version
                )),
                Origin::Patch => Refusal::bad_patch(&object, &problem),
            });
        }
        Ok(object)
    }

    fn unreadable(&self, object: &Value, origin: Origin, problem: &str) -> Refusal {
        let (kind, version) = (&self.kind.name, &self.kind.version);
        match origin {
            Origin::Body => Refusal::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {problem}"
            )),
            Origin::Patch => Refusal::bad_patch(object, problem),
        }
    }

    /// Whether `apiVersion` and `kind` are those of the path. Built-in kinds need not tell them.
    fn check_types(&self, object: &mut Value, origin: Origin) -> Result<(), Refusal> {
        let expected = self.kind.api_version(&self.place.resource);
        let Value::Object(map) = object else {
            return Err(Refusal::bad_request("the body is no object"));
        };
        let text = |field: &str| {
            map.get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (mut version, mut kind) = (text("apiVersion"), text("kind"));
        if self.kind.built_in().is_some() {
            version = if version.is_empty() {
                expected.clone()
            } else {
                version
            };
            kind = if kind.is_empty() {
                self.kind.name.clone()
            } else {
                kind
            };
            if (&version, &kind) != (&expected, &self.kind.name) {
                let problem = format!(
                    "converting ({version}.{kind}) to ({}): unknown conversion",
                    self.kind.name
                );
                let document = Value::Object(map.clone());
                return Err(match origin {
                    Origin::Body => Refusal::bad_request(format!(
                        "{kind} in version {version:?} cannot be handled as a {}: {problem}",
                        self.kind.name
                    )),
                    Origin::Patch => Refusal::bad_patch(&document, &problem),
                });
            }
        } else if kind.is_empty() {
            return Err(Refusal::bad_request(format!(
                "Object 'Kind' is missing in '{}'",
                Value::Object(map.clone())
            )));
        } else if version != expected {
            return Err(Refusal::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({expected})"
            )));
        }
        map.insert("apiVersion".to_owned(), json!(version));
        map.insert("kind".to_owned(), json!(kind));
        Ok(())
    }

    fn check_namespace(&self, object: &mut Value) -> Result<(), Refusal> {
        let Some(namespace) = &self.place.namespace else {
            // What has no namespace loses the one it was given.
            if let Some(map) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                map.remove("namespace");
            }
            return Ok(());
        };
        let told = metadata(object, "namespace").and_then(Value::as_str);
        if told.is_some_and(|told| told != namespace) {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Refusal::bad_request(message));
        }
        set_metadata(object, "namespace", json!(namespace));
        Ok(())
    }

    /// 422 if anything is wrong with the object.
    fn check(&self, object: &Value, old: Option<&Value>) -> Result<(), Refusal> {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let mut errors = Vec::new();
        if kind != self.kind.name {
            let why = format!("must be {}", self.kind.name);
            errors.push(FieldError::invalid("kind", &Value::from(kind), &why));
        }
        errors.extend(meta::errors(&self.place.resource, self.kind, object));
        if let Some(old) = old {
            errors.extend(meta::change_errors(old, object));
        }
        if errors.is_empty() {
            errors.extend(match &self.kind.model {
                Model::BuiltIn(built_in) => built_in.errors(object, old),
                Model::Custom(schema) => schema.errors(object, old),
                Model::Unchecked => Vec::new(),
            });
        }
        if errors.is_empty() {
            return Ok(());
        }
        let name = metadata(object, "name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        // Events are checked as those of the core group, whatever group they came by.
        let group = match self.place.resource.group.as_str() {
            "events.k8s.io" => "",
            group => group,
        };
        Err(Refusal::invalid(group, kind, name, &errors))
    }

    /// POST on a collection.
    pub fn create(&mut self, request: &Request) -> Result<Written, Refusal> {
        let mut object = self.shaped(parse(&request.body)?, Origin::Body, request)?;
        self.check_namespace(&mut object)?;
        let has_revision = metadata(&object, "resourceVersion").is_some();
        let object = self.made(object)?;
        if has_revision {
            return Err(Refusal::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.insert(object)
    }

    /// A new object as it is stored.
    fn made(&mut self, mut object: Value) -> Result<Value, Refusal> {
        self.prepare(&mut object);
        if let Some(built_in) = self.kind.built_in() {
            // A Job selects by its UID, which it has only now.
            object = built_in
                .shape(object)
                .map_err(|e| Refusal::internal(e.to_string()))?;
        }
        self.check(&object, None)?;
        Ok(object)
    }

    fn insert(&mut self, object: Value) -> Result<Written, Refusal> {
        let name = metadata(&object, "name").and_then(Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        let key = self.key(&name);
        if self.storage.objects.contains_key(&key) {
            return Err(Refusal::already_exists(&self.place.resource, &name));
        }
        let stored = self.storage.put(&key, object);
        self.aftermath(&key);
        Ok(Written {
            code: 201,
            document: stored.as_ref().clone(),
        })
    }

    /// Sets what a new object gets from the server.
    fn prepare(&mut self, object: &mut Value) {
        let uid = self.storage.new_uid();
        if let Value::Object(map) = object {
            match self.kind.built_in().map(|b| b.new_status) {
                Some(NewStatus::Is(status)) => drop(map.insert("status".to_owned(), status())),
                None if self.kind.has_status => drop(map.remove("status")),
                Some(NewStatus::AsTold) | None => {}
            }
        }
        if let Some(Value::Object(fields)) = object.get_mut("metadata") {
            for field in [
                "resourceVersion",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generation",
            ] {
                fields.remove(field);
            }
            let prefix = fields
                .get("generateName")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if !fields.contains_key("name") && !prefix.is_empty() {
                let name = meta::generated_name(prefix, self.storage.new_number());
                fields.insert("name".to_owned(), json!(name));
            }
            fields.insert("uid".to_owned(), json!(uid));
            fields.insert("creationTimestamp".to_owned(), json!(whole_seconds(self.now)));
            if self.kind.has_generation() {
                fields.insert("generation".to_owned(), json!(1));
            }
        }
    }

    /// What controllers of Kubernetes do at once.
    pub fn aftermath(&mut self, key: &Key) {
        self.storage.collect(key, self.now);
        if budget::counts(key) {
            self.storage.count_budgets(&key.namespace);
        }
    }

    fn told(&self, object: Value, origin: Origin, request: &Request, name: &str) -> Result<Value, Refusal> {
        let object = self.shaped(object, origin, request)?;
        check_name(&object, name)?;
        Ok(object)
    }

    /// PUT and PATCH of an object or of its status.
    pub fn update(&mut self, request: &Request, name: &str, part: Part) -> Result<Written, Refusal> {
        let origin = if request.method == Method::PUT {
            Origin::Body
        } else {
            Origin::Patch
        };
        // A body is looked at before the object, which a patch needs.
        let body = match origin {
            Origin::Body => Some(self.told(parse(&request.body)?, origin, request, name)?),
            Origin::Patch => None,
        };
        let found = self.existing(name);
        let body = match (body, &found, part) {
            (Some(body), Err(_), Part::Main) if self.kind.built_in().is_some_and(|b| b.made_by_put) => {
                return self.make_by_put(body, name);
            }
            (body, ..) => body,
        };
        let (key, old) = found?;
        let mut new = if let Some(body) = body {
            body
        } else {
            let new = patched(&old, request, self.kind.built_in().is_none())?;
            self.told(new, origin, request, name)?
        };
        self.check_namespace(&mut new)?;
        self.check_revision(&old, &new, name, origin)?;
        let uid_errors = meta::change_errors(&old, &new);
        if !uid_errors.is_empty() {
            let kind = &self.kind.name;
            return Err(Refusal::invalid(
                &self.place.resource.group,
                kind,
                name,
                &uid_errors,
            ));
        }
        let new = self.merged(&old, new, part);
        if new != old {
            self.check(&new, Some(&old))?;
        }
        let document = self.store(&key, &old, new);
        self.aftermath(&key);
        Ok(Written { code: 200, document })
    }

    /// Stores a changed object, and returns what the client is told.
    fn store(&mut self, key: &Key, old: &Value, new: Value) -> Value {
        let going = metadata(&new, "deletionTimestamp").is_some() && !is_held(&new);
        let is_given_time = metadata(&new, "deletionGracePeriodSeconds").and_then(Value::as_i64) > Some(0);
        if going && !is_given_time {
            // The last finalizer went away: what watches see last is the object as it was stored.
            self.storage.remove(key, self.now);
            new
        } else if new == *old {
            // A write that changes nothing makes no event and no new revision.
            new
        } else {
            let stored = self.storage.put(key, new);
            stored.as_ref().clone()
        }
    }

    /// PUT of what is not there. A revision in the body does not matter, a UID does.
    fn make_by_put(&mut self, mut object: Value, name: &str) -> Result<Written, Refusal> {
        self.check_namespace(&mut object)?;
        if let Some(uid) = metadata(&object, "uid").and_then(Value::as_str) {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
            return Err(Refusal::conflict_because(&self.place.resource, name, &why));
        }
        let object = self.made(object)?;
        self.insert(object)
    }

    /// Whether the client knows the newest revision, if it says which it knows.
    fn check_revision(&self, old: &Value, new: &Value, name: &str, origin: Origin) -> Result<(), Refusal> {
        let resource = &self.place.resource;
        match metadata(new, "resourceVersion").and_then(Value::as_str) {
            None if self.kind.built_in().is_none() => {
                let why = "must be specified for an update";
                let error = FieldError::invalid("metadata.resourceVersion", &json!(0), why);
                return Err(Refusal::invalid(
                    &resource.group,
                    &resource.plural,
                    name,
                    &[error],
                ));
            }
            Some(told) if told.parse::<u64>().is_err() => {
                let message = format!("strconv.ParseUint: parsing {told:?}: invalid syntax");
                return Err(Refusal::internal(message));
            }
            Some(told) if metadata(old, "resourceVersion") != Some(&json!(told)) => {
                return Err(Refusal::conflict(resource, name));
            }
            Some(_) | None => {}
        }
        let (uid, is) = (metadata(new, "uid"), metadata(old, "uid"));
        if origin == Origin::Body && uid.is_some() && uid != is {
            let text = |uid: Option<&Value>| uid.and_then(Value::as_str).unwrap_or_default().to_owned();
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                text(uid),
                text(is)
            );
            return Err(Refusal::conflict_because(resource, name, &why));
        }
        Ok(())
    }

    /// The object with what this part of it may change.
    fn merged(&self, old: &Value, mut new: Value, part: Part) -> Value {
        let revision = metadata(old, "resourceVersion").cloned().unwrap_or_default();
        meta::keep_the_servers(old, &mut new);
        set_metadata(&mut new, "resourceVersion", revision);
        match part {
            Part::Main => {
                if self.kind.has_status {
                    replace(&mut new, "status", old.get("status").cloned());
                }
                if self.kind.has_generation() && self.is_new_generation(old, &new) {
                    set_metadata(&mut new, "generation", json!(generation(old) + 1));
                }
                new
            }
            Part::Status => {
                let mut object = old.clone();
                replace(&mut object, "status", new.get("status").cloned());
                // Only built-in kinds let metadata change with the status.
                if self.kind.built_in().is_some() {
                    replace(&mut object, "metadata", new.get("metadata").cloned());
                }
                object
            }
        }
    }

    /// A change of anything but metadata and, where it is a subresource, status.
    fn is_new_generation(&self, old: &Value, new: &Value) -> bool {
        let counts = |field: &str| field != "metadata" && !(field == "status" && self.kind.has_status);
        let fields = |object: &Value| object.as_object().cloned().unwrap_or_default();
        let (old, new) = (fields(old), fields(new));
        old.keys()
            .chain(new.keys())
            .any(|field| counts(field) && old.get(field) != new.get(field))
    }
}

fn check_name(object: &Value, name: &str) -> Result<(), Refusal> {
    match metadata(object, "name").and_then(Value::as_str) {
        Some(told) if told == name => Ok(()),
        Some(told) => Err(Refusal::bad_request(format!(
            "the name of the object ({told}) does not match the name on the URL ({name})"
        ))),
        None => Err(Refusal::bad_request("name must be provided")),
    }
}

/// Reads a body.
pub fn parse(body: &[u8]) -> Result<Value, Refusal> {
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
