//! `status.blockers` of an UpgradeJob: pods that keep a node from being drained.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pod that keeps a node from being drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// Name of the node.
    pub node: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Why it is still there, in one word.
    pub cause: BlockerCause,
    /// Why it is still there, and what to do about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The workload that the pod belongs to; absent if nothing controls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<BlockerOwner>,
    /// When the drain of the node was seen first.
    pub draining_since: Time,
    /// When this was found first.
    pub since: Time,
}

/// Why a pod is still on a node that is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::api::no_description)]
pub enum BlockerCause {
    /// Its PodDisruptionBudget allows no disruption.
    PodDisruptionBudget,
    /// Its PodDisruptionBudget allows no disruption, because a pod of the same budget finds no node.
    NoRoomElsewhere,
    /// It has more than one PodDisruptionBudget: such a pod is never evicted.
    SeveralPodDisruptionBudgets,
    /// The API server refuses the eviction: an admission webhook or policy is against it.
    EvictionRefused,
    /// It ends, and something has yet to remove its finalizer.
    Finalizer,
    /// Its containers have ended, and its volumes are still in use on the node.
    VolumeDetach,
    /// It ends, its grace period is over, and its containers still run.
    StillRunning,
    /// It ends within its grace period.
    GracePeriod,
    /// It may be evicted: the machine-config operator has yet to try again.
    EvictionPending,
    /// Not known: what tells it could not be read.
    Unknown,
}

/// The workload that a pod belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockerOwner {
    /// Kind, such as `StatefulSet`.
    pub kind: String,
    /// Name, in the namespace of the pod.
    pub name: String,
}
