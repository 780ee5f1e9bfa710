//! The cluster as it is at the start.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use semver::Version;
use serde::{Deserialize, Serialize};

use super::values::{Span, Word};
use crate::simulator::openshift::{MACHINE_CONFIG, cluster_operators::ORDER};

/// The cluster at the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Cluster {
    /// The installed release.
    #[schemars(with = "String")]
    pub version: Version,
    /// The update channel (`spec.channel` of the ClusterVersion). Default: `stable-<minor>` of the version. An empty
    /// text is no channel.
    pub channel: Option<String>,
    /// How the control plane is laid out.
    pub topology: Topology,
    /// The MachineConfigPools and their nodes, which are named `<pool>-0`, `<pool>-1` and so on. Default: `master` and
    /// `worker` with 3 nodes each; for SingleReplica `master` with 1 and `worker` with none.
    pub pools: Option<Vec<Pool>>,
    /// The ClusterOperators. `machine-config` is always there, and updates last.
    pub operators: Vec<Word>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            version: Version::new(4, 18, 3),
            channel: None,
            topology: Topology::HighlyAvailable,
            pools: None,
            operators: ORDER.iter().filter_map(|name| name.parse().ok()).collect(),
        }
    }
}

/// How the control plane is laid out (`status.controlPlaneTopology` of the Infrastructure).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Topology {
    /// Several machines.
    #[default]
    HighlyAvailable,
    /// One machine, which is not drained, and takes the API server with it when it reboots.
    SingleReplica,
    /// Outside of the cluster (hosted control planes): the operator does not serve such a cluster.
    External,
}

impl Topology {
    /// As the Infrastructure says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HighlyAvailable => "HighlyAvailable",
            Self::SingleReplica => "SingleReplica",
            Self::External => "External",
        }
    }
}

/// A MachineConfigPool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pool {
    /// Its name.
    pub name: Word,
    /// How many nodes it has, at most 5000.
    pub machines: u32,
    /// How many of them may be away at a time, a number or a percentage such as "10%". Default: 1.
    #[serde(default)]
    #[schemars(with = "Option<MaxUnavailable>")]
    pub max_unavailable: Option<IntOrString>,
    /// Labels of the pool, besides the usual ones. Default: `name: <pool>-maintenance` for a pool other than master and
    /// worker.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Labels of its nodes, besides the role, for pools that come from your manifests with a selector of their own.
    #[serde(default)]
    pub node_labels: BTreeMap<String, String>,
    /// Whether somebody has paused it.
    #[serde(default)]
    pub paused: bool,
    /// How long one of its nodes takes. Default: `durations.node`.
    #[serde(default)]
    pub node_update: Option<Span>,
}

/// How the schema describes a number or a percentage.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum MaxUnavailable {
    Number(u32),
    Percentage(String),
}

impl Pool {
    /// A pool with this many nodes, otherwise with defaults.
    pub(super) fn of(name: &str, machines: u32) -> Option<Self> {
        Some(Self {
            name: name.parse().ok()?,
            machines,
            max_unavailable: None,
            labels: BTreeMap::new(),
            node_labels: BTreeMap::new(),
            paused: false,
            node_update: None,
        })
    }
}

impl Cluster {
    /// The pools, with the defaults.
    pub fn pools(&self) -> Vec<Pool> {
        self.pools.clone().unwrap_or_else(|| {
            let machines = match self.topology {
                Topology::HighlyAvailable => [("master", 3), ("worker", 3)],
                Topology::SingleReplica => [("master", 1), ("worker", 0)],
                Topology::External => [("master", 0), ("worker", 3)],
            };
            machines
                .iter()
                .filter_map(|(name, n)| Pool::of(name, *n))
                .collect()
        })
    }

    /// The ClusterOperators, with `machine-config`.
    pub fn operators(&self) -> Vec<String> {
        let mut all: Vec<String> = self.operators.iter().map(ToString::to_string).collect();
        if !all.iter().any(|name| name == MACHINE_CONFIG) {
            all.push(MACHINE_CONFIG.to_owned());
        }
        all
    }

    /// The channel, with the default.
    pub fn channel(&self) -> String {
        let Version { major, minor, .. } = self.version;
        self.channel
            .clone()
            .unwrap_or_else(|| format!("stable-{major}.{minor}"))
    }
}
