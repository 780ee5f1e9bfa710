//! UpgradeConfig: when to upgrade, and the template of the jobs.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

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
    derive = "PartialEq",
    doc = "When to upgrade the cluster, and the template of the UpgradeJobs that do it.",
    shortname = "upc",
    category = "managedupgrade",
    printcolumn(name = "Cron", type_ = "string", json_path = ".spec.schedule.cron"),
    printcolumn(name = "Week", type_ = "string", json_path = ".spec.schedule.isoWeek"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.schedule.location"),
    printcolumn(name = "Suspend", type_ = "boolean", json_path = ".spec.schedule.suspend"),
    printcolumn(
        name = "Next",
        type_ = "string",
        json_path = ".status.nextPossibleSchedules[0].time"
    ),
    printcolumn(
        name = "Verdict",
        type_ = "string",
        json_path = ".status.nextPossibleSchedules[0].verdict"
    ),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Last",
        type_ = "string",
        json_path = ".status.lastScheduledUpgrade",
        priority = 1
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.nextPossibleSchedules[0].reason",
        priority = 1
    ),
    printcolumn(
        name = "Problem",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeConfigSpec {
    /// When runs happen.
    pub schedule: Schedule,
    /// How long before a run the version is pinned and the UpgradeJob created. Go duration; default 0: at the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_version_window: Option<GoDuration>,
    /// How late after its run instant a job may still start; then it is skipped. Go duration; default 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "1h"))]
    pub max_upgrade_start_delay: Option<GoDuration>,
    /// How late after its pin instant a job may still be created; then the run is missed. Go duration;
    /// default 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "1h"))]
    pub max_scheduling_delay: Option<GoDuration>,
    /// How many succeeded (or skipped) jobs to keep. Default 4; 0 or less = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successful_jobs_history_limit: Option<i32>,
    /// How many failed jobs to keep. Default: all; 0 or less = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// Cron expression with five fields: minute, hour, day of month, month, day of week (0 = Sunday). The syntax
    /// is that of robfig/cron `ParseStandard`: lists, ranges, steps, names, `@weekly` and the like; `@every` is
    /// refused.
    #[schemars(length(min = 1, max = 512))]
    pub cron: String,
    /// `@odd`, `@even` or the number of an ISO 8601 week in quotes (`"1"` to `"53"`), matched on the local date.
    /// Absent = every week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^(@odd|@even|0?[1-9]|[1-4][0-9]|5[0-3])$')")
        .message("isoWeek must be @odd, @even or an ISO week from 1 to 53, in quotes"))]
    pub iso_week: Option<String>,
    /// IANA time zone such as `Europe/Zurich`. Empty or `Local`, the default = the operator's
    /// `--default-location`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("default" = "Local"))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$')")
        .message("location must be an IANA time zone such as Europe/Zurich or UTC; an offset such as +02:00 is none"))]
    pub location: Option<String>,
    /// Suspends the schedule; runs that pass meanwhile are not made up for. Default false.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub suspend: bool,
}

/// Template of the UpgradeJobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTemplate {
    /// Labels and annotations of the jobs.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub metadata: JobTemplateMetadata,
    /// Specification of the jobs.
    pub spec: JobTemplateSpec,
}

/// Labels and annotations of the jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = accept_ignored_metadata)]
pub struct JobTemplateMetadata {
    /// Labels; hooks and suspension windows select jobs by them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Declares the fields of metadata that the peer's schema has and that mean nothing here, so that its resources
/// apply unchanged under strict validation too.
fn accept_ignored_metadata(schema: &mut Schema) {
    let Some(properties) = schema.get_mut("properties").and_then(|p| p.as_object_mut()) else {
        return;
    };
    let about = "Accepted and ignored.";
    for name in ["creationTimestamp", "name", "namespace"] {
        let field = json!({"type": "string", "nullable": true, "description": about});
        properties.insert(name.to_owned(), field);
    }
    let list = json!({"type": "array", "items": {"type": "string"}, "description": about});
    properties.insert("finalizers".to_owned(), list);
}

/// Specification of the jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTemplateSpec {
    /// Configuration copied into every job.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub config: JobConfig,
}

/// What the operator observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeConfigStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Run instant of the newest run that was decided (a job was created, or the run was skipped or missed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scheduled_upgrade: Option<Time>,
    /// All runs up to this instant were decided; later ones where `recentRuns` says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_until: Option<Time>,
    /// The next ten runs. The first may be one whose time has come and that still may get its job.
    #[serde(default)]
    pub next_possible_schedules: Vec<NextPossibleSchedule>,
    /// What became of the newest twenty runs that were decided, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_runs: Vec<RecentRun>,
    /// Conditions `Valid`, `Suspended`, `Scheduled`, `RunMissed`, `LastUpgradeSucceeded`, `ChannelChangeAhead`, `Held`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// One coming run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextPossibleSchedule {
    /// The run instant.
    pub time: Time,
    /// `WillRun`, `Suspended` (by a window), `ScheduleSuspended`, or `Missed` (decided: no job was made in time).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One run that was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecentRun {
    /// The run instant.
    pub time: Time,
    /// `JobCreated`, `Suspended` (by a window), `ScheduleSuspended`, or `Missed`.
    pub verdict: String,
    /// Why it has no job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Name of the job that was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_job: Option<String>,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn spec(rest: &str) -> UpgradeConfigSpec {
        let yaml = format!("{{schedule: {{cron: '@weekly'}}, jobTemplate: {{spec: {{}}}}, {rest}}}");
        serde_yaml::from_str(&yaml).unwrap()
    }

    #[test]
    fn durations_have_their_defaults() {
        let hours = SignedDuration::from_hours;
        let of = |s: &UpgradeConfigSpec| {
            (
                s.pin_version_window(),
                s.max_upgrade_start_delay(),
                s.max_scheduling_delay(),
            )
        };
        assert_eq!(of(&spec("")), (hours(0), hours(1), hours(1)));
        let all = "pinVersionWindow: 4h, maxUpgradeStartDelay: 2h, maxSchedulingDelay: 3h";
        assert_eq!(of(&spec(all)), (hours(4), hours(2), hours(3)));
    }

    #[rstest]
    #[case("", Some(4), None)]
    #[case("successfulJobsHistoryLimit: 2, failedJobsHistoryLimit: 3", Some(2), Some(3))]
    #[case("successfulJobsHistoryLimit: 0, failedJobsHistoryLimit: 0", None, None)]
    #[case("successfulJobsHistoryLimit: -1, failedJobsHistoryLimit: -1", None, None)]
    fn a_history_limit_of_zero_or_less_keeps_all(
        #[case] rest: &str,
        #[case] successful: Option<usize>,
        #[case] failed: Option<usize>,
    ) {
        assert_eq!(spec(rest).successful_jobs_history_limit(), successful);
        assert_eq!(spec(rest).failed_jobs_history_limit(), failed);
    }

    #[rstest]
    #[case("{cron: a}", None, None)]
    #[case("{cron: a, location: '', isoWeek: ''}", None, None)]
    #[case("{cron: a, location: Local}", None, None)]
    #[case(
        "{cron: a, location: Europe/Zurich, isoWeek: '@odd'}",
        Some("Europe/Zurich"),
        Some("@odd")
    )]
    fn empty_and_local_mean_the_default(
        #[case] yaml: &str,
        #[case] zone: Option<&str>,
        #[case] week: Option<&str>,
    ) {
        let schedule: Schedule = serde_yaml::from_str(yaml).unwrap();
        assert_eq!((schedule.location(), schedule.iso_week()), (zone, week));
    }
}
