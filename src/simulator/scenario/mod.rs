//! Scenario files: a cluster, and what happens to it in the course of time. How to write one: `docs/scenarios.md`.
//!
//! A [`Scenario`] is what the file says. A [`timeline::Timeline`] is what it means in a simulation that begins at a
//! certain time with a certain seed. Both are pure; who simulates asks the timeline what is due.

mod check;
pub mod cluster;
mod controls;
pub mod durations;
pub mod events;
pub mod hook_jobs;
pub mod load;
mod locate;
pub mod stranded;
#[cfg(test)]
mod tests;
pub mod timeline;
mod train;
pub mod updates;
pub mod values;

use std::collections::BTreeMap;

use kube::ResourceExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::{
    cluster::{Cluster, Pool},
    durations::Durations,
    events::Event,
    hook_jobs::HookJobs,
    updates::Updates,
    values::Length,
};
pub use self::{load::Error, timeline::Timeline};
use crate::{openshift::machine_config_pool::MachineConfigPool, simulator::prometheus::Sample};

/// A simulated cluster, and what happens to it. Everything is optional: an empty scenario (`{}`) is a healthy cluster
/// that always has an update to go to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scenario {
    /// What the scenario is about, for people.
    pub description: String,
    /// The cluster at the start.
    pub cluster: Cluster,
    /// What the update service offers.
    pub updates: Updates,
    /// How long things take.
    pub durations: Durations,
    /// How long the API server does not answer in the middle of the update of ClusterOperator `kube-apiserver`; with
    /// topology SingleReplica it is also away while its node reboots. Default: it always answers.
    pub api_server_away_during_update: Length,
    /// How the Jobs of hooks end.
    pub hook_jobs: Vec<HookJobs>,
    /// What Prometheus answers to queries all the time: the query and its vector. Any other query has an empty result.
    pub queries: BTreeMap<String, Vec<Sample>>,
    /// What happens when. The order in the file does not matter, but for events at the same instant.
    pub events: Vec<Event>,
}

/// Nodes of a pool that comes from the user's manifests and that the scenario does not name.
const NODES_OF_AN_UNKNOWN_POOL: u32 = 2;

impl Scenario {
    /// Adds nodes for pools that come from manifests, where the scenario does not say how many there are.
    ///
    /// The manifest stays what counts for everything but the nodes: an existing pool is not changed.
    pub fn add_pools(&mut self, manifests: &[MachineConfigPool]) {
        let mut pools = self.cluster.pools();
        for manifest in manifests {
            let name = manifest.name_any();
            if pools.iter().any(|p| p.name.as_str() == name) {
                continue;
            }
            let Some(mut pool) = Pool::of(&name, NODES_OF_AN_UNKNOWN_POOL) else {
                continue;
            };
            let selector = manifest.spec.node_selector.as_ref();
            pool.node_labels = selector.and_then(|s| s.match_labels.clone()).unwrap_or_default();
            pools.push(pool);
        }
        self.cluster.pools = Some(pools);
    }
}

/// The JSON schema of a scenario file, for editors: `docs/scenario.schema.json`.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Scenario).to_value()
}
