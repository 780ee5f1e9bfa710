//! An UpgradeJob as it was last seen.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{
    UpgradeJob,
    conditions::{self, types},
    labels,
    upgrade_job::{JobPhase, StepStatus},
};

/// An UpgradeJob as it was last seen; it may have been deleted since.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// The UpgradeConfig that made it; `None` of a job that was made by hand.
    pub config: Option<Maker>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The run that it was made for.
    pub run: Timestamp,
    /// The pinned version; `None` of a maintenance run.
    pub version: Option<String>,
    /// The version that was installed when it started.
    pub installed: Option<String>,
    /// It starts at this instant.
    pub start_after: Timestamp,
    /// It is skipped if it could not start by then.
    pub start_before: Timestamp,
    /// It fails if it is not done by then.
    pub deadline: Timestamp,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// When its outcome was decided.
    pub finished_at: Option<Timestamp>,
    /// Where it was.
    pub phase: JobPhase,
    /// Reason of the condition that ended it.
    pub reason: Option<String>,
    /// Why it could not start in time, one word; only if that is how it ended.
    pub expired: Option<String>,
    /// How it ended, or what it was doing.
    pub message: Option<String>,
    /// What is wrong with it, if it is not served.
    pub invalid: Option<String>,
    /// Pools that it held, or has left paused.
    pub paused_pools: Vec<String>,
    /// Its steps.
    pub steps: Vec<StepStatus>,
}

/// The UpgradeConfig that made a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Maker {
    /// By its owner reference.
    Owner {
        /// Name of the config.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// By its label, which is a long name cut.
    Label(String),
}

impl Job {
    /// The job as it is now. `before` is what was known of it: a job loses its owner reference when it starts.
    pub(super) fn seen(job: &UpgradeJob, before: Option<&Self>, installed: Option<&str>) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let started_at = status.started_at.as_ref().map(|t| t.0);
        let condition = |type_| conditions::get(&status.conditions, type_).filter(|c| c.status == "True");
        let ending = condition(types::FAILED).or_else(|| condition(types::SUCCEEDED));
        let known = before.and_then(|b| b.config.clone());
        let at_start = before.and_then(|b| b.installed.clone());
        Self {
            name: job.name_any(),
            config: known.or_else(|| maker(job)),
            labels: job.labels().clone(),
            run: run(job),
            version: version(job),
            installed: at_start.or_else(|| installed.filter(|_| started_at.is_some()).map(ToOwned::to_owned)),
            start_after: job.spec.start_after.0,
            start_before: job.spec.start_before.0,
            deadline: job.spec.upgrade_deadline(),
            started_at,
            finished_at: status.finished_at.as_ref().map(|t| t.0),
            phase: status.phase.unwrap_or(JobPhase::Pending),
            reason: ending.map(|c| c.reason.clone()),
            expired: condition(types::EXPIRED).map(|c| c.reason.clone()),
            message: ending.map(|c| c.message.clone()).or(status.message),
            invalid: conditions::get(&status.conditions, types::VALID)
                .filter(|c| c.status == "False")
                .map(|c| c.message.clone()),
            paused_pools: status.paused_pools.iter().map(|p| p.name.clone()).collect(),
            steps: status.steps,
        }
    }
}

fn maker(job: &UpgradeJob) -> Option<Maker> {
    let owner = job.owner_references().iter().find(|o| o.controller == Some(true));
    match owner {
        Some(owner) => Some(Maker::Owner {
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }),
        None => job
            .labels()
            .get(labels::UPGRADE_CONFIG)
            .cloned()
            .map(Maker::Label),
    }
}

fn run(job: &UpgradeJob) -> Timestamp {
    let label = job.labels().get(labels::START);
    label
        .and_then(|seconds| Timestamp::from_second(seconds.parse().ok()?).ok())
        .unwrap_or(job.spec.start_after.0)
}

/// The version, or the image where only that is asked for.
fn version(job: &UpgradeJob) -> Option<String> {
    let wanted = job.spec.desired_version.as_ref()?;
    let filled = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    filled(&wanted.version).or_else(|| filled(&wanted.image))
}
