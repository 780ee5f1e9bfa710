//! UpgradeJob: one upgrade, from pin to end.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{
    blocker::Blocker,
    conditions::{self, types},
    upgrade_job_hook::HookEvent,
};

pub use super::job_config::{
    ConfigMapName, DelayUpgrade, EngineChoice, JobConfig, PausePoolsOnFailure, PoolConfig, WorkflowConfig,
};

/// One upgrade of the cluster.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "managedupgrade.appuio.io",
    version = "v1beta1",
    kind = "UpgradeJob",
    plural = "upgradejobs",
    namespaced,
    status = "UpgradeJobStatus",
    derive = "PartialEq",
    doc = "One upgrade of the cluster: a pinned version, the window to start in, and how to go about it.",
    shortname = "upj",
    category = "managedupgrade",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".spec.desiredVersion.version"
    ),
    printcolumn(name = "Start", type_ = "string", json_path = ".spec.startAfter"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.progress"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(
        name = "Before",
        type_ = "string",
        json_path = ".spec.startBefore",
        priority = 1
    ),
    printcolumn(
        name = "Started",
        type_ = "string",
        json_path = ".status.startedAt",
        priority = 1
    ),
    printcolumn(
        name = "Finished",
        type_ = "string",
        json_path = ".status.finishedAt",
        priority = 1
    ),
    printcolumn(
        name = "Engine",
        type_ = "string",
        json_path = ".status.workflow.engine",
        priority = 1
    ),
    printcolumn(
        name = "Workflow",
        type_ = "string",
        json_path = ".status.workflow.name",
        priority = 1
    ),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.startAfter < self.startBefore")
        .message("startBefore must be later than startAfter: the job starts between the two"),
    validation = Rule::new("has(self.desiredVersion) == has(oldSelf.desiredVersion)")
        .message("desiredVersion cannot be changed: create another UpgradeJob"),
    validation = Rule::new(SAME_SELECTORS).message(
        "matchLabels of config.machineConfigPools cannot be changed, and no entry added or removed: \
         create another UpgradeJob (delays may be edited)"
    ),
    validation = Rule::new(SAME_ENGINE)
        .message("config.workflow.engine cannot be changed: create another UpgradeJob")
)]
pub struct UpgradeJobSpec {
    /// The job starts at this instant, not before. Cannot be changed.
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("startAfter cannot be changed: create another UpgradeJob"))]
    #[serde(deserialize_with = "crate::api::time::read")]
    pub start_after: Time,
    /// The job is skipped (and reported as expired) if it could not start by this instant. Cannot be changed.
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("startBefore cannot be changed: create another UpgradeJob"))]
    #[serde(deserialize_with = "crate::api::time::read")]
    pub start_before: Time,
    /// The version to upgrade to. Absent: no update was available; the run does hooks and pools only.
    /// Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("desiredVersion cannot be changed: create another UpgradeJob"))]
    pub desired_version: Option<DesiredVersion>,
    /// Whether the version must still be offered when the job starts. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_version_check_availability: Option<bool>,
    /// Whether a version older than the installed one may be set. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_downgrade: Option<bool>,
    /// Configuration of the upgrade. Timeouts, delays and health checks may be edited while the job runs and
    /// count at once; the selectors of pools and the engine cannot be changed.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub config: JobConfig,
}

/// CEL: entry by entry, the pools are selected as before. An absent list is an empty one.
const SAME_SELECTORS: &str = "(has(self.config) && has(self.config.machineConfigPools) \
     ? self.config.machineConfigPools.map(p, has(p.matchLabels) ? [p.matchLabels] : []) : []) == \
     (has(oldSelf.config) && has(oldSelf.config.machineConfigPools) \
     ? oldSelf.config.machineConfigPools.map(p, has(p.matchLabels) ? [p.matchLabels] : []) : [])";

/// CEL: the engine is asked for as before, or not asked for as before.
const SAME_ENGINE: &str = "(has(self.config) && has(self.config.workflow) && has(self.config.workflow.engine) \
     ? self.config.workflow.engine : '') == \
     (has(oldSelf.config) && has(oldSelf.config.workflow) && has(oldSelf.config.workflow.engine) \
     ? oldSelf.config.workflow.engine : '')";

impl UpgradeJob {
    /// The workflow that it follows, if it has begun with one.
    pub fn workflow(&self) -> Option<&WorkflowStatus> {
        self.status.as_ref()?.workflow.as_ref()
    }

    /// Whether the job was started.
    pub fn is_started(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|s| s.started_at.is_some() || conditions::is_true(&s.conditions, types::STARTED))
    }

    /// Whether the job has an outcome. Those of the peer have no `finishedAt`.
    pub fn is_finished(&self) -> bool {
        self.status.as_ref().is_some_and(|s| {
            s.finished_at.is_some()
                || conditions::is_true(&s.conditions, types::SUCCEEDED)
                || conditions::is_true(&s.conditions, types::FAILED)
        })
    }
}

impl UpgradeJobSpec {
    /// Whether the version must still be offered when the job starts. Default true.
    pub fn check_availability(&self) -> bool {
        self.desired_version_check_availability.unwrap_or(true)
    }

    /// Whether a version older than the installed one may be set. Default false.
    pub fn allow_downgrade(&self) -> bool {
        self.allow_downgrade.unwrap_or(false)
    }

    /// The instant at which the job fails if it is not done: `startAfter` + `upgradeTimeout`, pauses included.
    pub fn upgrade_deadline(&self) -> Timestamp {
        self.after_start(self.config.upgrade_timeout())
    }

    /// The instant `delay` after `startAfter`, which all delays and the timeout count from.
    pub fn after_start(&self, delay: SignedDuration) -> Timestamp {
        self.start_after.0.checked_add(delay).unwrap_or(Timestamp::MAX)
    }
}

/// A release of OpenShift, as in `spec.desiredUpdate` of the cluster's ClusterVersion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DesiredVersion {
    /// Version, such as `4.18.5`. Absent or empty: only `image` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Release image by digest. Absent or empty: looked up by the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Refused when true (condition `Valid`): it bypasses the signature check; a human does that by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Refused unless empty (condition `Valid`): a change of architecture is made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

/// What the operator observed and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeJobStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the job is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<JobPhase>,
    /// What is going on, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Finished steps of all steps, such as `4/11`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// When the job started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When its outcome was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// The workflow that shows and orders the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowStatus>,
    /// The engine that `HooksRunnable` and `TemplateValid` are about, before the start: another one is judged anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_engine: Option<EngineChoice>,
    /// Workflows of this job that it no longer follows and that are still to be stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub former_workflows: Vec<FormerWorkflow>,
    /// One entry a step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub steps: Vec<StepStatus>,
    /// `spec.desiredUpdate` of the ClusterVersion before we set it; absent if it had none or we have not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_desired_update: Option<DesiredVersion>,
    /// What we set, or are about to set, as `spec.desiredUpdate` of the ClusterVersion: recorded before the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_update: Option<DesiredVersion>,
    /// Pools that this job holds or has left paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub paused_pools: Vec<PausedPool>,
    /// Pods that keep nodes from being drained, by node, namespace and name; at most 20. Those of a failed job stay as they
    /// were seen last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node", "namespace", "pod"]))]
    pub blockers: Vec<Blocker>,
    /// Hooks that ran or run (the peer's).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hook_tracker: Vec<HookTracker>,
    /// Conditions, the peer's and ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The plan of the current run, for the operator itself; see `plan::Plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub plan: Option<serde_json::Value>,
}

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true})
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::api::no_description)]
pub enum JobPhase {
    /// Pinned, not started.
    Pending,
    /// Under way.
    Running,
    /// All done but pools that are held.
    Paused,
    /// Done.
    Succeeded,
    /// Failed; the condition `Failed` says why.
    Failed,
    /// Not run; the condition `Succeeded` with reason `Skipped` says why.
    Skipped,
}

/// The workflow of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// `argo`, `tekton` or `embedded`.
    pub engine: EngineChoice,
    /// API version of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the object.
    pub name: String,
    /// UID of the object; absent until it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Phase as the engine calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Where to look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Since when the job follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// A workflow that a job no longer follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormerWorkflow {
    /// Its engine.
    pub engine: EngineChoice,
    /// Name of the object.
    pub name: String,
    /// UID of the object, if it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// One step, mirrored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// Name, the same as in the workflow.
    pub name: String,
    /// What the step does, such as `AwaitControlPlane` or `Hook`.
    pub kind: String,
    /// Where the step is.
    pub phase: StepPhase,
    /// What it does or did, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// Where a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::api::no_description)]
pub enum StepPhase {
    /// Not reached yet.
    Pending,
    /// Under way.
    Running,
    /// Done.
    Succeeded,
    /// Failed.
    Failed,
    /// Not needed, or no longer possible.
    Skipped,
    /// Ended by a person in the engine.
    Overridden,
}

impl StepPhase {
    /// As it stands in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Skipped => "Skipped",
            Self::Overridden => "Overridden",
        }
    }

    /// Whether the step has ended.
    pub fn is_finished(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Skipped | Self::Overridden => true,
        }
    }
}

/// A pool that a job paused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PausedPool {
    /// Name of the MachineConfigPool.
    pub name: String,
    /// `delay` or `failure`.
    pub reason: PauseReason,
    /// When it was paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// Why we paused a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::api::no_description)]
pub enum PauseReason {
    /// `delayUpgrade`.
    #[serde(rename = "delay")]
    Delay,
    /// `pauseMachineConfigPoolsOnFailure`.
    #[serde(rename = "failure")]
    Failure,
}

/// A hook that ran or runs (the peer's shape).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookTracker {
    /// Event of the hook.
    pub hook_event: HookEvent,
    /// What tells several runs of one event apart: the pool of MachineConfigPoolUnpause.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tracking_key: String,
    /// Name of the UpgradeJobHook.
    #[serde(rename = "upgradeJobHook")]
    pub upgrade_job_hook: String,
    /// Where it is.
    pub status: HookState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What runs it in a workflow engine; absent for a Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_step: Option<WorkflowStep>,
}

/// A step of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::api::no_description)]
pub struct WorkflowStep {
    /// Name of the workflow.
    pub workflow: String,
    /// Name of the step.
    pub step: String,
}

/// State of a tracked hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::api::no_description)]
pub enum HookState {
    /// It runs.
    Active,
    /// It ended well.
    Complete,
    /// It failed, or could not be run.
    Failed,
}
