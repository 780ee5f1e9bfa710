//! What every decision is made from: a snapshot of the cluster, without client or clock.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt;

use crate::{
    api::{
        UpgradeConfig, UpgradeJob, UpgradeJobHook, UpgradeSuspensionWindow,
        cluster_version::ClusterVersion as ManagedClusterVersion,
    },
    drain,
    hooks::{hook_run::HookRun, task_run::TaskRun},
    lifecycle,
    metrics::Family,
    openshift::{
        self,
        cluster_operator::ClusterOperator,
        cluster_version::{self, ClusterVersion},
        machine_config_pool::MachineConfigPool,
        node::NodeView,
    },
    outside::Outside,
    overlay, pinning, schedule,
    unreadable::{Kind, Unreadable},
};

/// A snapshot of everything that decisions rest on. Lists are sorted by name.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The cluster's ClusterVersion; `None` where it is not there (or not known yet).
    pub cluster_version: Option<ClusterVersion>,
    /// ClusterOperators.
    pub operators: Vec<ClusterOperator>,
    /// MachineConfigPools.
    pub pools: Vec<MachineConfigPool>,
    /// Rendered MachineConfigs: name → release version they were rendered for.
    pub rendered: BTreeMap<String, String>,
    /// Nodes.
    pub nodes: Vec<NodeView>,
    /// ClusterVersions of our own kind, of our namespace; only the one named `version` counts.
    pub managed_versions: Vec<ManagedClusterVersion>,
    /// UpgradeConfigs of our namespace.
    pub configs: Vec<UpgradeConfig>,
    /// UpgradeJobs of our namespace.
    pub jobs: Vec<UpgradeJob>,
    /// Objects of our kinds, of our namespace, that this operator cannot read: they are none of the lists.
    pub unreadable: Vec<Unreadable>,
    /// UpgradeJobHooks of our namespace.
    pub hooks: Vec<UpgradeJobHook>,
    /// UpgradeSuspensionWindows of our namespace.
    pub windows: Vec<UpgradeSuspensionWindow>,
    /// Jobs of hooks, of our namespace.
    pub hook_jobs: Vec<Job>,
    /// TaskRuns of hooks, of our namespace; none where Tekton is not installed.
    pub hook_task_runs: Vec<TaskRun>,
    /// `status.controlPlaneTopology` of the Infrastructure.
    pub control_plane_topology: Option<String>,
    /// What is known beside the cluster's objects.
    pub outside: Outside,
}

impl World {
    /// What `/metrics` tells of it at `now`.
    pub fn metrics(&self, now: Timestamp) -> Vec<Family> {
        let mut all = openshift::metrics(self.cluster_version.as_ref(), &self.pools);
        all.extend(pinning::metrics(self, now));
        all.extend(schedule::metrics(&self.windows));
        all.extend(lifecycle::metrics(self, now));
        all.extend(drain::metrics(&self.nodes, &self.jobs));
        all.extend(overlay::metrics(&self.managed_versions));
        all
    }

    /// What runs for hooks, as it is now.
    pub fn hook_runs(&self, now: Timestamp) -> Vec<HookRun<'_>> {
        let jobs = self.hook_jobs.iter().map(HookRun::of_job);
        let task_runs = self.hook_task_runs.iter();
        jobs.chain(task_runs.map(|r| HookRun::of_task_run(r, now)))
            .collect()
    }

    /// The job of this name.
    pub fn job(&self, name: &str) -> Option<&UpgradeJob> {
        self.jobs.iter().find(|j| j.name_any() == name)
    }

    /// Metadata of all jobs, also of those that cannot be read.
    pub fn job_metadata(&self) -> Vec<&ObjectMeta> {
        let read = self.jobs.iter().map(|job| &job.metadata);
        let unreadable = self.unreadable_of(Kind::UpgradeJob).map(|job| &job.metadata);
        read.chain(unreadable).collect()
    }

    /// Whether there is a job of this name that cannot be read. It may be running.
    pub fn has_unreadable_job(&self, name: &str) -> bool {
        self.unreadable_of(Kind::UpgradeJob).any(|job| job.name() == name)
    }

    /// What cannot be read of a kind.
    pub fn unreadable_of(&self, kind: Kind) -> impl Iterator<Item = &Unreadable> {
        self.unreadable.iter().filter(move |object| object.kind == kind)
    }

    /// The ClusterVersion of our own kind that counts.
    pub fn managed_version(&self) -> Option<&ManagedClusterVersion> {
        self.managed_versions
            .iter()
            .find(|v| v.name_any() == cluster_version::NAME)
    }

    /// The pool of this name.
    pub fn pool(&self, name: &str) -> Option<&MachineConfigPool> {
        self.pools.iter().find(|p| p.name_any() == name)
    }
}
