//! Configuration of an upgrade, the same in UpgradeConfig and UpgradeJob.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    GoDuration,
    health_check::HealthChecks,
    label_selector::{Selector, label_selector_matches},
};
use crate::openshift::machine_config_pool::MachineConfigPool;

/// Default of `upgradeTimeout`: 12 hours, the peer's.
pub const DEFAULT_UPGRADE_TIMEOUT: SignedDuration = SignedDuration::from_hours(12);

/// Configuration of an upgrade, the same in UpgradeConfig and UpgradeJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobConfig {
    /// The job fails when it is not done this long after `startAfter`; pauses count. Go duration; default 12h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "12h"))]
    pub upgrade_timeout: Option<GoDuration>,
    /// Health checks before anything is touched.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub pre_upgrade_health_checks: HealthChecks,
    /// Health checks after the upgrade, and before each held pool.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub post_upgrade_health_checks: HealthChecks,
    /// MachineConfigPools to hold back. The first entry with a delay that matches a pool counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub machine_config_pools: Vec<PoolConfig>,
    /// Pools to pause when the job fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_machine_config_pools_on_failure: Option<PausePoolsOnFailure>,
    /// How the workflow is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowConfig>,
}

/// MachineConfigPools selected by label, and how long they are held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolConfig {
    /// Which pools: a LabelSelector, or a plain label map. Absent = none, `{}` = all but the control plane's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<Selector>,
    /// How long they are held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_upgrade: Option<DelayUpgrade>,
}

/// How long pools are held; both delays count from `startAfter`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(has(self.delayMin) && has(self.startAfter))")
        .message("startAfter is an older spelling of delayMin: write delayMin only"),
    validation = Rule::new("!(has(self.delayMax) && has(self.startBefore))")
        .message("startBefore is an older spelling of delayMax: write delayMax only")
)]
pub struct DelayUpgrade {
    /// Pools stay paused at least this long after the job's `startAfter`. Go duration; absent or 0 = not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_min: Option<GoDuration>,
    /// The job fails if a pool could not be unpaused this long after the job's `startAfter`. Go duration; absent
    /// or 0 = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_max: Option<GoDuration>,
    /// Older spelling of `delayMin`. Go duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_after: Option<GoDuration>,
    /// Older spelling of `delayMax`. Go duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_before: Option<GoDuration>,
}

/// Pools to pause when the job fails; only a person lifts that pause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PausePoolsOnFailure {
    /// Whether to pause at all. Default false.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub enabled: bool,
    /// Which pools; empty = all but the control plane's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// How the workflow is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowConfig {
    /// Workflow engine: `auto`, `argo`, `tekton` or `embedded`. Default: the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineChoice>,
    /// ConfigMap in the job's namespace with a template of your own, key `upgrade-workflow.yaml.hbs` (Argo) or `upgrade-pipelinerun.yaml.hbs` (Tekton).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<ConfigMapName>,
    /// ServiceAccount of the workflow's pods. Default: the operator's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// How long a finished workflow is kept. Go duration; default: as long as the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<GoDuration>,
}

/// Reference to a ConfigMap in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapName {
    /// Name of the ConfigMap.
    pub name: String,
}

/// Workflow engine, as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::api::no_description)]
pub enum EngineChoice {
    /// Argo Workflows, then Tekton, then embedded: the first that is there.
    #[serde(rename = "auto")]
    Auto,
    /// Argo Workflows.
    #[serde(rename = "argo")]
    Argo,
    /// Tekton Pipelines.
    #[serde(rename = "tekton")]
    Tekton,
    /// No workflow object: the operator orders the steps by itself.
    #[serde(rename = "embedded")]
    Embedded,
}

impl EngineChoice {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Argo => "argo",
            Self::Tekton => "tekton",
            Self::Embedded => "embedded",
        }
    }
}

impl JobConfig {
    /// How long after `startAfter` the job fails when it is not done. Default 12h.
    pub fn upgrade_timeout(&self) -> SignedDuration {
        GoDuration::or_default(self.upgrade_timeout.as_ref(), DEFAULT_UPGRADE_TIMEOUT)
    }

    /// The entry that holds this pool: the first that matches and has a delay, with its index. Never the control plane's.
    ///
    /// An entry without delay holds nothing and hides no later entry (so does the peer).
    pub fn hold_of(&self, pool: &MachineConfigPool) -> Option<(usize, SignedDuration)> {
        self.holds_of(pool).next()
    }

    /// All entries that would hold this pool, with their indices; the first does.
    pub fn holds_of(&self, pool: &MachineConfigPool) -> impl Iterator<Item = (usize, SignedDuration)> {
        self.machine_config_pools
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.selects(pool))
            .filter_map(|(index, entry)| Some((index, entry.delay_min()?)))
    }

    /// Whether the pool is to be paused when the job fails. Never the control plane's.
    pub fn pauses_on_failure(&self, pool: &MachineConfigPool) -> bool {
        self.pause_machine_config_pools_on_failure
            .as_ref()
            .is_some_and(|p| p.enabled && p.selects(pool))
    }

    /// The engine that this job asks for; `None` = the operator's default.
    pub fn engine(&self) -> Option<EngineChoice> {
        self.workflow.as_ref().and_then(|w| w.engine)
    }
}

impl WorkflowConfig {
    /// The ServiceAccount of the workflow's pods, where the operator's choice is `default`.
    pub fn service_account<'a>(&'a self, default: Option<&'a String>) -> Option<&'a String> {
        self.service_account_name.as_ref().or(default)
    }
}

impl PoolConfig {
    /// Whether the entry is about this pool: selected by label, and not one that the control plane needs.
    pub fn selects(&self, pool: &MachineConfigPool) -> bool {
        !pool.is_required_for_upgrade() && self.names(pool)
    }

    /// Whether the selector matches, the control plane's pools included. Absent matches nothing.
    pub fn names(&self, pool: &MachineConfigPool) -> bool {
        self.match_labels
            .as_ref()
            .is_some_and(|s| s.matches(Some(pool.labels())))
    }

    /// How long its pools are held, from `startAfter`; `None` = not at all.
    pub fn delay_min(&self) -> Option<SignedDuration> {
        self.delay_upgrade.as_ref().and_then(DelayUpgrade::min)
    }

    /// Until when its pools must be unpaused, from `startAfter`; `None` = no limit.
    pub fn delay_max(&self) -> Option<SignedDuration> {
        self.delay_upgrade.as_ref().and_then(DelayUpgrade::max)
    }
}

impl DelayUpgrade {
    /// The shortest hold, counted from `startAfter`, in either spelling. `None` = no hold (absent, 0, or not a duration).
    pub fn min(&self) -> Option<SignedDuration> {
        self.min_as_written()?.positive()
    }

    /// The longest hold, counted from `startAfter`, in either spelling. `None` = no limit (absent, 0, or not a duration).
    pub fn max(&self) -> Option<SignedDuration> {
        self.max_as_written()?.positive()
    }

    /// `delayMin`, or else its older spelling `startAfter`.
    pub fn min_as_written(&self) -> Option<&GoDuration> {
        self.delay_min.as_ref().or(self.start_after.as_ref())
    }

    /// `delayMax`, or else its older spelling `startBefore`.
    pub fn max_as_written(&self) -> Option<&GoDuration> {
        self.delay_max.as_ref().or(self.start_before.as_ref())
    }
}

impl PausePoolsOnFailure {
    /// Whether the selector is about this pool: absent or empty = all, but never one that the control plane needs.
    pub fn selects(&self, pool: &MachineConfigPool) -> bool {
        !pool.is_required_for_upgrade()
            && self
                .selector
                .as_ref()
                .is_none_or(|s| label_selector_matches(s, pool.labels()))
    }
}

impl WorkflowConfig {
    /// How long a finished workflow is kept; `None` = as long as the job.
    pub fn ttl(&self) -> Option<SignedDuration> {
        self.ttl.as_ref()?.get().ok()
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::api::upgrade_job::UpgradeJobSpec;

    fn pool(name: &str, labels: &serde_json::Value) -> MachineConfigPool {
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "metadata": {"name": name, "labels": labels},
            "spec": {}
        }))
        .unwrap()
    }

    fn config(yaml: &str) -> JobConfig {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[rstest]
    #[case("{}", None)]
    #[case("{machineConfigPools: [{matchLabels: {}}]}", None)]
    #[case("{machineConfigPools: [{delayUpgrade: {delayMin: 1h}}]}", None)]
    #[case(
        "{machineConfigPools: [{matchLabels: {a: c}, delayUpgrade: {delayMin: 1h}}]}",
        None
    )]
    #[case("{machineConfigPools: [{matchLabels: {a: b}, delayUpgrade: {delayMin: 1h}}]}", Some((0, 1)))]
    #[case("{machineConfigPools: [{matchLabels: {}, delayUpgrade: {startAfter: 1h}}]}", Some((0, 1)))]
    // The first with a delay wins; one without hides nothing.
    #[case(
        "{machineConfigPools: [{matchLabels: {}}, {matchLabels: {}, delayUpgrade: {delayMin: 0s, delayMax: 1h}},
          {matchLabels: {}, delayUpgrade: {delayMin: 2h}}, {matchLabels: {}, delayUpgrade: {delayMin: 3h}}]}",
        Some((2, 2))
    )]
    fn a_pool_is_held_by_the_first_entry_with_a_delay(
        #[case] yaml: &str,
        #[case] expected: Option<(usize, i64)>,
    ) {
        let expected = expected.map(|(index, hours)| (index, SignedDuration::from_hours(hours)));
        assert_eq!(
            config(yaml).hold_of(&pool("worker", &json!({"a": "b"}))),
            expected
        );
    }

    #[rstest]
    #[case(pool("master", &json!({})))]
    #[case(pool("infra", &json!({"operator.machineconfiguration.openshift.io/required-for-upgrade": ""})))]
    fn the_control_planes_pools_are_never_held_or_paused(#[case] pool: MachineConfigPool) {
        let config = config(
            "{machineConfigPools: [{matchLabels: {}, delayUpgrade: {delayMin: 1h}}],
              pauseMachineConfigPoolsOnFailure: {enabled: true}}",
        );
        assert_eq!(config.hold_of(&pool), None);
        assert!(!config.pauses_on_failure(&pool));
        assert!(config.machine_config_pools[0].names(&pool), "but it is named");
    }

    #[rstest]
    #[case("{}", false)]
    #[case("{pauseMachineConfigPoolsOnFailure: {selector: {}}}", false)]
    #[case("{pauseMachineConfigPoolsOnFailure: {enabled: true}}", true)]
    #[case("{pauseMachineConfigPoolsOnFailure: {enabled: true, selector: {}}}", true)]
    #[case(
        "{pauseMachineConfigPoolsOnFailure: {enabled: true, selector: {matchLabels: {a: b}}}}",
        true
    )]
    #[case(
        "{pauseMachineConfigPoolsOnFailure: {enabled: true, selector: {matchLabels: {a: c}}}}",
        false
    )]
    fn pools_are_paused_on_failure_where_enabled_and_selected(#[case] yaml: &str, #[case] expected: bool) {
        assert_eq!(
            config(yaml).pauses_on_failure(&pool("worker", &json!({"a": "b"}))),
            expected
        );
    }

    #[rstest]
    #[case("{}", None, None)]
    #[case("{delayMin: 1h, delayMax: 2h}", Some(1), Some(2))]
    #[case("{startAfter: 1h, startBefore: 2h}", Some(1), Some(2))]
    #[case(
        "{delayMin: 1h, startAfter: 5h, delayMax: 2h, startBefore: 5h}",
        Some(1),
        Some(2)
    )]
    #[case("{delayMin: 0s, delayMax: 0s}", None, None)]
    #[case("{delayMin: soon, delayMax: -1h}", None, None)]
    fn delays_have_two_spellings_and_zero_is_none(
        #[case] yaml: &str,
        #[case] min: Option<i64>,
        #[case] max: Option<i64>,
    ) {
        let entry = PoolConfig {
            delay_upgrade: Some(serde_yaml::from_str(yaml).unwrap()),
            ..PoolConfig::default()
        };
        assert_eq!(entry.delay_min(), min.map(SignedDuration::from_hours));
        assert_eq!(entry.delay_max(), max.map(SignedDuration::from_hours));
    }

    #[rstest]
    #[case("{}", 12)]
    #[case("{upgradeTimeout: 2h}", 2)]
    #[case("{upgradeTimeout: 1d}", 12)]
    fn the_deadline_counts_from_start_after(#[case] yaml: &str, #[case] hours: i64) {
        let start: jiff::Timestamp = "2026-01-01T22:00:00Z".parse().unwrap();
        let mut spec: UpgradeJobSpec =
            serde_json::from_value(json!({"startAfter": start, "startBefore": "2026-01-01T23:00:00Z"}))
                .unwrap();
        spec.config = config(yaml);
        assert_eq!(spec.upgrade_deadline(), start + hours.hours());
        assert!(spec.check_availability());
        assert!(!spec.allow_downgrade());
    }

    #[test]
    fn a_deadline_beyond_the_calendar_is_its_end() {
        let mut spec: UpgradeJobSpec = serde_json::from_value(
            json!({"startAfter": "9999-01-01T22:00:00Z", "startBefore": "9999-01-01T23:00:00Z"}),
        )
        .unwrap();
        spec.config = config("{upgradeTimeout: 2562047h}");
        assert_eq!(spec.upgrade_deadline(), jiff::Timestamp::MAX);
    }

    #[test]
    fn engine_and_ttl_are_as_configured() {
        assert_eq!(config("{}").engine(), None);
        let config = config("{workflow: {engine: argo, ttl: 24h}}");
        assert_eq!(config.engine(), Some(EngineChoice::Argo));
        assert_eq!(
            config.workflow.unwrap().ttl(),
            Some(SignedDuration::from_hours(24))
        );
    }
}
