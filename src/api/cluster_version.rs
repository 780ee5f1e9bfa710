//! ClusterVersion (ours): the spec of the cluster's ClusterVersion, with changes at given times.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Manages the spec of the cluster's ClusterVersion; only the object named `version` is served.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "managedupgrade.appuio.io",
    version = "v1beta1",
    kind = "ClusterVersion",
    plural = "clusterversions",
    namespaced,
    status = "ClusterVersionStatus",
    derive = "PartialEq",
    doc = "The spec of the cluster's ClusterVersion, with changes at given times. Only the object named `version` counts.",
    shortname = "mcv",
    category = "managedupgrade",
    printcolumn(name = "Channel", type_ = "string", json_path = ".status.current.channel"),
    printcolumn(name = "Overlay", type_ = "string", json_path = ".status.overlayApplied"),
    printcolumn(
        name = "Applied",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Applied\")].reason"
    ),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Problem",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVersionSpec {
    /// The base.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub template: Template,
    /// Changes; the newest whose `from` has come is laid over the base. Overlays do not accumulate, and cannot
    /// remove a field of the base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<Overlay>,
}

/// Spec of a `config.openshift.io/v1` ClusterVersion; `desiredUpdate` in it is ignored.
pub type UpstreamSpec = serde_json::Map<String, serde_json::Value>;

fn upstream_spec(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "clusterID": {"type": "string", "description": "Identity of the cluster, a UUID."},
            "channel": {"type": "string", "description": "Update channel, such as stable-4.18."},
            "upstream": {"type": "string", "description": "Update service. Default: Red Hat's."}
        }
    })
}

/// The base.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Template {
    /// Spec of the ClusterVersion; `desiredUpdate` is ignored.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    #[schemars(schema_with = "upstream_spec")]
    pub spec: UpstreamSpec,
}

/// A change at a given time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overlay {
    /// From when on it applies.
    #[serde(deserialize_with = "crate::api::time::read")]
    pub from: Time,
    /// What it lays over the base.
    pub overlay: Template,
}

/// What the operator observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVersionStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The spec that the cluster has, without `desiredUpdate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "upstream_spec")]
    pub current: Option<UpstreamSpec>,
    /// What each overlay makes of the base, by `from`; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<OverlayPreview>,
    /// `from` of the overlay that is applied; absent where the base is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay_applied: Option<Time>,
    /// Conditions `Valid` and `Applied`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What an overlay will make of the base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverlayPreview {
    /// From when on it applies.
    pub from: Time,
    /// The result.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub preview: Template,
}
