//! NodeForceDrain: when to stop being polite to pods that block a drain (the peer's kind).

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;

/// Deletes pods from nodes that the machine-config operator has been draining for too long.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "managedupgrade.appuio.io",
    version = "v1beta1",
    kind = "NodeForceDrain",
    plural = "nodeforcedrains",
    namespaced,
    status = "NodeForceDrainStatus",
    derive = "PartialEq",
    doc = "Deletes pods from nodes that the machine-config operator has been draining for too long.",
    shortname = "nfdrain",
    category = "managedupgrade",
    printcolumn(
        name = "Delete after",
        type_ = "string",
        json_path = ".spec.nodeDrainGracePeriod"
    ),
    printcolumn(
        name = "Kill after",
        type_ = "string",
        json_path = ".spec.podForceDeleteGracePeriod"
    ),
    printcolumn(name = "Dry run", type_ = "boolean", json_path = ".spec.dryRun", priority = 1),
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
pub struct NodeForceDrainSpec {
    /// Which nodes; empty = all.
    pub node_selector: LabelSelector,
    /// Pods of which namespaces, by the namespaces' labels; absent or empty = all.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub namespace_selector: LabelSelector,
    /// Which pods: a jq program over the Pod that yields booleans; the pod is meant if any of them is true.
    /// Absent or empty = all. Example: `.metadata.namespace | test("-dev$")`.
    #[serde(default, rename = "podJQSelector", skip_serializing_if = "String::is_empty")]
    pub pod_jq_selector: String,
    /// How long after the drain began pods are deleted, past their disruption budgets, and even where nothing
    /// will make them again. Go duration; 0 = never.
    pub node_drain_grace_period: GoDuration,
    /// How long after a pod was deleted (its deletion timestamp without its grace period) it is deleted again with a grace of
    /// 1 second. Counts only once `nodeDrainGracePeriod` is over. Go duration; 0 = never.
    pub pod_force_delete_grace_period: GoDuration,
    /// Only tell, by Events on the node, what would be deleted. Default false.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub dry_run: bool,
}

impl NodeForceDrainSpec {
    /// How long after the drain began pods are deleted; `None` = never.
    pub fn delete_after(&self) -> Option<SignedDuration> {
        self.node_drain_grace_period.positive()
    }

    /// How long after a pod's deletion time it is killed; `None` = never.
    pub fn kill_after(&self) -> Option<SignedDuration> {
        self.pod_force_delete_grace_period.positive()
    }
}

/// What the operator observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeForceDrainStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The newest drain of each node that was seen (the peer's).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_observed_node_drain: Vec<ObservedNodeDrain>,
    /// Condition `Valid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A drain of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedNodeDrain {
    /// Name of the node.
    pub node_name: String,
    /// Identity of the drain: annotation `machineconfiguration.openshift.io/lastAppliedDrain` of the node.
    #[serde(rename = "drainID")]
    pub drain_id: String,
    /// When it was first seen.
    pub observed_time: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_of_zero_is_never() {
        let spec: NodeForceDrainSpec = serde_yaml::from_str(
            "{nodeSelector: {}, nodeDrainGracePeriod: 15m, podForceDeleteGracePeriod: 0s}",
        )
        .unwrap();
        assert_eq!(spec.delete_after(), Some(SignedDuration::from_mins(15)));
        assert_eq!(spec.kill_after(), None);
    }
}
