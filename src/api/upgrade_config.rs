//! UpgradeConfig: when to upgrade, and the template of the jobs.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GoDuration, upgrade_job::JobConfig};

/// Schedules upgrades of the cluster.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "managedupgrade.appuio.io",
    version = "v1beta1",
    kind = "UpgradeConfig",
    plural = "upgradeconfigs",
    namespaced,
    status = "UpgradeConfigStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeConfigSpec {
    /// When runs happen.
    pub schedule: Schedule,
    /// How long before a run the version is pinned and the UpgradeJob created. Go duration; absent = at the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin_version_window: Option<GoDuration>,
    /// How late after its run instant a job may still start. Go duration; default 1h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_upgrade_start_delay: Option<GoDuration>,
    /// How late after its pin instant a job may still be created. Go duration; default 1h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_scheduling_delay: Option<GoDuration>,
    /// How many succeeded (or skipped) jobs to keep. Default 4; 0 or less = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successful_jobs_history_limit: Option<i32>,
    /// How many failed jobs to keep. Default: all; 0 or less = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_jobs_history_limit: Option<i32>,
    /// Template of the UpgradeJobs.
    pub job_template: JobTemplate,
}

/// Default of `maxUpgradeStartDelay` and `maxSchedulingDelay`: 1 hour, the peer's.
pub const DEFAULT_MAX_DELAY: SignedDuration = SignedDuration::from_hours(1);
/// Default of `successfulJobsHistoryLimit`, the peer's.
pub const DEFAULT_SUCCESSFUL_JOBS: usize = 4;

impl UpgradeConfigSpec {
    /// How long before a run the version is pinned. Default 0: at the run.
    pub fn pin_version_window(&self) -> SignedDuration {
        GoDuration::or_default(self.pin_version_window.as_ref(), SignedDuration::ZERO)
    }

    /// How late after its run instant a job may still start. Default 1h.
    pub fn max_upgrade_start_delay(&self) -> SignedDuration {
        GoDuration::or_default(self.max_upgrade_start_delay.as_ref(), DEFAULT_MAX_DELAY)
    }

    /// How late after its pin instant a job may still be created. Default 1h.
    pub fn max_scheduling_delay(&self) -> SignedDuration {
        GoDuration::or_default(self.max_scheduling_delay.as_ref(), DEFAULT_MAX_DELAY)
    }

    /// How many succeeded (or skipped) jobs to keep; `None` = all. Default 4.
    pub fn successful_jobs_history_limit(&self) -> Option<usize> {
        self.successful_jobs_history_limit
            .map_or(Some(DEFAULT_SUCCESSFUL_JOBS), limit)
    }

    /// How many failed jobs to keep; `None` = all, the default.
    pub fn failed_jobs_history_limit(&self) -> Option<usize> {
        self.failed_jobs_history_limit.and_then(limit)
    }
}

/// A history limit; 0 or less = none.
fn limit(configured: i32) -> Option<usize> {
    usize::try_from(configured).ok().filter(|n| *n > 0)
}

impl Schedule {
    /// The zone as configured; `None` where it is absent, empty or `Local`: the operator's default then.
    pub fn location(&self) -> Option<&str> {
        self.location
            .as_deref()
            .filter(|l| !l.is_empty() && *l != "Local")
    }

    /// The ISO week as configured; `None` where it is absent or empty: every week.
    pub fn iso_week(&self) -> Option<&str> {
        self.iso_week.as_deref().filter(|w| !w.is_empty())
    }
}

/// When runs happen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// Five-field cron expression (robfig/cron `ParseStandard`): minute, hour, day of month, month, day of week (0 = Sunday).
    pub cron: String,
    /// `@odd`, `@even` or the number of an ISO 8601 week, matched on the local date. Absent = every week.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso_week: Option<String>,
    /// IANA time zone such as `Europe/Zurich`. Empty or `Local` = the operator's `--default-location`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Suspends the schedule; runs that pass meanwhile are not made up for.
    #[serde(default)]
    pub suspend: bool,
}

/// Template of the UpgradeJobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTemplate {
    /// Labels and annotations of the jobs.
    #[serde(default)]
    pub metadata: JobTemplateMetadata,
    /// Specification of the jobs.
    pub spec: JobTemplateSpec,
}

/// Labels and annotations of the jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTemplateMetadata {
    /// Labels; hooks and suspension windows select jobs by them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Specification of the jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTemplateSpec {
    /// Configuration copied into every job.
    #[serde(default)]
    pub config: JobConfig,
}

/// What the operator observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeConfigStatus {
    /// Generation that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Run instant of the newest run that was decided (a job was created, or the run was skipped or missed).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scheduled_upgrade: Option<Time>,
    /// The next ten runs.
    #[serde(default)]
    pub next_possible_schedules: Vec<NextPossibleSchedule>,
    /// Conditions `Valid`, `Suspended`, `Scheduled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One coming run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextPossibleSchedule {
    /// The run instant.
    pub time: Time,
    /// `WillRun`, `Suspended` or `ScheduleSuspended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
