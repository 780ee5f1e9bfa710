//! What the simulator wants written, as data.

use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, jsonptr::PointerBuf};
use kube::{
    Resource, ResourceExt,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Map, Value};

/// An object that a write is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its kind.
    pub resource: ApiResource,
    /// Its namespace; `None` where the kind has none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The resourceVersion that the write was decided from.
    pub version: String,
}

/// A pod; the UID keeps the write from hitting its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// One write.
#[derive(Clone, Debug)]
pub enum Write {
    /// Create the object; a status in it is written later, as a patch of its own.
    Create(ApiResource, Box<DynamicObject>),
    /// A JSON patch that sets `metadata.resourceVersion`: an object that changed meanwhile gives a conflict.
    Patch {
        /// What to patch.
        target: Target,
        /// Whether it goes to the status subresource.
        status: bool,
        /// The operations.
        patch: Patch,
    },
    /// Evict a pod through the eviction subresource: budgets count.
    Evict(PodRef),
    /// Bind a pod to a node, as a scheduler does.
    Bind(PodRef, String),
    /// Delete a pod that is being deleted, with grace period 0: what a kubelet does at the end.
    FinishDeletion(PodRef),
}

/// Creates `object`.
pub fn create<K>(object: &K) -> Option<Write>
where
    K: Resource<DynamicType = ()> + serde::Serialize,
{
    let mut value = typed_value(object)?;
    value.as_object_mut()?.remove("status");
    let object = serde_json::from_value(value).ok()?;
    Some(Write::Create(ApiResource::erase::<K>(&()), Box::new(object)))
}

/// The write that leads from `old` to `new`: metadata and spec first; the status only when these agree.
///
/// One object gets one write at a time, because the first one changes the resourceVersion.
pub fn update<K>(old: &K, new: &K) -> Option<Write>
where
    K: Resource<DynamicType = ()> + serde::Serialize,
{
    let (before, after) = (typed_value(old)?, typed_value(new)?);
    let mut main = Vec::new();
    for key in ["labels", "annotations"] {
        let pointer = ["metadata", key];
        let (b, a) = (at(&before, &pointer), at(&after, &pointer));
        if a != b {
            main.push(operation(&pointer, a));
        }
    }
    main.extend(section(&before, &after, "spec"));
    let (status, operations) = if main.is_empty() {
        (true, section(&before, &after, "status"))
    } else {
        (false, main)
    };
    if operations.is_empty() {
        return None;
    }
    let version = old.resource_version()?;
    let mut patch = vec![operation(
        &["metadata", "resourceVersion"],
        Some(&Value::String(version.clone())),
    )];
    patch.extend(operations);
    Some(Write::Patch {
        target: Target {
            resource: ApiResource::erase::<K>(&()),
            namespace: old.namespace(),
            name: old.name_any(),
            version,
        },
        status,
        patch: Patch(patch),
    })
}

/// Types of k8s-openapi carry their kind in serialisation, ours by derive; both give a complete object.
fn typed_value<K: serde::Serialize>(object: &K) -> Option<Value> {
    serde_json::to_value(object).ok()
}

/// The fields of a section that differ. Fields that the types don't know stay as they are.
fn section(before: &Value, after: &Value, name: &str) -> Vec<PatchOperation> {
    let (old, new) = (at(before, &[name]), at(after, &[name]));
    let (Some(Value::Object(old)), Some(Value::Object(new))) = (old, new) else {
        return if old == new {
            Vec::new()
        } else {
            vec![operation(&[name], new)]
        };
    };
    changed_keys(old, new)
        .map(|key| operation(&[name, key], new.get(key)))
        .collect()
}

fn changed_keys<'a>(
    old: &'a Map<String, Value>,
    new: &'a Map<String, Value>,
) -> impl Iterator<Item = &'a str> {
    let removed = old.keys().filter(|k| !new.contains_key(*k));
    let changed = new.iter().filter(|(k, v)| old.get(*k) != Some(v)).map(|(k, _)| k);
    removed.chain(changed).map(String::as_str)
}

fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |v, key| v.get(key))
}

/// `add` replaces what is there; `None` removes.
fn operation(path: &[&str], value: Option<&Value>) -> PatchOperation {
    let path = PointerBuf::from_tokens(path.iter().copied());
    match value {
        Some(value) => PatchOperation::Add(AddOperation {
            path,
            value: value.clone(),
        }),
        None => PatchOperation::Remove(RemoveOperation { path }),
    }
}
