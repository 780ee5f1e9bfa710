//! The health checks of an upgrade, as configured.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;

/// What a finding does to the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::api::no_description)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "1h"))]
    pub timeout: Option<GoDuration>,
    /// Whether a ClusterOperator that is not Available, or is Degraded, blocks. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_degraded_operators: Option<bool>,
    /// The peer's spelling of `checkDegradedOperators: false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_degraded_operators_check: Option<bool>,
    /// Whether a firing alert of severity critical blocks (true), is not looked at (false), or is shown only
    /// (unset, the default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_critical_alerts: Option<bool>,
    /// Whether a MachineConfigPool that is Degraded or rolling blocks. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<CheckSeverities>,
}

/// Default of `timeout`: 1 hour, the peer's.
pub const DEFAULT_TIMEOUT: SignedDuration = SignedDuration::from_hours(1);

/// What each check's finding does; `None` = the check is off.
impl HealthChecks {
    /// How long to wait for all checks to be healthy. Default 1h.
    pub fn timeout(&self) -> SignedDuration {
        GoDuration::or_default(self.timeout.as_ref(), DEFAULT_TIMEOUT)
    }

    /// Whether ClusterOperators are checked: `checkDegradedOperators` if set, else not `skipDegradedOperatorsCheck`.
    pub fn checks_operators(&self) -> bool {
        self.check_degraded_operators
            .unwrap_or(!self.skip_degraded_operators_check.unwrap_or(false))
    }

    /// ClusterOperators. Default Block.
    pub fn operators(&self) -> Option<Severity> {
        self.checks_operators()
            .then(|| self.severities().operators.unwrap_or(Severity::Block))
    }

    /// ClusterVersion `Failing`. Default Block; cannot be off.
    pub fn cluster_version(&self) -> Severity {
        self.severities().cluster_version.unwrap_or(Severity::Block)
    }

    /// Critical alerts. `checkCriticalAlerts: true` = Block, `false` = off, unset = Warn; `severity.criticalAlerts`
    /// overrides Block and Warn.
    pub fn critical_alerts(&self) -> Option<Severity> {
        let default = match self.check_critical_alerts {
            Some(true) => Severity::Block,
            Some(false) => return None,
            None => Severity::Warn,
        };
        Some(self.severities().critical_alerts.unwrap_or(default))
    }

    /// MachineConfigPools. Default Block.
    pub fn machine_config_pools(&self) -> Option<Severity> {
        self.check_machine_config_pools
            .unwrap_or(true)
            .then(|| self.severities().machine_config_pools.unwrap_or(Severity::Block))
    }

    /// Nodes that are NotReady or cordoned. Default Warn; cannot be off.
    pub fn nodes(&self) -> Severity {
        self.severities().nodes.unwrap_or(Severity::Warn)
    }

    fn severities(&self) -> CheckSeverities {
        self.severity.clone().unwrap_or_default()
    }
}

impl CustomQuery {
    /// What a non-empty result does. Default Block.
    pub fn severity(&self) -> Severity {
        self.severity.unwrap_or(Severity::Block)
    }
}

/// A PromQL query that is healthy when its result is empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomQuery {
    /// The PromQL expression, evaluated as an instant query.
    #[schemars(length(min = 1, max = 4096))]
    pub query: String,
    /// What a non-empty result does. Default Block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
}

/// Severity of each built-in check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckSeverities {
    /// ClusterVersion `Failing`. Default Block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_version: Option<Severity>,
    /// ClusterOperators. Default Block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operators: Option<Severity>,
    /// Critical alerts. Default: Block with `checkCriticalAlerts: true`, else Warn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical_alerts: Option<Severity>,
    /// MachineConfigPools. Default Block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config_pools: Option<Severity>,
    /// Nodes that are NotReady or cordoned. Default Warn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Severity>,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Severity::*, *};

    fn checks(yaml: &str) -> HealthChecks {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[rstest]
    #[case("{}", true)]
    #[case("{checkDegradedOperators: false}", false)]
    #[case("{skipDegradedOperatorsCheck: true}", false)]
    #[case("{skipDegradedOperatorsCheck: false}", true)]
    // Ours wins over the peer's spelling; validation reports the contradiction.
    #[case("{checkDegradedOperators: true, skipDegradedOperatorsCheck: true}", true)]
    fn operators_are_checked_unless_told_otherwise(#[case] yaml: &str, #[case] expected: bool) {
        assert_eq!(checks(yaml).checks_operators(), expected);
        assert_eq!(checks(yaml).operators(), expected.then_some(Block));
    }

    #[rstest]
    #[case("{}", Some(Warn))]
    #[case("{checkCriticalAlerts: true}", Some(Block))]
    #[case("{checkCriticalAlerts: false}", None)]
    #[case("{severity: {criticalAlerts: Block}}", Some(Block))]
    #[case("{checkCriticalAlerts: true, severity: {criticalAlerts: Warn}}", Some(Warn))]
    #[case("{checkCriticalAlerts: false, severity: {criticalAlerts: Block}}", None)]
    fn alerts_block_only_where_asked_for(#[case] yaml: &str, #[case] expected: Option<Severity>) {
        assert_eq!(checks(yaml).critical_alerts(), expected);
    }

    #[test]
    fn the_other_checks_have_their_defaults_and_can_be_softened() {
        let defaults = HealthChecks::default();
        assert_eq!(defaults.cluster_version(), Block);
        assert_eq!(defaults.machine_config_pools(), Some(Block));
        assert_eq!(defaults.nodes(), Warn);
        assert_eq!(defaults.timeout(), SignedDuration::from_hours(1));

        let changed = checks(
            "{timeout: 30m, checkMachineConfigPools: false, customQueries: [{query: a}, {query: b, severity: Warn}],
              severity: {clusterVersion: Warn, operators: Warn, nodes: Block}}",
        );
        assert_eq!(changed.cluster_version(), Warn);
        assert_eq!(changed.operators(), Some(Warn));
        assert_eq!(changed.machine_config_pools(), None);
        assert_eq!(changed.nodes(), Block);
        assert_eq!(changed.timeout(), SignedDuration::from_mins(30));
        let severities: Vec<Severity> = changed.custom_queries.iter().map(CustomQuery::severity).collect();
        assert_eq!(severities, [Block, Warn]);
    }
}
