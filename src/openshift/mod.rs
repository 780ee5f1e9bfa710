//! The views we need of OpenShift's kinds: only fields that something reads, written by hand.
//!
//! Sources of the shapes: github.com/openshift/api (config/v1, machineconfiguration/v1).

pub mod cluster_operator;
pub mod cluster_version;
pub mod infrastructure;
pub mod machine;
pub mod machine_config;
pub mod machine_config_pool;
mod metrics;
pub mod node;

pub use metrics::metrics;

use serde::{Deserialize, Serialize};

/// A condition as OpenShift's config kinds write it (`reason` and `message` are optional there).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Type, such as `Progressing`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
}

/// The condition of this type.
pub fn condition<'a>(conditions: &'a [StatusCondition], type_: &str) -> Option<&'a StatusCondition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition of this type is `True`; absent is not.
pub fn is_true(conditions: &[StatusCondition], type_: &str) -> bool {
    condition(conditions, type_).is_some_and(|c| c.status == "True")
}

/// Whether the condition of this type is `False`; absent is not.
pub fn is_false(conditions: &[StatusCondition], type_: &str) -> bool {
    condition(conditions, type_).is_some_and(|c| c.status == "False")
}
