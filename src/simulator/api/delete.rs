//! Deleting objects, evicting pods, binding pods.

use serde_json::{Value, json};

use super::{
    budget,
    collector::Policy,
    refusal::{FieldError, Refusal},
    request::Request,
    selector::Filter,
    storage::{Key, metadata},
    write::{Writer, Written, parse},
};

/// Seconds that a pod has to end.
const GRACE: u64 = 30;

/// How something is deleted.
struct Options {
    policy: Option<Policy>,
    grace: Option<u64>,
    uid: Option<String>,
    revision: Option<String>,
}

impl Options {
    fn of(request: &Request) -> Result<Self, Refusal> {
        let body = if request.body.is_empty() {
            Value::Null
        } else {
            parse(&request.body)?
        };
        Self::read(&body, request)
    }

    fn read(body: &Value, request: &Request) -> Result<Self, Refusal> {
        let text = |path: &str| body.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let policy = text("/propagationPolicy");
        let policy = policy
            .as_deref()
            .or_else(|| request.parameter("propagationPolicy"));
        let path = "propagationPolicy";
        let orphans = body.get("orphanDependents").filter(|o| !o.is_null());
        let wrong = match policy {
            Some(_) if orphans.is_some() => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                Some(FieldError::invalid(path, &json!(policy), why))
            }
            None | Some("Background" | "Foreground" | "Orphan") => None,
            Some(other) => {
                let all = ["Foreground", "Background", "Orphan", "nil"].map(Value::from);
                Some(FieldError::not_supported(path, &json!(other), &all))
            }
        };
        if let Some(error) = wrong {
            return Err(Refusal::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
        }
        Ok(Self {
            policy: match policy {
                Some("Foreground") => Some(Policy::Foreground),
                Some("Orphan") => Some(Policy::Orphan),
                Some(_) => Some(Policy::Background),
                None if orphans == Some(&Value::Bool(true)) => Some(Policy::Orphan),
                None => None,
            },
            grace: body.get("gracePeriodSeconds").and_then(Value::as_u64),
            uid: text("/preconditions/uid"),
            revision: text("/preconditions/resourceVersion"),
        })
    }
}

impl Writer<'_> {
    /// DELETE of an object.
    pub fn delete(&mut self, request: &Request, name: &str) -> Result<Written, Refusal> {
        let options = Options::of(request)?;
        let (key, old) = self.existing(name)?;
        self.check_preconditions(&options, &old, name)?;
        let (last, is_there) = self.go(&key, &old, &options);
        // Most kinds say of what is gone that it is gone; pods are shown once more.
        let document = if is_there || self.kind.name == "Pod" {
            last
        } else {
            let resource = &self.place.resource;
            let mut details = json!({"name": name, "kind": resource.plural, "uid": metadata(&old, "uid")});
            if let (Value::Object(map), false) = (&mut details, resource.group.is_empty()) {
                map.insert("group".to_owned(), json!(resource.group));
            }
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            })
        };
        Ok(Written { code: 200, document })
    }

    fn go(&mut self, key: &Key, old: &Value, options: &Options) -> (Value, bool) {
        let orphans = self.kind.built_in().is_some_and(|b| b.orphans);
        let default = if orphans {
            Policy::Orphan
        } else {
            Policy::Background
        };
        let grace = if self.kind.name == "Pod" && has_begun(old) {
            let own = old
                .pointer("/spec/terminationGracePeriodSeconds")
                .and_then(Value::as_u64);
            options.grace.or(own).unwrap_or(GRACE)
        } else {
            0
        };
        let policy = options.policy.unwrap_or(default);
        let (last, is_there) = match self.storage.delete(key, policy, grace, self.now) {
            Some((last, is_there)) => (last.as_ref().clone(), is_there),
            None => (old.clone(), false),
        };
        if budget::counts(key) {
            self.storage.count_budgets(&key.namespace);
        }
        (last, is_there)
    }

    fn check_preconditions(&self, options: &Options, object: &Value, name: &str) -> Result<(), Refusal> {
        let text = |field: &str| {
            metadata(object, field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let why = match (&options.uid, &options.revision) {
            (Some(uid), _) if uid != text("uid") => format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                text("uid")
            ),
            (_, Some(revision)) if revision != text("resourceVersion") => format!(
                "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). \
                 The object might have been modified",
                text("resourceVersion")
            ),
            (Some(_) | None, Some(_) | None) => return Ok(()),
        };
        // Here the real server names the kind, where it names the resource elsewhere.
        let mut refusal = Refusal::conflict_because(&self.place.resource, name, &why);
        let kind = &self.kind.name;
        let qualified = match self.place.resource.group.as_str() {
            "" => kind.clone(),
            group => format!("{kind}.{group}"),
        };
        refusal.message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
        if let Some(map) = refusal.details.as_object_mut() {
            map.insert("kind".to_owned(), json!(kind));
        }
        Err(refusal)
    }

    /// DELETE of a collection.
    pub fn delete_all(&mut self, request: &Request) -> Result<Written, Refusal> {
        let options = Options::of(request)?;
        let filter = Filter::of(request, self.place.namespace.as_deref(), self.kind)?;
        let all: Vec<(Key, Value)> = self
            .storage
            .of_kind(&self.place.resource)
            .filter(|(_, object)| filter.matches(object))
            .map(|(key, object)| (key.clone(), object.as_ref().clone()))
            .collect();
        let mut items = Vec::new();
        for (key, object) in all {
            items.push(self.go(&key, &object, &options).0);
        }
        let document = json!({
            "kind": format!("{}List", self.kind.name), "apiVersion": self.kind.api_version(&self.place.resource),
            "metadata": {"resourceVersion": self.storage.revision.to_string()}, "items": items,
        });
        Ok(Written { code: 200, document })
    }

    /// POST on `pods/eviction`: the pod is deleted, if its budgets allow it.
    pub fn evict(&mut self, request: &Request, name: &str) -> Result<Written, Refusal> {
        let (key, pod) = self.existing(name)?;
        let body = parse(&request.body)?;
        let options = Options::read(body.get("deleteOptions").unwrap_or(&Value::Null), request)?;
        self.check_preconditions(&options, &pod, name)?;
        self.storage.check_eviction(&pod, &key.namespace)?;
        self.go(&key, &pod, &options);
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

/// A pod that no node has yet, or that is over, needs no time to end.
fn has_begun(pod: &Value) -> bool {
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
    !text("/spec/nodeName").is_empty() && !matches!(text("/status/phase"), "Succeeded" | "Failed")
}

fn success() -> Written {
    Written {
        code: 201,
        document: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    }
}
