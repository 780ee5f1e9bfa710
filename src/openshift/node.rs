//! What we keep of a Node: a few hundred bytes of its 18 kB.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;

/// Annotation: the MachineConfig that the node runs.
pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
/// Annotation: the MachineConfig that the node shall run.
pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";
/// Annotation: what the machine-config daemon does there (Done, Working, Rebooting, Degraded, Unreconcilable).
pub const STATE: &str = "machineconfiguration.openshift.io/state";

/// What we keep of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Condition Ready is True.
    pub ready: bool,
    /// Cordoned.
    pub unschedulable: bool,
    /// Annotation [`STATE`].
    pub state: Option<String>,
}

impl From<&v1::Node> for NodeView {
    fn from(node: &v1::Node) -> Self {
        let annotations = node.metadata.annotations.as_ref();
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            ready: node
                .status
                .as_ref()
                .and_then(|s| s.conditions.as_ref())
                .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True")),
            unschedulable: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false),
            state: annotations.and_then(|a| a.get(STATE).cloned()),
        }
    }
}

/// Drops everything of a Node that nothing reads, before it is kept in memory.
pub fn strip(node: &mut v1::Node) {
    node.metadata.managed_fields = None;
    if let Some(annotations) = &mut node.metadata.annotations {
        annotations.retain(|k, _| k.starts_with("machineconfiguration.openshift.io/"));
    }
    if let Some(status) = &mut node.status {
        let conditions = status.conditions.take();
        *status = v1::NodeStatus {
            conditions,
            ..v1::NodeStatus::default()
        };
    }
}
