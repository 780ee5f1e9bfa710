//! `config.openshift.io/v1` Infrastructure.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Name of the one Infrastructure object.
pub const NAME: &str = "cluster";

/// Spec of the Infrastructure: not read.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Infrastructure",
    plural = "infrastructures",
    status = "InfrastructureStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct InfrastructureSpec {}

/// Status of the Infrastructure.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// `HighlyAvailable`, `SingleReplica` or `External`.
    #[serde(default)]
    pub control_plane_topology: String,
}
