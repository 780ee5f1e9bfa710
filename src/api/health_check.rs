//! The health checks of an upgrade, as configured.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;

/// What a finding does to the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Severity {
    /// The step waits until the finding is gone, and fails at its timeout.
    Block,
    /// The finding is shown and nothing waits for it.
    Warn,
}

/// Health checks before or after the upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthChecks {
    /// How long to wait for all checks to be healthy. Go duration; default 1h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Whether a ClusterOperator that is not Available, or is Degraded, blocks. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_degraded_operators: Option<bool>,
    /// The peer's spelling of `checkDegradedOperators: false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_degraded_operators_check: Option<bool>,
    /// Whether a firing critical alert blocks (true), is ignored (false), or is shown only (unset).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_critical_alerts: Option<bool>,
    /// Whether a MachineConfigPool that is Degraded or rolling blocks. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_machine_config_pools: Option<bool>,
    /// Alerts to ignore: each entry is a set of labels that must all be equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude_alerts: Vec<BTreeMap<String, String>>,
    /// Namespaces whose alerts are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude_namespaces: Vec<String>,
    /// ClusterOperators to ignore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude_operators: Vec<String>,
    /// PromQL queries of your own; each is healthy when its result is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub custom_queries: Vec<CustomQuery>,
    /// Severity per check, where the default does not suit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<CheckSeverities>,
}

/// A PromQL query that is healthy when its result is empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomQuery {
    /// The PromQL expression, evaluated as an instant query.
    #[schemars(length(min = 1, max = 4096))]
    pub query: String,
    /// What a non-empty result does. Default Block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
}

/// Severity of each built-in check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckSeverities {
    /// ClusterVersion `Failing`. Default Block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_version: Option<Severity>,
    /// ClusterOperators. Default Block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operators: Option<Severity>,
    /// Critical alerts. Default: Block with `checkCriticalAlerts: true`, else Warn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critical_alerts: Option<Severity>,
    /// MachineConfigPools. Default Block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_config_pools: Option<Severity>,
    /// Nodes that are NotReady or cordoned. Default Warn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Severity>,
}
