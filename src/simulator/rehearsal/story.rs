//! What became of every run of a rehearsal: a job, or a reason why there is none.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{
    Recording,
    config::{Config, Fate},
    job::{Job, Maker},
};
use crate::api::{names, upgrade_job::JobPhase};

/// What became of every run.
#[derive(Debug)]
pub struct Story<'a> {
    /// What it was made from.
    pub recording: &'a Recording,
    /// The jobs that were to start by the end of the rehearsal, by start and name.
    pub jobs: Vec<Told<'a>>,
    /// The runs that made no job, by time and config.
    pub skipped: Vec<Skipped>,
}

/// A job and its config.
#[derive(Clone, Debug)]
pub struct Told<'a> {
    /// The job.
    pub job: &'a Job,
    /// UID of the config that made it, where that was seen.
    pub uid: Option<&'a str>,
    /// Name of that config.
    pub config: Option<String>,
}

/// A run without job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Name of the config.
    pub config: String,
    /// Its UID.
    pub uid: String,
    /// The run.
    pub run: Timestamp,
    /// Why, in one word.
    pub fate: Fate,
    /// Why, for people.
    pub reason: String,
}

/// How many runs there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Runs with and without a job.
    pub runs: usize,
    /// Jobs that succeeded.
    pub succeeded: usize,
    /// Jobs that failed.
    pub failed: usize,
    /// Jobs that were skipped, and runs without one.
    pub skipped: usize,
    /// Jobs without an outcome at the end.
    pub unfinished: usize,
}

impl<'a> Story<'a> {
    /// Goes through all runs.
    pub fn of(recording: &'a Recording) -> Self {
        let jobs: Vec<Told<'a>> = recording
            .jobs()
            .into_iter()
            .map(|job| told(job, recording))
            .collect();
        let with_job: BTreeSet<(&str, Timestamp)> = jobs
            .iter()
            .filter_map(|told| Some((told.uid?, told.job.run)))
            .collect();
        let mut skipped = Vec::new();
        for (uid, config) in recording.configs_by_uid() {
            let runs = config.runs(recording.from, recording.end, &recording.zones);
            let without = runs
                .into_iter()
                .filter(|run| !with_job.contains(&(uid.as_str(), *run)));
            skipped.extend(without.map(|run| {
                let (fate, reason) = config.fate(run, recording.end, &recording.zones);
                Skipped {
                    config: config.name(),
                    uid: uid.clone(),
                    run,
                    fate,
                    reason,
                }
            }));
        }
        skipped.sort_by(|a, b| (a.run, &a.config, &a.uid).cmp(&(b.run, &b.config, &b.uid)));
        let due = jobs
            .into_iter()
            .filter(|told| told.job.start_after <= recording.end);
        Self {
            jobs: due.collect(),
            skipped,
            recording,
        }
    }

    /// How many runs there were, and how they ended.
    pub fn totals(&self) -> Totals {
        let mut all = Totals {
            runs: self.jobs.len() + self.skipped.len(),
            skipped: self.skipped.len(),
            ..Totals::default()
        };
        for told in &self.jobs {
            *match told.job.phase {
                JobPhase::Succeeded => &mut all.succeeded,
                JobPhase::Failed => &mut all.failed,
                JobPhase::Skipped => &mut all.skipped,
                JobPhase::Pending | JobPhase::Running | JobPhase::Paused => &mut all.unfinished,
            } += 1;
        }
        all
    }

    /// The job that took longest from its start to its end.
    pub fn longest(&self) -> Option<(&Job, SignedDuration)> {
        let ran = self.jobs.iter().map(|told| told.job);
        ran.filter_map(|job| Some((job, took(job)?)))
            .max_by_key(|(_, took)| *took)
    }

    /// Jobs of a config, by its UID.
    pub fn jobs_of(&self, uid: &str) -> impl Iterator<Item = &'a Job> {
        self.jobs
            .iter()
            .filter(move |told| told.uid == Some(uid))
            .map(|told| told.job)
    }

    /// Runs of a config that made no job, by its UID.
    pub fn skipped_of(&self, uid: &str) -> impl Iterator<Item = &Skipped> {
        self.skipped.iter().filter(move |skipped| skipped.uid == uid)
    }

    /// The configs by UID, in the order of their names.
    pub fn configs(&self) -> Vec<(&'a str, &'a Config)> {
        let all = self.recording.configs_by_uid();
        let mut all: Vec<_> = all.iter().map(|(uid, config)| (uid.as_str(), config)).collect();
        all.sort_by_key(|(uid, config)| (config.name(), *uid));
        all
    }
}

/// How long a job took, if it started and ended.
pub fn took(job: &Job) -> Option<SignedDuration> {
    Some(job.finished_at?.duration_since(job.started_at?))
}

/// Finds the config of a job: by UID, or by its name cut to a label.
fn told<'a>(job: &'a Job, recording: &'a Recording) -> Told<'a> {
    let configs: &BTreeMap<String, Config> = recording.configs_by_uid();
    let found = match &job.config {
        None => None,
        Some(Maker::Owner { uid, .. }) => configs.get_key_value(uid),
        Some(Maker::Label(label)) => configs
            .iter()
            .find(|(_, config)| names::label_value(&config.name()) == *label),
    };
    let named = match &job.config {
        None => None,
        Some(Maker::Owner { name, .. } | Maker::Label(name)) => Some(name.clone()),
    };
    Told {
        job,
        uid: found.map(|(uid, _)| uid.as_str()),
        config: found.map(|(_, config)| config.name()).or(named),
    }
}

#[cfg(test)]
mod tests;
