//! What the update service offers, and what an administrator must acknowledge first.

use schemars::JsonSchema;
use semver::Version;
use serde::{Deserialize, Serialize};

use super::values::{Length, Moment, Word};

/// The update graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Updates {
    /// Whether releases appear by themselves, besides those listed: a new z-stream every `every` or so, a new minor
    /// every `minorEvery` or so (with z-streams of its own), and always an update to go to, whatever is installed.
    /// Default: true if `releases` is empty.
    pub automatic: Option<bool>,
    /// Time between two z-streams of a minor; each comes up to a seventh of it earlier or later, by the seed.
    pub every: Length,
    /// Time between two minors, likewise. The first one appears after a part of this time.
    pub minor_every: Length,
    /// Releases.
    pub releases: Vec<Release>,
    /// What must be acknowledged before an update to the next minor (OpenShift's book "Updating clusters": preparing to
    /// update to the next minor). Until then the cluster is Upgradeable=False with reason AdminAckRequired.
    pub admin_gates: Vec<AdminGate>,
}

impl Default for Updates {
    fn default() -> Self {
        Self {
            automatic: None,
            every: Length(jiff::SignedDuration::from_hours(7 * 24)),
            minor_every: Length(jiff::SignedDuration::from_hours(120 * 24)),
            releases: Vec::new(),
            admin_gates: Vec::new(),
        }
    }
}

impl Updates {
    /// Whether releases appear by themselves.
    pub fn is_automatic(&self) -> bool {
        self.automatic.unwrap_or(self.releases.is_empty())
    }
}

/// A release of the graph. Its image is a digest that follows from the version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Release {
    /// Its version.
    #[schemars(with = "String")]
    pub version: Version,
    /// Channels that have it. Default: every channel of its own minor and of the next one (`stable-4.18` and
    /// `stable-4.19` for 4.18.5).
    #[serde(default)]
    pub channels: Vec<Word>,
    /// When it appears. Default: it is there from the start.
    #[serde(default)]
    pub from: Option<Moment>,
    /// When it is withdrawn. Default: never.
    #[serde(default)]
    pub until: Option<Moment>,
    /// The versions that it can be reached from (the edges of the graph). Default: every older one of its own minor and
    /// of the one before.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub updates_from: Vec<Version>,
    /// Known risks: with one the update is conditional, not recommended.
    #[serde(default)]
    pub risks: Vec<Risk>,
}

/// A known risk of an update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Risk {
    /// One word: letters, digits and `_`, beginning with a letter.
    pub name: Word,
    /// For people. Default: that it is simulated.
    #[serde(default)]
    pub message: String,
    /// When it becomes known. Default: from the start.
    #[serde(default)]
    pub from: Option<Moment>,
    /// When it no longer counts. Default: never.
    #[serde(default)]
    pub until: Option<Moment>,
}

/// Something to acknowledge, as in ConfigMap `openshift-config-managed/admin-gates`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminGate {
    /// Its key, `ack-<installed minor>-<what>`, such as `ack-4.18-kube-1.32-api-removals-in-4.19`. It counts while that
    /// minor is installed, until ConfigMap `openshift-config/admin-acks` has the key with value "true".
    pub key: Word,
    /// For people. Default: that it is simulated.
    #[serde(default)]
    pub message: String,
}
