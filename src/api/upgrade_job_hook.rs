//! UpgradeJobHook: what to run at the events of an upgrade.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::batch::v1::JobTemplateSpec,
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;

/// Runs something at the events of matching UpgradeJobs.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "managedupgrade.appuio.io",
    version = "v1beta1",
    kind = "UpgradeJobHook",
    plural = "upgradejobhooks",
    namespaced,
    status = "UpgradeJobHookStatus",
    derive = "PartialEq",
    doc = "Something to run at the events of matching UpgradeJobs: a Kubernetes Job, an Argo template, a Tekton Task.",
    shortname = "upjh",
    category = "managedupgrade",
    printcolumn(name = "Events", type_ = "string", json_path = ".spec.events"),
    printcolumn(name = "Run", type_ = "string", json_path = ".spec.run"),
    printcolumn(name = "On failure", type_ = "string", json_path = ".spec.failurePolicy"),
    printcolumn(name = "Claimed by", type_ = "string", json_path = ".status.claimedBy.name"),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Disruptive",
        type_ = "boolean",
        json_path = ".spec.disruptive",
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
#[x_kube(
    validation = Rule::new(ONE_ACTION)
        .message("write exactly one of template (a Kubernetes Job), templateRef (Argo) and taskRef (Tekton)"),
    validation = Rule::new(HAS_CONTAINER)
        .message("template.spec.template.spec.containers must name at least one container")
)]
pub struct UpgradeJobHookSpec {
    /// Events to run at: Create (the version is pinned), Start, UpgradeComplete (healthy; held pools may still
    /// wait), MachineConfigPoolUnpause, Success, Failure, Finish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<HookEvent>,
    /// `Next`: for the next matching job only. `All`, the default: for every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "All"))]
    pub run: Option<RunPolicy>,
    /// What a failure does: `Abort` fails the job, `Ignore`, the default, goes on. A failure at Success, Failure
    /// and Finish never changes the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Ignore"))]
    pub failure_policy: Option<FailurePolicy>,
    /// Whether the hook may disturb workloads; informational, passed on to all hooks of the job. Default false.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub disruptive: bool,
    /// Which UpgradeJobs, by their labels; absent or empty = all.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub selector: LabelSelector,
    /// A Kubernetes Job to run. No deadline is set for you: set `activeDeadlineSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<JobTemplateSpec>,
    /// An Argo WorkflowTemplate to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_ref: Option<TemplateRef>,
    /// A Tekton Task to run, where Tekton runs the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_ref: Option<TaskRef>,
}

/// CEL: what to run is said once.
const ONE_ACTION: &str =
    "[has(self.template), has(self.templateRef), has(self.taskRef)].filter(x, x).size() == 1";

/// CEL: a Job has something to run.
const HAS_CONTAINER: &str = "!has(self.template) || (has(self.template.spec) \
     && has(self.template.spec.template) && has(self.template.spec.template.spec) \
     && has(self.template.spec.template.spec.containers) \
     && self.template.spec.template.spec.containers.size() > 0)";

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
#[schemars(transform = crate::api::no_description)]
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
    /// All of them, in the order of an upgrade.
    pub const ALL: [Self; 7] = [
        Self::Create,
        Self::Start,
        Self::UpgradeComplete,
        Self::MachineConfigPoolUnpause,
        Self::Success,
        Self::Failure,
        Self::Finish,
    ];

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
#[schemars(transform = crate::api::no_description)]
pub enum RunPolicy {
    /// The next matching job only.
    Next,
    /// Every matching job.
    All,
}

/// What a failing hook does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::api::no_description)]
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
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Template in it. Default: its entrypoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether it is a ClusterWorkflowTemplate. Default false.
    #[serde(default, skip_serializing_if = "crate::api::is_default")]
    pub cluster_scope: bool,
    /// Arguments, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
}

/// A Tekton Task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskRef {
    /// Name of the Task.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the Task, where that is not the namespace of the hook: Tekton's resolver `cluster` then fetches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Arguments, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
    /// ServiceAccount of the pod. Default: that of `config.workflow.serviceAccountName` of the job, else that of the
    /// operator's flag `--workflow-service-account`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// How long the hook may take, all tries together, such as 30m. Default: no limit, so set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// How often it is tried again after it failed by itself. Default 0. A pod that was killed, as in a drain, is started
    /// again whatever this says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub retries: Option<u32>,
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
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn hook(spec: &serde_json::Value, status: &serde_json::Value) -> UpgradeJobHook {
        serde_json::from_value(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1",
            "kind": "UpgradeJobHook",
            "metadata": {"name": "a"},
            "spec": spec,
            "status": status
        }))
        .unwrap()
    }

    #[test]
    fn the_defaults_are_all_and_ignore() {
        let hook = hook(&json!({}), &json!({}));
        assert_eq!(hook.spec.run(), RunPolicy::All);
        assert_eq!(hook.spec.failure_policy(), FailurePolicy::Ignore);
        assert!(hook.selects(&BTreeMap::new()), "no selector selects every job");
    }

    #[rstest]
    #[case(HookEvent::Create, FailurePolicy::Abort)]
    #[case(HookEvent::Start, FailurePolicy::Abort)]
    #[case(HookEvent::UpgradeComplete, FailurePolicy::Abort)]
    #[case(HookEvent::MachineConfigPoolUnpause, FailurePolicy::Abort)]
    #[case(HookEvent::Success, FailurePolicy::Ignore)]
    #[case(HookEvent::Failure, FailurePolicy::Ignore)]
    #[case(HookEvent::Finish, FailurePolicy::Ignore)]
    fn a_hook_after_the_end_cannot_abort(#[case] event: HookEvent, #[case] expected: FailurePolicy) {
        let hook = hook(&json!({"failurePolicy": "Abort"}), &json!({}));
        assert_eq!(hook.spec.failure_policy_at(event), expected);
        assert_eq!(serde_json::to_value(event).unwrap(), event.as_str());
    }

    #[rstest]
    #[case("All", json!({"claimedBy": {"name": "other", "uid": "2"}}), true)]
    #[case("Next", json!({}), true)]
    #[case("Next", json!({"claimedBy": {"apiVersion": "", "kind": "", "name": "", "uid": ""}}), true)]
    #[case("Next", json!({"claimedBy": {"name": "mine", "uid": "1"}}), true)]
    #[case("Next", json!({"claimedBy": {"name": "other", "uid": "2"}}), false)]
    fn a_claimed_hook_is_open_to_its_claimant_only(
        #[case] run: &str,
        #[case] status: serde_json::Value,
        #[case] expected: bool,
    ) {
        assert_eq!(hook(&json!({"run": run}), &status).is_open_to("1"), expected);
    }
}
