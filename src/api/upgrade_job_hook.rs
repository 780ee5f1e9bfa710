//! UpgradeJobHook: what to run at the events of an upgrade.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::batch::v1::JobTemplateSpec,
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Runs something at the events of matching UpgradeJobs.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "managedupgrade.appuio.io",
    version = "v1beta1",
    kind = "UpgradeJobHook",
    plural = "upgradejobhooks",
    namespaced,
    status = "UpgradeJobHookStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeJobHookSpec {
    /// Events to run at.
    #[serde(default)]
    pub events: Vec<HookEvent>,
    /// Whether to run for the next job only. Default All.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunPolicy>,
    /// What a failure does. Default Ignore. Success, Failure and Finish never change the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// Whether the hook may disturb workloads; informational, passed on to all hooks of the job.
    #[serde(default)]
    pub disruptive: bool,
    /// Which UpgradeJobs; empty = all.
    #[serde(default)]
    pub selector: LabelSelector,
    /// A Kubernetes Job to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<JobTemplateSpec>,
    /// An Argo WorkflowTemplate to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_ref: Option<TemplateRef>,
    /// A Tekton Task to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_ref: Option<TaskRef>,
}

impl UpgradeJobHookSpec {
    /// Whether the hook is for the next job only. Default All.
    pub fn run(&self) -> RunPolicy {
        self.run.unwrap_or(RunPolicy::All)
    }

    /// What a failure does. Default Ignore.
    pub fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy.unwrap_or(FailurePolicy::Ignore)
    }

    /// What a failure at this event does: Success, Failure and Finish never change the outcome.
    pub fn failure_policy_at(&self, event: HookEvent) -> FailurePolicy {
        if event.influences_outcome() {
            self.failure_policy()
        } else {
            FailurePolicy::Ignore
        }
    }
}

/// Events of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HookEvent {
    /// The job was created; the version is pinned and the job waits for `startAfter`.
    Create,
    /// The job started.
    Start,
    /// The upgrade is complete and healthy; held pools may still wait.
    UpgradeComplete,
    /// A held pool is about to be unpaused; `EVENT_pool` names it.
    MachineConfigPoolUnpause,
    /// The job succeeded or was skipped.
    Success,
    /// The job failed.
    Failure,
    /// The job ended, whatever the outcome.
    Finish,
}

impl HookEvent {
    /// The event as resources spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Start => "Start",
            Self::UpgradeComplete => "UpgradeComplete",
            Self::MachineConfigPoolUnpause => "MachineConfigPoolUnpause",
            Self::Success => "Success",
            Self::Failure => "Failure",
            Self::Finish => "Finish",
        }
    }

    /// Whether a failing hook of this event may fail the job.
    pub fn influences_outcome(self) -> bool {
        match self {
            Self::Create | Self::Start | Self::UpgradeComplete | Self::MachineConfigPoolUnpause => true,
            Self::Success | Self::Failure | Self::Finish => false,
        }
    }
}

/// Which jobs a hook runs for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RunPolicy {
    /// The next matching job only.
    Next,
    /// Every matching job.
    All,
}

/// What a failing hook does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailurePolicy {
    /// The job fails.
    Abort,
    /// The failure is recorded and the upgrade goes on.
    Ignore,
}

/// An Argo WorkflowTemplate or ClusterWorkflowTemplate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateRef {
    /// Name of the WorkflowTemplate.
    pub name: String,
    /// Template in it. Default: its entrypoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether it is a ClusterWorkflowTemplate. Default false.
    #[serde(default)]
    pub cluster_scope: bool,
    /// Arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
}

/// A Tekton Task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskRef {
    /// Name of the Task.
    pub name: String,
    /// Arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
}

/// A named argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Argument {
    /// Name of the parameter.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// What the operator observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeJobHookStatus {
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The job that claimed a hook with `run: Next` (the peer's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<ClaimReference>,
    /// Condition `Valid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Who claimed a hook; the peer writes empty strings where nobody did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReference {
    /// API version of the claimant.
    #[serde(default)]
    pub api_version: String,
    /// Kind of the claimant.
    #[serde(default)]
    pub kind: String,
    /// Name of the claimant.
    #[serde(default)]
    pub name: String,
    /// UID of the claimant.
    #[serde(default)]
    pub uid: String,
}

impl UpgradeJobHook {
    /// Whether the hook is for a job with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        super::label_selector::label_selector_matches(&self.spec.selector, labels)
    }

    /// The job that claimed this hook; the peer writes an empty reference where nobody did.
    pub fn claimed_by(&self) -> Option<&ClaimReference> {
        self.status
            .as_ref()
            .and_then(|s| s.claimed_by.as_ref())
            .filter(|c| !c.name.is_empty() || !c.uid.is_empty())
    }

    /// Whether the hook runs for the job with this UID: always with `run: All`, else while nobody else has claimed it.
    pub fn is_open_to(&self, job_uid: &str) -> bool {
        match self.spec.run() {
            RunPolicy::All => true,
            RunPolicy::Next => self.claimed_by().is_none_or(|c| c.uid == job_uid),
        }
    }
}
