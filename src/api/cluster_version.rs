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
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVersionSpec {
    /// The base.
    #[serde(default)]
    pub template: Template,
    /// Changes; the newest whose `from` has come is laid over the base. Overlays do not accumulate.
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
            "clusterID": {"type": "string"},
            "channel": {"type": "string"},
            "upstream": {"type": "string"}
        }
    })
}

/// The base.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Template {
    /// Spec of the ClusterVersion; `desiredUpdate` is ignored.
    #[serde(default)]
    #[schemars(schema_with = "upstream_spec")]
    pub spec: UpstreamSpec,
}

/// A change at a given time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overlay {
    /// From when on it applies.
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
    /// The spec that is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "upstream_spec")]
    pub current: Option<UpstreamSpec>,
    /// What each overlay will make of the base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<OverlayPreview>,
    /// `from` of the overlay that is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay_applied: Option<Time>,
    /// Condition `Valid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What an overlay will make of the base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverlayPreview {
    /// From when on it applies.
    pub from: Time,
    /// The result.
    #[serde(default)]
    pub preview: Template,
}
