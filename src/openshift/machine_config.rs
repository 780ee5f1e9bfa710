//! `machineconfiguration.openshift.io/v1` MachineConfig: only its metadata is ever read.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Annotation of a rendered MachineConfig: the release it was rendered for.
pub const RELEASE_VERSION: &str = "machineconfiguration.openshift.io/release-image-version";

/// Spec of a MachineConfig: not read (it is hundreds of kilobytes).
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfig",
    plural = "machineconfigs",
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct MachineConfigSpec {}
