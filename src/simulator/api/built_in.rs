//! Kubernetes' own kinds: reading them as their types, and what each does in its own way.

use std::fmt;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        batch::v1::{CronJob, Job},
        coordination::v1::Lease,
        core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service, ServiceAccount},
        events::v1::Event,
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{batch, metadata::is_config_key, refusal::FieldError};

/// What is known of a built-in kind.
#[derive(Clone, Copy)]
pub struct BuiltIn {
    read: fn(Value) -> Result<Value, serde_json::Error>,
    /// Whether its objects count their generations.
    pub has_generation: bool,
    /// Status of a new object.
    pub new_status: NewStatus,
    /// Fields besides those of the metadata by which a list may select.
    pub selectable: &'static [&'static str],
    /// Whether an object leaves what it owns behind, unless told otherwise: `batch/v1` Jobs do, for reasons of old.
    pub orphans: bool,
    /// Whether a PUT creates an object that is not there.
    pub made_by_put: bool,
    fill: fn(&mut Value),
    errors: fn(&Value, Option<&Value>) -> Vec<FieldError>,
}

/// What becomes of the status that an object is created with.
#[derive(Clone, Copy, Debug)]
pub enum NewStatus {
    /// It is taken.
    AsTold,
    /// This takes its place, as JSON.
    Is(fn() -> Value),
}

impl fmt::Debug for BuiltIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltIn").finish_non_exhaustive()
    }
}

fn read<T: Serialize + DeserializeOwned>(object: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(object)?)
}

impl BuiltIn {
    /// The built-in kind of this name.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        let found = match (group, kind) {
            ("", "ConfigMap") => Self {
                errors: config_map_errors,
                ..Self::plain::<ConfigMap>()
            },
            ("", "Secret") => Self::plain::<Secret>(),
            ("", "Service") => Self::plain::<Service>(),
            ("", "ServiceAccount") => Self::plain::<ServiceAccount>(),
            ("", "Pod") => Self {
                has_generation: true,
                new_status: NewStatus::Is(|| json!({"phase": "Pending", "qosClass": "BestEffort"})),
                selectable: &[
                    "spec.nodeName",
                    "spec.restartPolicy",
                    "spec.schedulerName",
                    "spec.serviceAccountName",
                    "status.phase",
                ],
                fill: |pod| pod.get_mut("spec").into_iter().for_each(batch::fill_pod_spec),
                ..Self::plain::<Pod>()
            },
            ("", "Namespace") => Self {
                new_status: NewStatus::Is(|| json!({"phase": "Active"})),
                selectable: &["status.phase"],
                ..Self::plain::<Namespace>()
            },
            ("", "Node") => Self {
                selectable: &["spec.unschedulable"],
                fill: |node| ensure(node, &["spec", "status"]),
                ..Self::plain::<Node>()
            },
            ("apps", "Deployment") => Self::counted::<Deployment>(),
            ("batch", "Job") => Self {
                selectable: &["status.successful"],
                orphans: true,
                fill: batch::fill_job,
                errors: batch::job_errors,
                ..Self::counted::<Job>()
            },
            ("batch", "CronJob") => Self::counted::<CronJob>(),
            ("coordination.k8s.io", "Lease") => Self {
                fill: |lease| ensure(lease, &["spec"]),
                errors: lease_errors,
                made_by_put: true,
                ..Self::plain::<Lease>()
            },
            ("events.k8s.io", "Event") => Self {
                errors: event_errors,
                made_by_put: true,
                ..Self::plain::<Event>()
            },
            ("policy", "PodDisruptionBudget") => Self::counted::<PodDisruptionBudget>(),
            ("networking.k8s.io", "NetworkPolicy") => Self {
                has_generation: true,
                ..Self::plain::<NetworkPolicy>()
            },
            ("rbac.authorization.k8s.io", "Role") => Self::plain::<Role>(),
            ("rbac.authorization.k8s.io", "RoleBinding") => Self::plain::<RoleBinding>(),
            ("rbac.authorization.k8s.io", "ClusterRole") => Self::plain::<ClusterRole>(),
            ("rbac.authorization.k8s.io", "ClusterRoleBinding") => Self::plain::<ClusterRoleBinding>(),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                Self::counted::<CustomResourceDefinition>()
            }
            _ => return None,
        };
        Some(found)
    }

    fn plain<T: Serialize + DeserializeOwned>() -> Self {
        Self {
            read: read::<T>,
            has_generation: false,
            new_status: NewStatus::AsTold,
            selectable: &[],
            orphans: false,
            made_by_put: false,
            fill: |_| {},
            errors: |_, _| Vec::new(),
        }
    }

    /// A kind with generations and a status of its controller.
    fn counted<T: Serialize + DeserializeOwned>() -> Self {
        Self {
            has_generation: true,
            new_status: NewStatus::Is(|| json!({})),
            ..Self::plain::<T>()
        }
    }

    /// Reads an object as one of this kind: drops what the kind does not know, and fills in defaults.
    pub fn shape(&self, object: Value) -> Result<Value, serde_json::Error> {
        let mut object = (self.read)(object)?;
        (self.fill)(&mut object);
        Ok(object)
    }

    /// What is wrong with a new object, or with one that was changed.
    pub fn errors(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        (self.errors)(object, old)
    }
}

/// Parts that are always there, be they empty.
fn ensure(object: &mut Value, parts: &[&str]) {
    if let Value::Object(map) = object {
        for part in parts {
            map.entry(*part).or_insert_with(|| json!({}));
        }
    }
}

fn config_map_errors(object: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let data = object.get("data").and_then(Value::as_object);
    let keys = data.into_iter().flatten().map(|(key, _)| key);
    keys.filter(|key| !is_config_key(key))
        .map(|key| {
            let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                       'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
            FieldError::invalid(format!("data[{key}]"), &Value::from(key.as_str()), why)
        })
        .collect()
}

fn lease_errors(object: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let spec = object.get("spec");
    let number = |field: &str| spec.and_then(|s| s.get(field)).filter(|v| v.is_i64());
    let mut errors = Vec::new();
    if let Some(seconds) = number("leaseDurationSeconds").filter(|s| s.as_i64() <= Some(0)) {
        let why = "must be greater than 0";
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, why));
    }
    if let Some(count) = number("leaseTransitions").filter(|s| s.as_i64() < Some(0)) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.leaseTransitions", count, why));
    }
    errors
}

/// As `validateV1EventCreate` of Kubernetes' `pkg/apis/core/validation/events.go`.
fn event_errors(event: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if old.is_some() {
        return Vec::new();
    }
    let text = |field: &str| event.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Vec::new();
    if text("eventTime").is_empty() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let name = Value::from(text("reportingController"));
    if text("reportingController").is_empty() {
        errors.push(FieldError::required("reportingController", ""));
    } else if !super::metadata::is_qualified_name(text("reportingController")) {
        let why = "name part must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(FieldError::invalid("reportingController", &name, why));
    }
    for (field, most) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = text(field);
        if value.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if value.len() > most {
            let why = format!("can have at most {most} characters");
            errors.push(FieldError::invalid(field, &Value::from(""), &why));
        }
    }
    if text("note").len() > 1_024 {
        // The name of the field in core/v1.
        let why = "can have at most 1024 characters";
        errors.push(FieldError::invalid("message", &Value::from(""), why));
    }
    if !matches!(text("type"), "Normal" | "Warning") {
        let why = format!("has invalid value: {}", text("type"));
        errors.push(FieldError::invalid("type", &Value::from(""), &why));
    }
    errors
}
