//! OpenShift's cluster-version operator and machine-config operator, the kubelets of the fake nodes and the scheduler
//! of the simulated workload, as one pure function: [`next`].
//!
//! All state is in API objects (status, and annotations `simulated.openshift.io/…`): a simulator that starts anew
//! carries on where the last one stopped. Every write names the resourceVersion that it was decided from.

mod api_server;
pub mod cluster_operators;
pub mod cluster_version_operator;
pub mod conditions;
pub mod drain;
pub mod durations;
pub mod faults;
pub mod graph;
pub mod initial;
pub mod kubelet;
pub mod machine_config_operator;
pub mod node_update;
pub mod releases;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod write;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{Resource, ResourceExt};

pub use self::settings::{Patience, Settings};
use self::{faults::Faults, machine_config_operator::Members, write::Write};
use crate::openshift::{
    cluster_operator::ClusterOperator, cluster_version::ClusterVersion, infrastructure::Infrastructure,
    machine_config::MachineConfig, machine_config_pool::MachineConfigPool,
};

/// Label of the ClusterVersion and the nodes that the simulator made. It acts on no cluster without it.
pub const SIMULATED: &str = "simulated.openshift.io/simulated";
/// Taint of the fake nodes: nothing real is to be scheduled there.
pub const FAKE_TAINT: &str = "simulated.openshift.io/fake";
/// Annotation: the release that a ClusterOperator's turn is about.
pub const UPDATING_TO: &str = "simulated.openshift.io/updating-to";
/// Annotation: when the present turn of a ClusterOperator, or phase of a node, began.
pub const SINCE: &str = "simulated.openshift.io/since";
/// Annotation of a node: when its pods were last evicted.
pub const EVICTED_AT: &str = "simulated.openshift.io/evicted-at";
/// The ClusterOperator that updates last, and renders the pools' configurations in its turn.
pub const MACHINE_CONFIG: &str = "machine-config";
/// Namespace of the ConfigMap with the acknowledged admin gates.
pub const CONFIG_NAMESPACE: &str = "openshift-config";
/// Its name.
pub const ADMIN_ACKS: &str = "admin-acks";

/// What the simulator sees. Lists are sorted by name, so that the same cluster gives the same writes.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// ClusterVersion `version`.
    pub cluster_version: Option<ClusterVersion>,
    /// ClusterOperators.
    pub operators: Vec<ClusterOperator>,
    /// MachineConfigPools.
    pub pools: Vec<MachineConfigPool>,
    /// MachineConfigs.
    pub machine_configs: Vec<MachineConfig>,
    /// The fake nodes: those with the label [`SIMULATED`].
    pub nodes: Vec<Node>,
    /// Pods, all of them.
    pub pods: Vec<Pod>,
    /// Infrastructure `cluster`.
    pub infrastructure: Option<Infrastructure>,
    /// The ConfigMap that switches faults on and off, see [`faults`].
    pub controls: Option<ConfigMap>,
    /// ConfigMap `openshift-config/admin-acks`: what administrators have acknowledged.
    pub admin_acks: Option<ConfigMap>,
}

impl Cluster {
    /// Whether the control plane is one machine.
    fn is_single_node(&self) -> bool {
        let topology = self.infrastructure.as_ref().and_then(|i| i.status.as_ref());
        topology.is_some_and(|s| s.control_plane_topology == "SingleReplica")
    }
}

/// What is to be done now, and when to ask again if nothing changes.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// At most one write an object.
    pub writes: Vec<Write>,
    /// The earliest instant at which the passing of time alone changes something.
    pub wake_at: Option<Timestamp>,
    /// Controls that can't be read, for the log.
    pub problems: Vec<String>,
    /// The API server answers nobody until then, because it is itself being updated or rebooted. There are no writes, and
    /// who simulates the API server refuses everybody else's too. Against a real API server this has no meaning.
    pub api_server_back_at: Option<Timestamp>,
}

impl Step {
    /// Writes what differs, if anything does.
    fn update<K>(&mut self, old: &K, new: &K)
    where
        K: Resource<DynamicType = ()> + serde::Serialize + PartialEq,
    {
        // Comparing is much cheaper than writing both down, and mostly nothing differs.
        if old != new {
            self.writes.extend(write::update(old, new));
        }
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |other| other.min(at)));
    }

    /// Whether `duration` has passed since `start`; asks to be woken if not.
    fn has_passed(&mut self, start: Timestamp, duration: SignedDuration, now: Timestamp) -> bool {
        let end = later(start, duration);
        if now < end {
            self.wake(end);
        }
        now >= end
    }
}

/// What every part decides from.
#[derive(Clone, Copy)]
struct Context<'a> {
    cluster: &'a Cluster,
    faults: &'a Faults,
    members: &'a Members,
    settings: &'a Settings,
    now: Timestamp,
}

/// What OpenShift's operators, the kubelets of the fake nodes and the simulated scheduler do next.
pub fn next(cluster: &Cluster, now: Timestamp, settings: &Settings) -> Step {
    let (faults, problems) = Faults::read(cluster.controls.as_ref());
    let context = Context {
        cluster,
        faults: &faults,
        members: &Members::of(cluster),
        settings,
        now,
    };
    let mut step = Step {
        problems,
        ..Step::default()
    };
    step.api_server_back_at = api_server::away_until(context, &mut step);
    if let Some(at) = step.api_server_back_at {
        step.wake(at);
        return step;
    }
    cluster_version_operator::sync(context, &mut step);
    machine_config_operator::sync(context, &mut step);
    kubelet::sync(context, &mut step);
    step
}

/// `at + duration`, or the end of time.
fn later(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// An instant kept in an annotation.
fn instant<K: ResourceExt>(object: &K, annotation: &str) -> Option<Timestamp> {
    object.annotations().get(annotation)?.parse().ok()
}

/// The annotation's value, empty if there is none.
fn annotation<'a, K: ResourceExt>(object: &'a K, key: &str) -> &'a str {
    object.annotations().get(key).map_or("", String::as_str)
}

fn annotate<K: ResourceExt>(object: &mut K, key: &str, value: impl Into<String>) {
    object.annotations_mut().insert(key.to_owned(), value.into());
}
