//! What we keep of a pod that is left on a node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{self, ObjectReference, Volume},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::ResourceExt;

use crate::api::blocker::{BlockerCause, BlockerOwner};

/// What we keep of a pod that is left on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Labels: what budgets select by.
    pub labels: BTreeMap<String, String>,
    /// What controls it.
    pub controller: Option<OwnerReference>,
    /// The instant by which it shall have ended, if it was deleted.
    pub ends_at: Option<Timestamp>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Condition Ready is True.
    pub is_ready: bool,
    /// It has begun to run: one that has not may be evicted at any time.
    pub has_begun: bool,
    /// No container of it runs any more.
    pub has_ended: bool,
    /// Why the scheduler finds no node for it.
    pub unschedulable: Option<String>,
    /// Volumes that are more than a folder on the node.
    pub volumes: Vec<String>,
}

/// An object that an Event may be about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl From<&Reference> for ObjectReference {
    fn from(reference: &Reference) -> Self {
        let Reference {
            api_version,
            kind,
            namespace,
            name,
            uid,
        } = reference.clone();
        Self {
            api_version: Some(api_version),
            kind: Some(kind),
            namespace: Some(namespace),
            name: Some(name),
            uid: Some(uid),
            ..Self::default()
        }
    }
}

/// A pod that is left, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockingPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Why, in one word.
    pub cause: BlockerCause,
    /// Why, in the line that the upgrade shows: goes on after the name of the pod.
    pub short: String,
    /// What to do about it, one sentence.
    pub advice: String,
    /// The workload that it belongs to, for people.
    pub owner: Option<BlockerOwner>,
    /// What controls it, for Events.
    pub controller: Option<Reference>,
}

/// Whether the drain waits for this pod. Not for those of DaemonSets (which stay), mirror pods (the kubelet's own) and pods
/// that are over (which are gone at once), but for one of these that is held by a finalizer.
pub fn is_left(pod: &v1::Pod) -> bool {
    let is_deleted = pod.metadata.deletion_timestamp.is_some();
    !is_exempt(pod) && (is_deleted || !is_over(pod))
}

/// Whether it is of a DaemonSet, or the kubelet's own.
pub fn is_exempt(pod: &v1::Pod) -> bool {
    let is_mirror = pod.annotations().contains_key("kubernetes.io/config.mirror");
    let of = |kind: &str| pod.owner_references().iter().any(|o| o.kind == kind);
    is_mirror || of("Node") || of("DaemonSet")
}

/// Whether it ran to its end.
pub fn is_over(pod: &v1::Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

impl From<&v1::Pod> for Pod {
    fn from(pod: &v1::Pod) -> Self {
        let status = pod.status.as_ref();
        let condition = |type_: &str| {
            let all = status.and_then(|s| s.conditions.as_ref());
            all.and_then(|all| all.iter().find(|c| c.type_ == type_))
        };
        let containers = status.and_then(|s| s.container_statuses.as_ref());
        let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_ref());
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            labels: pod.labels().clone(),
            controller: pod
                .owner_references()
                .iter()
                .find(|o| o.controller == Some(true))
                .cloned(),
            ends_at: pod.metadata.deletion_timestamp.as_ref().map(|t| t.0),
            finalizers: pod.finalizers().to_vec(),
            is_ready: condition("Ready").is_some_and(|c| c.status == "True"),
            has_begun: status.and_then(|s| s.phase.as_deref()) != Some("Pending"),
            has_ended: is_over(pod)
                || containers.is_some_and(|all| {
                    let ended =
                        |c: &v1::ContainerStatus| c.state.as_ref().is_some_and(|s| s.terminated.is_some());
                    !all.is_empty() && all.iter().all(ended)
                }),
            unschedulable: condition("PodScheduled")
                .filter(|c| c.status == "False" && c.reason.as_deref() == Some("Unschedulable"))
                .map(|c| c.message.clone().unwrap_or_default()),
            volumes: volumes.into_iter().flatten().filter_map(attached).collect(),
        }
    }
}

/// A volume that is mounted from elsewhere, as people know it.
fn attached(volume: &Volume) -> Option<String> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(format!("PersistentVolumeClaim {}", claim.claim_name));
    }
    let is_remote = volume.csi.is_some() || volume.nfs.is_some() || volume.ephemeral.is_some();
    is_remote.then(|| format!("volume {}", volume.name))
}

impl Pod {
    /// What it belongs to: the Deployment where a ReplicaSet of one controls it, which its name tells.
    pub fn owner(&self) -> Option<BlockerOwner> {
        let controller = self.controller.as_ref()?;
        let deployment = self
            .labels
            .get("pod-template-hash")
            .filter(|_| controller.kind == "ReplicaSet")
            .and_then(|hash| controller.name.strip_suffix(hash)?.strip_suffix('-'));
        let (kind, name) = match deployment {
            Some(name) => ("Deployment", name),
            None => (controller.kind.as_str(), controller.name.as_str()),
        };
        Some(BlockerOwner {
            kind: kind.to_owned(),
            name: name.to_owned(),
        })
    }

    /// What controls it.
    pub fn reference(&self) -> Option<Reference> {
        let controller = self.controller.as_ref()?;
        Some(Reference {
            api_version: controller.api_version.clone(),
            kind: controller.kind.clone(),
            namespace: self.namespace.clone(),
            name: controller.name.clone(),
            uid: controller.uid.clone(),
        })
    }
}
