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
    /// ConfigMap in the job's namespace with a template of your own, key `upgrade-workflow.yaml.hbs`.
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

impl JobConfig {
    /// How long after `startAfter` the job fails when it is not done. Default 12h.
    pub fn upgrade_timeout(&self) -> SignedDuration {
        GoDuration::or_default(self.upgrade_timeout.as_ref(), DEFAULT_UPGRADE_TIMEOUT)
    }

    /// The entry that holds this pool: the first that matches and has a delay, with its index. Never the control plane's.
    ///
    /// An entry without delay holds nothing and hides no later entry (so does the peer).
    pub fn hold_of(&self, pool: &MachineConfigPool) -> Option<(usize, SignedDuration)> {
        self.machine_config_pools
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.selects(pool))
            .find_map(|(index, entry)| Some((index, entry.delay_min()?)))
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
