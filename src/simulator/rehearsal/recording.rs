//! What was seen in a rehearsal. Pure: fed with every change as it is observed, asked at the end.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;

use super::{config::Config, job::Job};
use crate::{
    api::{UpgradeConfig, UpgradeJob},
    openshift::{self, cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
    schedule::Zones,
};

/// What was seen in a rehearsal, from `from` to `end`.
#[derive(Clone, Debug)]
pub struct Recording {
    /// When it began; runs after it count.
    pub from: Timestamp,
    /// When it ended; runs at it still count.
    pub end: Timestamp,
    /// Zones of the schedules.
    pub zones: Zones,
    configs: BTreeMap<String, Config>,
    jobs: BTreeMap<String, Job>,
    pools: BTreeMap<String, MachineConfigPool>,
    installed: Option<String>,
    motion: Motion,
    refused: Vec<Refused>,
    left_out: BTreeMap<String, usize>,
    warnings: Vec<String>,
}

/// An object that the API server did not take.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// File and line.
    pub location: String,
    /// Kind and name.
    pub object: String,
    /// What is wrong with it.
    pub problem: String,
}

/// When the cluster was on the move: an update of the control plane, or nodes of a pool.
#[derive(Clone, Debug, Default)]
struct Motion {
    moving: BTreeSet<String>,
    since: Option<Timestamp>,
    /// What is over, oldest first.
    past: Vec<(Timestamp, Timestamp)>,
}

impl Motion {
    fn see(&mut self, what: &str, moves: bool, now: Timestamp) {
        if moves {
            self.moving.insert(what.to_owned());
            self.since.get_or_insert(now);
        } else {
            self.moving.remove(what);
        }
        if self.moving.is_empty()
            && let Some(since) = self.since.take()
        {
            self.past.push((since, now));
        }
    }
}

impl Recording {
    /// Nothing was seen yet. `zones` are those of the operator.
    pub fn new(from: Timestamp, end: Timestamp, zones: Zones) -> Self {
        Self {
            from,
            end,
            zones,
            configs: BTreeMap::new(),
            jobs: BTreeMap::new(),
            pools: BTreeMap::new(),
            installed: None,
            motion: Motion::default(),
            refused: Vec::new(),
            left_out: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    /// An UpgradeConfig was created or changed, its status too.
    pub fn see_config(&mut self, config: &UpgradeConfig, now: Timestamp) {
        let known = self.configs.entry(identity(config));
        known
            .and_modify(|known| known.see(config, now))
            .or_insert_with(|| Config::new(config, now));
    }

    /// An UpgradeConfig was deleted.
    pub fn config_gone(&mut self, config: &UpgradeConfig, now: Timestamp) {
        if let Some(known) = self.configs.get_mut(&identity(config)) {
            known.gone(now);
        }
    }

    /// An UpgradeJob was created or changed, its status too. Its deletion is not to be told: what was last seen stays.
    pub fn see_job(&mut self, job: &UpgradeJob, _now: Timestamp) {
        let uid = identity(job);
        let seen = Job::seen(job, self.jobs.get(&uid), self.installed.as_deref());
        self.jobs.insert(uid, seen);
    }

    /// An Event was created. Those about UpgradeConfigs may say what became of a run.
    pub fn see_event(&mut self, regarding: &ObjectReference, _reason: &str, note: &str, now: Timestamp) {
        let config = regarding.uid.as_ref().and_then(|uid| self.configs.get_mut(uid));
        if let Some(config) = config {
            config.note(note, now);
        }
    }

    /// The ClusterVersion was created or changed.
    pub fn see_cluster_version(&mut self, version: &ClusterVersion, now: Timestamp) {
        let newest = version.newest();
        let moves = newest.is_some_and(|h| !h.is_completed());
        if let Some(installed) = newest.filter(|h| h.is_completed()) {
            self.installed = Some(installed.version.clone());
        }
        self.motion.see("ClusterVersion", moves, now);
    }

    /// A MachineConfigPool was created or changed.
    pub fn see_pool(&mut self, pool: &MachineConfigPool, now: Timestamp) {
        let name = pool.name_any();
        let moves = openshift::is_true(pool.conditions(), "Updating");
        self.motion.see(&format!("pool {name}"), moves, now);
        self.pools.insert(name, pool.clone());
    }

    /// The API server did not take an object of the user's.
    pub fn refused(
        &mut self,
        location: impl Into<String>,
        object: impl Into<String>,
        problem: impl Into<String>,
    ) {
        self.refused.push(Refused {
            location: location.into(),
            object: object.into(),
            problem: problem.into(),
        });
    }

    /// An object of the user's is of a kind that the simulated cluster does not have: nothing of an upgrade.
    pub fn left_out(&mut self, kind: impl Into<String>) {
        *self.left_out.entry(kind.into()).or_default() += 1;
    }

    /// Something that an administrator should know of the rehearsal itself.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// The configs, by name.
    pub fn configs(&self) -> Vec<&Config> {
        let mut all: Vec<&Config> = self.configs.values().collect();
        all.sort_by_key(|c| c.name());
        all
    }

    /// The configs, by UID.
    pub(super) fn configs_by_uid(&self) -> &BTreeMap<String, Config> {
        &self.configs
    }

    /// All jobs, by start and name.
    pub fn jobs(&self) -> Vec<&Job> {
        let mut all: Vec<&Job> = self.jobs.values().collect();
        all.sort_by(|a, b| (a.start_after, &a.name).cmp(&(b.start_after, &b.name)));
        all
    }

    /// The pools of the cluster, by name.
    pub fn pools(&self) -> impl Iterator<Item = &MachineConfigPool> {
        self.pools.values()
    }

    /// What the API server did not take.
    pub fn refusals(&self) -> &[Refused] {
        &self.refused
    }

    /// Kinds that had nothing to do with it, with the number of objects.
    pub fn kinds_left_out(&self) -> &BTreeMap<String, usize> {
        &self.left_out
    }

    /// What was said about the rehearsal itself.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// When the cluster was on the move, oldest first.
    pub fn moves(&self) -> Vec<(Timestamp, Timestamp)> {
        let open = self.motion.since.map(|since| (since, self.end.max(since)));
        self.motion.past.iter().copied().chain(open).collect()
    }

    /// How long the cluster was on the move outside of the windows of jobs: from `startAfter` to the end of
    /// `upgradeTimeout`, of those that started.
    pub fn time_outside_windows(&self) -> SignedDuration {
        let started = self.jobs.values().filter(|j| j.started_at.is_some());
        let mut windows: Vec<(Timestamp, Timestamp)> = started.map(|j| (j.start_after, j.deadline)).collect();
        windows.sort_unstable();
        let outside = |(start, end): (Timestamp, Timestamp)| {
            let mut at = start;
            let mut total = SignedDuration::ZERO;
            for (opens, closes) in windows.iter().filter(|(_, closes)| *closes > start) {
                if *opens >= end {
                    break;
                }
                total = total.saturating_add(opens.duration_since(at).max(SignedDuration::ZERO));
                at = at.max(*closes);
            }
            total.saturating_add(end.duration_since(at).max(SignedDuration::ZERO))
        };
        let moves = self.moves().into_iter();
        moves
            .map(outside)
            .fold(SignedDuration::ZERO, SignedDuration::saturating_add)
    }
}

/// The UID; of an object without one (in tests) its name.
fn identity(object: &impl ResourceExt) -> String {
    object.uid().unwrap_or_else(|| object.name_any())
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::simulator::rehearsal::fixtures::*;

    const RUN: &str = "2026-12-01T21:00:00Z";

    fn hours(n: i64) -> Timestamp {
        at(RUN) + n.hours()
    }

    #[test]
    fn the_cluster_is_on_the_move_from_the_first_part_to_the_last() {
        let mut recording = recording();
        recording.see_cluster_version(&cluster_version("4.18.3", "Completed"), hours(0));
        recording.see_cluster_version(&cluster_version("4.18.5", "Partial"), hours(1));
        recording.see_pool(&pool("worker", &json!({}), "True"), hours(2));
        recording.see_cluster_version(&cluster_version("4.18.5", "Completed"), hours(3));
        recording.see_pool(&pool("worker", &json!({}), "False"), hours(4));
        recording.see_pool(&pool("worker", &json!({}), "True"), hours(5));
        assert_eq!(
            recording.moves(),
            [(hours(1), hours(4)), (hours(5), recording.end)]
        );
    }

    /// The window of the one job is open from hour 0 to hour 4.
    #[rstest]
    #[case::inside(1, 4, 0)]
    #[case::before(-2, 1, 2)]
    #[case::after(3, 6, 2)]
    #[case::around(-1, 5, 2)]
    #[case::elsewhere(10, 13, 3)]
    fn time_on_the_move_counts_outside_of_windows(
        #[case] from: i64,
        #[case] until: i64,
        #[case] outside: i64,
    ) {
        let mut recording = recording();
        let config = config("c", &json!({}));
        recording.see_job(&job(&config, RUN, succeeded(RUN, RUN)), hours(0));
        let not_started = job(&config, "2026-12-02T07:00:00Z", skipped(RUN, "suspended"));
        recording.see_job(&not_started, hours(10));
        recording.see_pool(&pool("worker", &json!({}), "True"), hours(from));
        recording.see_pool(&pool("worker", &json!({}), "False"), hours(until));
        assert_eq!(
            recording.time_outside_windows(),
            SignedDuration::from_hours(outside)
        );
    }

    #[test]
    fn a_job_knows_what_was_installed_when_it_started() {
        let mut recording = recording();
        let config = config("c", &json!({}));
        recording.see_cluster_version(&cluster_version("4.18.3", "Completed"), hours(-9));
        recording.see_job(&job(&config, RUN, json!({"phase": "Pending"})), hours(-4));
        assert_eq!(recording.jobs()[0].installed, None);
        recording.see_cluster_version(&cluster_version("4.18.4", "Completed"), hours(-1));
        let running = job(&config, RUN, json!({"phase": "Running", "startedAt": RUN}));
        recording.see_job(&running, hours(0));
        recording.see_cluster_version(&cluster_version("4.18.5", "Completed"), hours(2));
        recording.see_job(&job(&config, RUN, succeeded(RUN, RUN)), hours(2));
        let jobs = recording.jobs();
        assert_eq!(jobs[0].installed.as_deref(), Some("4.18.4"));
        assert_eq!(jobs[0].version.as_deref(), Some("4.18.5"));
        assert_eq!(jobs[0].reason.as_deref(), Some("Succeeded"));
        assert_eq!(jobs[0].message.as_deref(), Some("Upgrade succeeded"));
    }

    #[test]
    fn jobs_are_sorted_by_start_and_name() {
        let mut recording = recording();
        let later = "2026-12-08T21:00:00Z";
        for (name, run) in [("b", RUN), ("a", later), ("a", RUN)] {
            let job = job(&config(name, &json!({})), run, json!({}));
            recording.see_job(&job, hours(0));
        }
        let jobs = recording.jobs();
        let order: Vec<_> = jobs.iter().map(|j| (j.start_after, &j.name[..1])).collect();
        assert_eq!(order, [(at(RUN), "a"), (at(RUN), "b"), (at(later), "a")]);
    }
}
