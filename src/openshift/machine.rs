//! What we keep of a `machine.openshift.io/v1beta1` Machine: what the peer's metric tells of it.

use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

use crate::metrics::{Family, Series};

/// Namespace of the Machines (the machine-api operator's).
pub const NAMESPACE: &str = "openshift-machine-api";

/// What we keep of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineView {
    /// Name.
    pub name: String,
    /// Name of the MachineSet that controls it; empty if none does.
    pub machine_set: String,
    /// Name of its node; empty before it has one.
    pub node: String,
    /// `spec.providerID`.
    pub provider_id: String,
    /// `status.phase`.
    pub phase: String,
}

impl From<&DynamicObject> for MachineView {
    fn from(machine: &DynamicObject) -> Self {
        let text = |pointer: &str| {
            let found = machine.data.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let owners = machine.owner_references().iter();
        let set = owners
            .filter(|o| o.controller == Some(true))
            .find(|o| o.kind == "MachineSet");
        Self {
            name: machine.name_any(),
            machine_set: set.map(|o| o.name.clone()).unwrap_or_default(),
            node: text("/status/nodeRef/name"),
            provider_id: text("/spec/providerID"),
            phase: text("/status/phase"),
        }
    }
}

/// The kind.
pub fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "machine.openshift.io",
        "v1beta1",
        "Machine",
    ))
}

/// The peer's metric, with its labels.
pub fn metrics(machines: Vec<MachineView>) -> Vec<Family> {
    let series = machines.into_iter().map(|machine| {
        let labels = vec![
            ("machine", machine.name),
            ("machineset", machine.machine_set),
            ("node_ref", machine.node),
            ("provider_id", machine.provider_id),
            ("phase", machine.phase),
        ];
        Series::new(labels, true)
    });
    vec![Family::gauge(
        "openshift_upgrade_controller_machine_info",
        "The Machines of the cluster, always 1.",
        series,
    )]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::of_a_set("MachineSet", json!({"nodeRef": {"name": "w-8"}, "phase": "Running"}), ["m", "set", "w-8", "aws:///x", "Running"])]
    #[case::of_another("ControlPlaneMachineSet", json!({}), ["m", "", "", "aws:///x", ""])]
    fn a_machine_is_one_series(#[case] kind: &str, #[case] status: Value, #[case] expected: [&str; 5]) {
        let machine: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
            "metadata": {"name": "m", "ownerReferences": [
                {"apiVersion": "machine.openshift.io/v1beta1", "kind": kind, "name": "set", "uid": "s", "controller": true}]},
            "spec": {"providerID": "aws:///x"}, "status": status,
        }))
        .unwrap();
        let family = &metrics(vec![MachineView::from(&machine)])[0];
        let labels: Vec<_> = family.series[0].labels.iter().map(|(_, v)| v.as_str()).collect();
        assert_eq!(labels, expected);
    }
}
