//! What we keep of a Node: a few hundred bytes of its 18 kB.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;

use crate::text;

/// Annotation: the MachineConfig that the node runs.
pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
/// Annotation: the MachineConfig that the node shall run.
pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";
/// Annotation: what the machine-config daemon does there (Done, Working, Rebooting, Degraded, Unreconcilable).
pub const STATE: &str = "machineconfiguration.openshift.io/state";
/// Annotation: why the node is degraded.
pub const REASON: &str = "machineconfiguration.openshift.io/reason";
/// Annotation: what the machine-config daemon wants of the drain controller, `drain-<config>` or `uncordon-<config>`.
pub const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
/// Annotation: what the drain controller did last.
pub const LAST_APPLIED_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";

/// Longest reason that is kept, in characters.
const MAX_REASON: usize = 300;

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
    /// Annotation [`REASON`], on one line and cut; `None` if it is empty.
    pub reason: Option<String>,
    /// Annotation [`DESIRED_CONFIG`].
    pub desired_config: Option<String>,
    /// The drain that the machine-config operator is at.
    pub drain: Option<Drain>,
}

/// A drain that was asked for and is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// What is asked for: annotation [`DESIRED_DRAIN`].
    pub wanted: String,
    /// What was done last: annotation [`LAST_APPLIED_DRAIN`], which openshift-upgrade-controller tells drains apart by.
    pub last_applied: String,
}

impl NodeView {
    /// Whether its update failed, as the machine-config daemon says.
    pub fn is_degraded(&self) -> bool {
        matches!(self.state.as_deref(), Some("Degraded" | "Unreconcilable"))
    }

    /// Name of the pool that it belongs to: that of `rendered-<pool>-<hash>`, which it shall run.
    pub fn pool(&self) -> Option<&str> {
        let (pool, _) = self
            .desired_config
            .as_deref()?
            .strip_prefix("rendered-")?
            .rsplit_once('-')?;
        Some(pool)
    }
}

impl From<&v1::Node> for NodeView {
    fn from(node: &v1::Node) -> Self {
        let annotations = node.metadata.annotations.as_ref();
        let annotation = |key| {
            annotations
                .and_then(|a| a.get(key))
                .filter(|v| !v.is_empty())
                .cloned()
        };
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            ready: node
                .status
                .as_ref()
                .and_then(|s| s.conditions.as_ref())
                .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True")),
            unschedulable: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false),
            state: annotation(STATE),
            reason: annotation(REASON).map(|reason| text::line(&reason, MAX_REASON)),
            desired_config: annotation(DESIRED_CONFIG),
            drain: annotation(DESIRED_DRAIN)
                .filter(|wanted| wanted.starts_with("drain-"))
                .map(|wanted| Drain {
                    wanted,
                    last_applied: annotation(LAST_APPLIED_DRAIN).unwrap_or_default(),
                })
                .filter(|drain| drain.wanted != drain.last_applied),
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn view(annotations: &Value) -> NodeView {
        let node: v1::Node =
            serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}})).unwrap();
        NodeView::from(&node)
    }

    #[rstest]
    #[case::never(json!({}), None)]
    #[case::asked_for(json!({DESIRED_DRAIN: "drain-b", LAST_APPLIED_DRAIN: "uncordon-a"}), Some("drain-b"))]
    #[case::the_first_one(json!({DESIRED_DRAIN: "drain-b"}), Some("drain-b"))]
    #[case::done(json!({DESIRED_DRAIN: "drain-b", LAST_APPLIED_DRAIN: "drain-b"}), None)]
    #[case::to_be_uncordoned(json!({DESIRED_DRAIN: "uncordon-b", LAST_APPLIED_DRAIN: "drain-b"}), None)]
    fn a_drain_is_what_is_asked_for_and_not_done(#[case] annotations: Value, #[case] expected: Option<&str>) {
        let node = view(&annotations);
        assert_eq!(node.drain.map(|d| d.wanted).as_deref(), expected);
    }

    #[rstest]
    #[case("rendered-worker-0123", Some("worker"))]
    #[case("rendered-x-app-night-0123", Some("x-app-night"))]
    #[case("99-worker", None)]
    fn the_pool_is_that_of_the_configuration(#[case] config: &str, #[case] expected: Option<&str>) {
        assert_eq!(view(&json!({DESIRED_CONFIG: config})).pool(), expected);
    }
}
