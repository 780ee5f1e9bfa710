//! Our custom resources: group `managedupgrade.appuio.io/v1beta1`, one file a kind.
//!
//! Kinds, fields, condition types, reasons, the lock annotation and the labels are those of
//! appuio/openshift-upgrade-controller ("the peer"), so that its resources work unchanged; what we add is
//! additive.

// Clippy takes the parts of several `printcolumn`s for one attribute given twice.
#![allow(clippy::duplicated_attributes)]

pub mod blocker;
pub mod cluster_version;
pub mod conditions;
pub mod duration;
pub mod health_check;
pub mod job_config;
pub mod label_selector;
pub mod names;
pub mod node_force_drain;
pub mod time;
pub mod upgrade_config;
pub mod upgrade_job;
pub mod upgrade_job_hook;
pub mod upgrade_suspension_window;
pub mod validation;
pub mod validity;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use duration::GoDuration;
pub use node_force_drain::NodeForceDrain;
pub use upgrade_config::UpgradeConfig;
pub use upgrade_job::UpgradeJob;
pub use upgrade_job_hook::UpgradeJobHook;
pub use upgrade_suspension_window::UpgradeSuspensionWindow;

/// API group of all our kinds.
pub const GROUP: &str = "managedupgrade.appuio.io";
/// The one served version.
pub const VERSION: &str = "v1beta1";

/// The CustomResourceDefinitions of all our kinds as derived, sorted by plural.
pub fn crds() -> [CustomResourceDefinition; 6] {
    [
        cluster_version::ClusterVersion::crd(),
        NodeForceDrain::crd(),
        UpgradeConfig::crd(),
        UpgradeJobHook::crd(),
        UpgradeJob::crd(),
        UpgradeSuspensionWindow::crd(),
    ]
}

/// For `skip_serializing_if`: keeps empty values out of the resources, and their defaults out of the schema.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// For enums: a field of such a type is described by the field, not by the type.
pub(crate) fn no_description(schema: &mut schemars::Schema) {
    schema.remove("description");
}

/// Annotations that we write on objects of others.
pub mod annotations {
    /// On the ClusterVersion: `<namespace>/<name>` of the UpgradeJob that holds the lock (the peer's).
    /// On a MachineConfigPool: the UpgradeJob that paused it (the peer's).
    pub const UPGRADE_JOB: &str = "managedupgrade.appuio.io/upgrade-job";
    /// UID of that UpgradeJob: tells a re-created job from the one that took the lock or the pause.
    pub const UPGRADE_JOB_UID: &str = "managedupgrade.appuio.io/upgrade-job-uid";
    /// On a MachineConfigPool: why we paused it, `delay` or `failure`.
    pub const PAUSE_REASON: &str = "managedupgrade.appuio.io/pause-reason";
    /// On the ClusterVersion: when we last changed its channel or its update service.
    pub const CHANNEL_CHANGED_AT: &str = "managedupgrade.appuio.io/channel-changed-at";
    /// On an UpgradeJob: why it has this version, or none.
    pub const VERSION_CHOICE: &str = "managedupgrade.appuio.io/version-choice";
    /// On a TaskRun of a hook: which try it is, from 2.
    pub const ATTEMPT: &str = "managedupgrade.appuio.io/attempt";
    /// On a workflow: when we last made its engine look at it.
    pub const WOKEN_AT: &str = "managedupgrade.appuio.io/woken-at";
    /// On a workflow that has ended: when we last saw to it that its engine runs nothing of it if somebody retries it.
    pub const SEALED_AT: &str = "managedupgrade.appuio.io/sealed-at";
    /// On a workflow: hooks that it should run and cannot, a JSON object of step → cause.
    pub const HOOKS_NOT_RUN: &str = "managedupgrade.appuio.io/hooks-not-run";
}

/// Labels that we write.
pub mod labels {
    /// On an UpgradeJob: name of its UpgradeConfig (a label value: at most 63 characters, see [`super::names`]).
    pub const UPGRADE_CONFIG: &str = "managedupgrade.appuio.io/upgrade-config";
    /// On an UpgradeJob: the run instant in Unix seconds; together with the config it names one run.
    pub const START: &str = "managedupgrade.appuio.io/start";
    /// On an UpgradeJob: the version it upgrades to.
    pub const TARGET_VERSION: &str = "managedupgrade.appuio.io/version";
    /// On a workflow: name of the UpgradeJob (a label value).
    pub const UPGRADE_JOB: &str = "managedupgrade.appuio.io/upgrade-job";
    /// On a workflow: UID of the UpgradeJob.
    pub const UPGRADE_JOB_UID: &str = "managedupgrade.appuio.io/upgrade-job-uid";
    /// On a hook's Job or TaskRun: name of the UpgradeJobHook (the peer's).
    pub const HOOK: &str = "upgradejobs.managedupgrade.appuio.io/upgradejobhook";
    /// On a hook's Job or TaskRun: name of the UpgradeJob. The spelling is the peer's.
    pub const HOOK_JOB: &str = "upgradejobs.managedupgrade.appuio.io/upgradejobk";
    /// On a hook's Job or TaskRun: the event (the peer's).
    pub const HOOK_EVENT: &str = "upgradejobs.managedupgrade.appuio.io/event";
    /// On a hook's Job or TaskRun: what tells several runs of one event apart, such as the pool (the peer's).
    pub const HOOK_TRACKING_KEY: &str = "upgradejobs.managedupgrade.appuio.io/tracking-key";
}

/// Finalizers that we set.
pub mod finalizers {
    /// On a started UpgradeJob: lock, pauses and intent are taken back before it goes.
    pub const UPGRADE_JOB: &str = "managedupgrade.appuio.io/release";
    /// On a hook's Job or TaskRun: its end is in `status.hookTracker` before it goes (the peer's).
    pub const HOOK_JOB: &str = "upgradejobs.managedupgrade.appuio.io/hook-job-tracker";
}

#[cfg(test)]
pub(crate) mod schema_tests;
