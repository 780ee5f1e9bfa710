//! A pod that cannot be evicted, and its budget: what a fault `stuckDrain` puts on a node.

use serde_json::{Value, json};

use super::{
    events::{Reference, StuckDrain},
    values::Word,
};

/// Namespace of a pod that the scenario does not name.
const NAMESPACE: &str = "simulated-workload";
/// Label that the budget selects its pod by.
const LABEL: &str = "simulated-by";

/// A pod that cannot be evicted from a node, and its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranded {
    node: String,
    namespace: String,
    name: String,
}

impl From<&StuckDrain> for Stranded {
    fn from(fault: &StuckDrain) -> Self {
        let node = fault.node.as_str().to_owned();
        let told = fault.pod.as_ref().map(Word::as_str);
        let (namespace, name) = match told.map(|pod| pod.split_once('/').ok_or(pod)) {
            Some(Ok((namespace, name))) => (namespace.to_owned(), name.to_owned()),
            Some(Err(name)) => (NAMESPACE.to_owned(), name.to_owned()),
            None => (NAMESPACE.to_owned(), format!("stuck-on-{node}")),
        };
        Self {
            node,
            namespace,
            name,
        }
    }
}

impl Stranded {
    /// The objects to be created, in order.
    pub fn objects(&self) -> [Value; 2] {
        let Self {
            node,
            namespace,
            name,
        } = self;
        let labels = json!({LABEL: name});
        let container = json!({"name": "workload", "image": "simulated"});
        [
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
            }),
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": namespace, "name": name, "labels": labels},
                "spec": {"nodeName": node, "containers": [container]},
            }),
        ]
    }

    /// What is deleted in the end.
    pub fn references(&self) -> [Reference; 2] {
        [("policy/v1", "PodDisruptionBudget"), ("v1", "Pod")].map(|(api_version, kind)| Reference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: Some(self.namespace.clone()),
            name: self.name.clone(),
        })
    }
}
