//! OpenShift's cluster-version operator and machine-config operator, the kubelets of the fake nodes and the scheduler
//! of the simulated workload, as one pure function: [`next`].
//!
//! All state is in API objects (status, and annotations `simulated.openshift.io/…`): a simulator that starts anew
//! carries on where the last one stopped. Every write names the resourceVersion that it was decided from.

pub mod cluster_version_operator;
pub mod conditions;
pub mod drain;
pub mod faults;
pub mod initial;
pub mod kubelet;
pub mod machine_config_operator;
pub mod node_update;
pub mod releases;
#[cfg(test)]
mod tests;
pub mod write;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{Resource, ResourceExt};

use self::{faults::Faults, write::Write};
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
}

/// How long things take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Retrieving and verifying a release.
    pub retrieve: SignedDuration,
    /// All ClusterOperators together, without the wait for the required pools.
    pub control_plane: SignedDuration,
    /// One node: a quarter at least for the drain, the rest for the reboot.
    pub node: SignedDuration,
    /// Between two attempts to evict the pods of a node.
    pub evict_retry: SignedDuration,
    /// A pod's end, unless its own grace period is shorter.
    pub pod_stop: SignedDuration,
    /// Between two heartbeats of a node; `None` = nodes never renew it (for virtual time).
    pub heartbeat: Option<SignedDuration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retrieve: SignedDuration::from_secs(2),
            control_plane: SignedDuration::from_secs(15),
            node: SignedDuration::from_secs(5),
            evict_retry: SignedDuration::from_secs(1),
            pod_stop: SignedDuration::from_millis(500),
            heartbeat: Some(SignedDuration::from_secs(20)),
        }
    }
}

impl Settings {
    /// All durations divided by `speed`, but for the heartbeat, which real controllers watch in real time.
    #[must_use]
    pub fn faster(&self, speed: f64) -> Self {
        let scale =
            |d: SignedDuration| SignedDuration::try_from_secs_f64(d.as_secs_f64() / speed).unwrap_or(d);
        Self {
            retrieve: scale(self.retrieve),
            control_plane: scale(self.control_plane),
            node: scale(self.node),
            evict_retry: scale(self.evict_retry),
            pod_stop: scale(self.pod_stop),
            heartbeat: self.heartbeat,
        }
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
}

impl Step {
    /// Writes what differs, if anything does.
    fn update<K>(&mut self, old: &K, new: &K)
    where
        K: Resource<DynamicType = ()> + serde::Serialize,
    {
        self.writes.extend(write::update(old, new));
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
    settings: &'a Settings,
    now: Timestamp,
}

/// What OpenShift's operators, the kubelets of the fake nodes and the simulated scheduler do next.
pub fn next(cluster: &Cluster, now: Timestamp, settings: &Settings) -> Step {
    let (faults, problems) = Faults::read(cluster.controls.as_ref());
    let context = Context {
        cluster,
        faults: &faults,
        settings,
        now,
    };
    let mut step = Step {
        problems,
        ..Step::default()
    };
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
