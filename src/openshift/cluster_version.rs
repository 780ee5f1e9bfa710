//! `config.openshift.io/v1` ClusterVersion.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::StatusCondition;

/// Name of the one ClusterVersion that the cluster-version operator reads.
pub const NAME: &str = "version";

/// Spec of the ClusterVersion; fields that we do not read are kept in `other`.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterVersion",
    plural = "clusterversions",
    status = "ClusterVersionStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVersionSpec {
    /// Identity of the cluster.
    #[serde(rename = "clusterID", default)]
    pub cluster_id: String,
    /// Update channel; empty = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The wanted release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_update: Option<Update>,
    /// Everything else.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// `spec.desiredUpdate`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// Version; may be empty.
    #[serde(default)]
    pub version: String,
    /// Release image; may be empty.
    #[serde(default)]
    pub image: String,
    /// Everything else: `force`, `architecture`, `acceptRisks`, `mode`.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

impl Update {
    /// What is asked for, for messages: the version, or the image where no version is given.
    pub fn asked_for(&self) -> &str {
        if self.version.is_empty() {
            &self.image
        } else {
            &self.version
        }
    }
}

/// Status of the ClusterVersion.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVersionStatus {
    /// The release being reconciled towards.
    #[serde(default)]
    pub desired: Release,
    /// Generation of the spec that the cluster-version operator has seen.
    #[serde(default)]
    pub observed_generation: i64,
    /// Hash of the spec, required by the schema.
    #[serde(default)]
    pub version_hash: String,
    /// Recommended updates; null where they are not known.
    #[serde(default)]
    pub available_updates: Option<Vec<Release>>,
    /// Updates with known risks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditional_updates: Vec<ConditionalUpdate>,
    /// Newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<History>,
    /// Available, Progressing, Failing, RetrievedUpdates, ReleaseAccepted, Upgradeable, Invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
}

/// A release.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// Version.
    #[serde(default)]
    pub version: String,
    /// Image.
    #[serde(default)]
    pub image: String,
    /// Channels that contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<String>>,
    /// Errata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// An update with known risks.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConditionalUpdate {
    /// The release.
    pub release: Release,
    /// Its risks.
    #[serde(default)]
    pub risks: Vec<Risk>,
    /// `Recommended`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
}

/// A known risk of an update.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Risk {
    /// One word.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// Where to read on.
    #[serde(default)]
    pub url: String,
    /// Everything else.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// One entry of the update history.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// `Partial` or `Completed`.
    pub state: String,
    /// When it was accepted.
    pub started_time: Time,
    /// When it completed, or was replaced; null before.
    pub completion_time: Option<Time>,
    /// Version.
    #[serde(default)]
    pub version: String,
    /// Image.
    #[serde(default)]
    pub image: String,
    /// Whether the signature was verified.
    #[serde(default)]
    pub verified: bool,
}

impl History {
    /// Whether the update to this entry is complete.
    pub fn is_completed(&self) -> bool {
        self.state == "Completed"
    }
}

impl ClusterVersion {
    /// The newest history entry.
    pub fn newest(&self) -> Option<&History> {
        self.status.as_ref().and_then(|s| s.history.first())
    }

    /// The conditions.
    pub fn conditions(&self) -> &[StatusCondition] {
        self.status.as_ref().map_or(&[], |s| s.conditions.as_slice())
    }

    /// The message of a condition, empty if there is none.
    pub fn message_of(&self, type_: &str) -> &str {
        super::condition(self.conditions(), type_)
            .and_then(|c| c.message.as_deref())
            .unwrap_or_default()
    }

    /// Whether the cluster-version operator has seen the newest spec.
    pub fn is_observed(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|s| Some(s.observed_generation) == self.metadata.generation)
    }
}
