//! `config.openshift.io/v1` ClusterOperator.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::StatusCondition;

/// Spec of a ClusterOperator: empty.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterOperator",
    plural = "clusteroperators",
    status = "ClusterOperatorStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct ClusterOperatorSpec {}

/// Status of a ClusterOperator.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOperatorStatus {
    /// Available, Degraded, Progressing, Upgradeable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
    /// Versions of its operands; `operator` is the release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<OperandVersion>,
}

/// Version of one operand.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct OperandVersion {
    /// Operand.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl ClusterOperator {
    /// The conditions.
    pub fn conditions(&self) -> &[StatusCondition] {
        self.status.as_ref().map_or(&[], |s| s.conditions.as_slice())
    }

    /// The release that the operator has reached.
    pub fn operator_version(&self) -> Option<&str> {
        let versions = &self.status.as_ref()?.versions;
        versions
            .iter()
            .find(|v| v.name == "operator")
            .map(|v| v.version.as_str())
    }
}
