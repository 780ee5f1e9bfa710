//! `machineconfiguration.openshift.io/v1` MachineConfigPool.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{FieldsV1, LabelSelector, ManagedFieldsEntry},
    util::intstr::IntOrString,
};
use kube::{CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::StatusCondition;

/// Label of a pool without which the control plane cannot complete an upgrade.
pub const REQUIRED_FOR_UPGRADE: &str = "operator.machineconfiguration.openshift.io/required-for-upgrade";

/// Spec of a MachineConfigPool; fields that we do not read are kept in `other`.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfigPool",
    plural = "machineconfigpools",
    status = "MachineConfigPoolStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolSpec {
    /// Whether the machine-config operator leaves the pool's nodes alone.
    #[serde(default)]
    pub paused: bool,
    /// How many nodes may be away at a time. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// The rendered MachineConfig to reach.
    #[serde(default)]
    pub configuration: Configuration,
    /// Which nodes belong to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Everything else.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// Reference to a rendered MachineConfig.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Name, `rendered-<pool>-<hash>`.
    #[serde(default)]
    pub name: String,
    /// Everything else.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// Status of a MachineConfigPool.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolStatus {
    /// Generation of the spec that the machine-config operator has seen.
    #[serde(default)]
    pub observed_generation: i64,
    /// The rendered MachineConfig that the whole pool has reached.
    #[serde(default)]
    pub configuration: Configuration,
    /// Nodes in the pool.
    #[serde(default)]
    pub machine_count: i64,
    /// Nodes at the wanted configuration.
    #[serde(default)]
    pub updated_machine_count: i64,
    /// Nodes at the wanted configuration and ready.
    #[serde(default)]
    pub ready_machine_count: i64,
    /// Nodes that are away.
    #[serde(default)]
    pub unavailable_machine_count: i64,
    /// Nodes in trouble.
    #[serde(default)]
    pub degraded_machine_count: i64,
    /// Updated, Updating, Degraded, NodeDegraded, RenderDegraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
}

impl MachineConfigPool {
    /// Whether a pause of this pool would block the control plane's upgrade: `master`, or labelled so.
    pub fn is_required_for_upgrade(&self) -> bool {
        self.name_any() == "master" || self.labels().contains_key(REQUIRED_FOR_UPGRADE)
    }

    /// The status, empty if there is none yet.
    pub fn state(&self) -> MachineConfigPoolStatus {
        self.status.clone().unwrap_or_default()
    }

    /// The conditions.
    pub fn conditions(&self) -> &[StatusCondition] {
        self.status.as_ref().map_or(&[], |s| s.conditions.as_slice())
    }

    /// The instant since which the pool is paused at the latest; `None` if it is not, or nobody says.
    ///
    /// The only source is `metadata.managedFields`. The API server takes a field from all other writers when its value changes,
    /// so whoever owns `spec.paused` wrote the value that it has, at the time of the entry or before: the time of an entry
    /// moves on when its writer changes any other field of it. So the pause is never younger than this.
    pub fn paused_since(&self) -> Option<Timestamp> {
        if !self.spec.paused {
            return None;
        }
        let writers = self.metadata.managed_fields.iter().flatten();
        let times = writers.filter(|w| owns_paused(w)).filter_map(|w| w.time.as_ref());
        times.map(|t| t.0).min()
    }

    /// The pool, of its `managedFields` only what [`Self::paused_since`] needs: they are large.
    #[must_use]
    pub fn with_times_of_pause(mut self) -> Self {
        let writers = self.metadata.managed_fields.take().unwrap_or_default();
        let of_pause = |writer: ManagedFieldsEntry| ManagedFieldsEntry {
            fields_v1: Some(FieldsV1(json!({"f:spec": {"f:paused": {}}}))),
            time: writer.time,
            ..ManagedFieldsEntry::default()
        };
        let writers: Vec<_> = writers.into_iter().filter(owns_paused).map(of_pause).collect();
        self.metadata.managed_fields = (!writers.is_empty()).then_some(writers);
        self
    }
}

fn owns_paused(writer: &ManagedFieldsEntry) -> bool {
    let fields = writer.fields_v1.as_ref();
    fields.is_some_and(|f| f.0.pointer("/f:spec/f:paused").is_some())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    fn writer(name: &str, day: u8, fields: &Value) -> Value {
        json!({"manager": name, "operation": "Update", "apiVersion": "machineconfiguration.openshift.io/v1",
            "time": format!("2026-11-{day:02}T08:00:00Z"), "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn paused() -> Value {
        json!({"f:spec": {"f:maxUnavailable": {}, "f:paused": {}}})
    }

    #[rstest]
    #[case::by_one(true, json!([writer("machine-config-operator", 1, &json!({"f:spec": {"f:configuration": {}}})),
        writer("kubectl-patch", 3, &paused())]), Some("2026-11-03T08:00:00Z"))]
    #[case::by_two_of_one_mind(true, json!([writer("argocd", 9, &paused()), writer("kubectl-edit", 4, &paused())]), Some("2026-11-04T08:00:00Z"))]
    #[case::nobody_says(true, json!([writer("machine-config-operator", 1, &json!({"f:status": {"f:paused": {}}}))]), None)]
    #[case::nothing_is_kept_of_writers(true, Value::Null, None)]
    #[case::not_paused(false, json!([writer("kubectl-patch", 3, &paused())]), None)]
    fn since_when_a_pool_is_paused_is_told_by_who_wrote_it(
        #[case] is_paused: bool,
        #[case] writers: Value,
        #[case] expected: Option<&str>,
    ) {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "worker", "managedFields": writers}, "spec": {"paused": is_paused},
        }))
        .unwrap();
        let expected = expected.map(|t| t.parse().unwrap());
        assert_eq!(pool.paused_since(), expected);
        let kept = pool.with_times_of_pause();
        assert_eq!(kept.paused_since(), expected);
        assert!(serde_json::to_string(&kept.metadata).unwrap().len() < 300);
    }
}
