//! UpgradeSuspensionWindow: when not to upgrade.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A time without upgrades, such as holidays; `start` ≤ t < `end`.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "managedupgrade.appuio.io",
    version = "v1beta1",
    kind = "UpgradeSuspensionWindow",
    plural = "upgradesuspensionwindows",
    namespaced,
    status = "UpgradeSuspensionWindowStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeSuspensionWindowSpec {
    /// First instant of the window.
    pub start: Time,
    /// First instant after the window.
    pub end: Time,
    /// Why; shown wherever something was skipped.
    #[serde(default)]
    pub reason: String,
    /// UpgradeConfigs whose runs in the window make no job. Absent = none, `{}` = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_selector: Option<LabelSelector>,
    /// UpgradeJobs that do not start in the window. Absent = none, `{}` = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_selector: Option<LabelSelector>,
}

/// What the operator observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeSuspensionWindowStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// UpgradeConfigs that `configSelector` matches, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matching_configs: Vec<MatchingObject>,
    /// UpgradeJobs that `jobSelector` matches, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matching_jobs: Vec<MatchingObject>,
    /// Condition `Valid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A matched object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MatchingObject {
    /// Its name.
    pub name: String,
}
