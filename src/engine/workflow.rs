//! A workflow as it was read, and writes to it.

use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

/// A workflow as it was read from the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    /// The workflow itself.
    pub object: DynamicObject,
    /// The objects that the engine made of its steps; empty with engines that keep the steps in the workflow.
    pub steps: Vec<DynamicObject>,
}

/// A workflow without objects of its steps.
impl From<DynamicObject> for Workflow {
    fn from(object: DynamicObject) -> Self {
        Self {
            object,
            steps: Vec::new(),
        }
    }
}

/// What of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The object.
    Object,
    /// Its subresource `status`.
    Status,
}

/// A merge patch of one object of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The kind of the object.
    pub resource: ApiResource,
    /// Its name.
    pub name: String,
    /// What of it is written.
    pub place: Place,
    /// The merge patch, guarded by the resourceVersion that was read.
    pub patch: Value,
}

impl Write {
    /// A write of `change`, which holds only while the object is as it was read. `None` for an object that was not read from
    /// an API server: nothing would guard the write.
    pub fn guarded(
        resource: ApiResource,
        object: &DynamicObject,
        place: Place,
        mut change: Value,
    ) -> Option<Self> {
        let version = object.resource_version()?;
        json_patch::merge(&mut change, &json!({"metadata": {"resourceVersion": version}}));
        Some(Self {
            resource,
            name: object.name_any(),
            place,
            patch: change,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_holds_only_for_what_was_read() {
        let object = |version: Option<&str>| -> DynamicObject {
            serde_json::from_value(
                json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x", "resourceVersion": version}}),
            )
            .unwrap()
        };
        let resource = || ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
        let change = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"suspend": null}});
        let write = Write::guarded(resource(), &object(Some("7")), Place::Object, change.clone()).unwrap();
        let expected =
            json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}, "spec": {"suspend": null}});
        assert_eq!((write.name.as_str(), write.patch), ("x", expected));
        assert_eq!(
            Write::guarded(resource(), &object(None), Place::Object, change),
            None
        );
    }
}
