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
    derive = "PartialEq",
    doc = "A time without upgrades, such as holidays: from `start` to just before `end`.",
    shortname = "usw",
    category = "managedupgrade",
    printcolumn(name = "Start", type_ = "string", json_path = ".spec.start"),
    printcolumn(name = "End", type_ = "string", json_path = ".spec.end"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason"),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Configs",
        type_ = "string",
        json_path = ".status.matchingConfigs",
        priority = 1
    ),
    printcolumn(
        name = "Jobs",
        type_ = "string",
        json_path = ".status.matchingJobs",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.start < self.end")
    .message("end must be later than start: the window lasts from start to just before end"))]
pub struct UpgradeSuspensionWindowSpec {
    /// First instant of the window.
    #[serde(deserialize_with = "crate::api::time::read")]
    pub start: Time,
    /// First instant after the window.
    #[serde(deserialize_with = "crate::api::time::read")]
    pub end: Time,
    /// Why; shown wherever something was skipped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
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
    /// UpgradeConfigs that `configSelector` matches, sorted; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matching_configs: Vec<MatchingObject>,
    /// How many more UpgradeConfigs it matches.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub more_matching_configs: i64,
    /// UpgradeJobs that `jobSelector` matches, sorted; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matching_jobs: Vec<MatchingObject>,
    /// How many more UpgradeJobs it matches.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub more_matching_jobs: i64,
    /// Condition `Valid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A matched object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MatchingObject {
    /// Its name.
    pub name: String,
}
