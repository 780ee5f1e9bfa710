//! `machineconfiguration.openshift.io/v1` MachineConfigPool.

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube::{CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::StatusCondition;

/// Label of a pool without which the control plane cannot complete an upgrade.
pub const REQUIRED_FOR_UPGRADE: &str = "operator.machineconfiguration.openshift.io/required-for-upgrade";

/// Spec of a MachineConfigPool; fields that we do not read are kept in `other`.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfigPool",
    plural = "machineconfigpools",
    status = "MachineConfigPoolStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolSpec {
    /// Whether the machine-config operator leaves the pool's nodes alone.
    #[serde(default)]
    pub paused: bool,
    /// How many nodes may be away at a time. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// The rendered MachineConfig to reach.
    #[serde(default)]
    pub configuration: Configuration,
    /// Which nodes belong to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Everything else.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// Reference to a rendered MachineConfig.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Name, `rendered-<pool>-<hash>`.
    #[serde(default)]
    pub name: String,
    /// Everything else.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// Status of a MachineConfigPool.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolStatus {
    /// Generation of the spec that the machine-config operator has seen.
    #[serde(default)]
    pub observed_generation: i64,
    /// The rendered MachineConfig that the whole pool has reached.
    #[serde(default)]
    pub configuration: Configuration,
    /// Nodes in the pool.
    #[serde(default)]
    pub machine_count: i64,
    /// Nodes at the wanted configuration.
    #[serde(default)]
    pub updated_machine_count: i64,
    /// Nodes at the wanted configuration and ready.
    #[serde(default)]
    pub ready_machine_count: i64,
    /// Nodes that are away.
    #[serde(default)]
    pub unavailable_machine_count: i64,
    /// Nodes in trouble.
    #[serde(default)]
    pub degraded_machine_count: i64,
    /// Updated, Updating, Degraded, NodeDegraded, RenderDegraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
}

impl MachineConfigPool {
    /// Whether a pause of this pool would block the control plane's upgrade: `master`, or labelled so.
    pub fn is_required_for_upgrade(&self) -> bool {
        self.name_any() == "master" || self.labels().contains_key(REQUIRED_FOR_UPGRADE)
    }

    /// The status, empty if there is none yet.
    pub fn state(&self) -> MachineConfigPoolStatus {
        self.status.clone().unwrap_or_default()
    }

    /// The conditions.
    pub fn conditions(&self) -> &[StatusCondition] {
        self.status.as_ref().map_or(&[], |s| s.conditions.as_slice())
    }
}
