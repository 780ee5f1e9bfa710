//! Which jobs and runs went wrong and nothing has made up for: one rule for the metric `upgradejob_unresolved`, and for the
//! conditions `LastUpgradeSucceeded` and `RunMissed` of UpgradeConfigs, by which Argo CD judges them.
//!
//! - A job that failed is made up for by a later success.
//! - A job that could not start, or a run that made no job, is made up for by a later job that has started: nothing was
//!   touched, so there is nothing to be mended but that nothing was upgraded.
//! - A job that a person makes by hand makes up for any config, since that is how a person mends it. It is no config's own
//!   failure, though: it tells of itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::{
    history::{Outcome, outcome},
    job,
};
use crate::api::{
    UpgradeConfig, UpgradeJob,
    conditions::{self, types},
    labels,
};

/// How a job ended, with the condition that says more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How<'a> {
    /// All done.
    Succeeded(&'a Condition),
    /// It was not to run.
    Skipped,
    /// It was to run, and could not start in time.
    Expired(&'a Condition),
    /// It failed.
    Failed(&'a Condition),
}

/// A job that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended<'a> {
    /// The job.
    pub job: &'a UpgradeJob,
    /// Name of the config that made it; empty for a job that was made by hand.
    pub config: String,
    /// How it ended.
    pub how: How<'a>,
}

impl<'a> Ended<'a> {
    fn of(job: &'a UpgradeJob, configs: &[UpgradeConfig]) -> Option<Self> {
        let all = &job.status.as_ref()?.conditions;
        let is_true = |type_: &str| conditions::get(all, type_).filter(|c| c.status == "True");
        let how = match outcome(job)? {
            Outcome::Succeeded => How::Succeeded(is_true(types::SUCCEEDED)?),
            Outcome::Skipped => is_true(types::EXPIRED).map_or(How::Skipped, How::Expired),
            Outcome::Failed => How::Failed(is_true(types::FAILED)?),
        };
        let config = config_of(job, configs);
        Some(Self { job, config, how })
    }

    /// What orders jobs: the newest is the last.
    fn order(&self) -> (Timestamp, String) {
        (start(self.job), self.job.name_any())
    }
}

fn start(job: &UpgradeJob) -> Timestamp {
    job.spec.start_after.0
}

/// The name of the config that made a job; empty for a job that was made by hand.
pub fn config_of(job: &UpgradeJob, configs: &[UpgradeConfig]) -> String {
    if let Some(config) = configs.iter().find(|c| job::is_of(job, &c.metadata)) {
        return config.name_any();
    }
    // That of a config which is gone.
    let is_made = job.labels().contains_key(labels::START);
    let label = job.labels().get(labels::UPGRADE_CONFIG).filter(|_| is_made);
    label.cloned().unwrap_or_default()
}

/// The newest start of jobs by their config; jobs made by hand have none, and count for all.
#[derive(Default)]
struct Newest<'a>(BTreeMap<String, &'a UpgradeJob>);

impl<'a> Newest<'a> {
    fn of(jobs: impl Iterator<Item = (String, &'a UpgradeJob)>) -> Self {
        let mut newest = Self::default();
        for (config, job) in jobs {
            let known = newest.0.entry(config).or_insert(job);
            if start(known) < start(job) {
                *known = job;
            }
        }
        newest
    }

    /// The newest that makes up for something of this config; of one made by hand, any does.
    fn counting_for(&self, config: &str) -> Option<&'a UpgradeJob> {
        let counts = |(of, _): &(&String, &&UpgradeJob)| config.is_empty() || of.is_empty() || *of == config;
        let all = self.0.iter().filter(counts).map(|(_, job)| *job);
        all.max_by_key(|job| start(job))
    }

    fn is_after(&self, bad: &Ended<'_>) -> bool {
        let newest = self.counting_for(&bad.config);
        newest.is_some_and(|newest| start(newest) > start(bad.job))
    }
}

fn started<'a>(jobs: &'a [UpgradeJob], configs: &[UpgradeConfig]) -> Newest<'a> {
    let started = jobs.iter().filter(|job| job.is_started());
    Newest::of(started.map(|job| (config_of(job, configs), job)))
}

fn succeeded<'a>(ended: &[Ended<'a>]) -> Newest<'a> {
    let good = ended.iter().filter(|e| matches!(e.how, How::Succeeded(_)));
    Newest::of(good.map(|e| (e.config.clone(), e.job)))
}

/// The jobs that failed or could not start, and that nothing has made up for.
pub fn unresolved<'a>(jobs: &'a [UpgradeJob], configs: &[UpgradeConfig]) -> Vec<Ended<'a>> {
    let mut ended: Vec<Ended<'_>> = jobs.iter().filter_map(|job| Ended::of(job, configs)).collect();
    let (succeeded, started) = (succeeded(&ended), started(jobs, configs));
    ended.retain(|ended| match ended.how {
        How::Failed(_) => !succeeded.is_after(ended),
        How::Expired(_) => !started.is_after(ended),
        How::Succeeded(_) | How::Skipped => false,
    });
    ended
}

/// The job that has made up for a run of this config that made no job of its own.
pub fn made_up_for_run<'a>(
    jobs: &'a [UpgradeJob],
    configs: &[UpgradeConfig],
    config: &UpgradeConfig,
    run: Timestamp,
) -> Option<&'a UpgradeJob> {
    let newest = started(jobs, configs).counting_for(&config.name_any())?;
    (start(newest) > run).then_some(newest)
}

/// What a config has to tell of its last upgrade: its newest job that nothing has made up for, else the newest success of it or
/// of a job made by hand; `None` where there is neither.
pub fn last_upgrade<'a>(
    jobs: &'a [UpgradeJob],
    configs: &[UpgradeConfig],
    config: &UpgradeConfig,
) -> Option<Ended<'a>> {
    let name = config.name_any();
    let bad = unresolved(jobs, configs).into_iter().filter(|e| e.config == name);
    let good = || {
        let ended: Vec<Ended<'_>> = jobs.iter().filter_map(|job| Ended::of(job, configs)).collect();
        Ended::of(succeeded(&ended).counting_for(&name)?, configs)
    };
    bad.max_by_key(Ended::order).or_else(good)
}
