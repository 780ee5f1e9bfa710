//! An UpgradeConfig in the course of a rehearsal: its runs, and what was said about those that made no job.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use kube::ResourceExt;

use crate::{
    api::{
        UpgradeConfig,
        conditions::{self, types},
        upgrade_config::{UpgradeConfigSpec, UpgradeConfigStatus},
    },
    schedule::{Schedule, Zones, forecast::Verdict},
    text,
};

/// How much later than its limits the operator may record what became of a run.
const GRACE: SignedDuration = SignedDuration::from_mins(2);

/// An UpgradeConfig, with its history.
#[derive(Clone, Debug)]
pub struct Config {
    /// As it was last seen.
    pub object: UpgradeConfig,
    /// From here on it has runs.
    created: Timestamp,
    /// From here on it has none.
    deleted: Option<Timestamp>,
    /// Its specs, and since when.
    specs: Vec<(Timestamp, UpgradeConfigSpec)>,
    /// What was last said of runs that will make no job.
    verdicts: BTreeMap<Timestamp, (Fate, String)>,
    /// The runs in (after, until] that nothing else explains were missed.
    missed: Vec<(Timestamp, Timestamp, String)>,
    /// The newest run that was decided.
    decided: Option<Timestamp>,
    /// What is wrong with it, and since when; `None` = nothing.
    invalid: Vec<(Timestamp, Option<String>)>,
    /// What its runs were waiting for when it was last seen.
    waiting: Option<String>,
    /// Events that speak of runs.
    notes: Vec<(Timestamp, String)>,
}

/// Why a run made no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// A suspension window, or `schedule.suspend`.
    Suspended,
    /// It was missed.
    Missed,
    /// The config was not served.
    Invalid,
    /// The rehearsal ended before it was decided.
    Undecided,
    /// Nobody said why: an error of the operator, or of the rehearsal.
    Unaccounted,
}

impl Config {
    pub(super) fn new(config: &UpgradeConfig, now: Timestamp) -> Self {
        // Kubernetes knows whole seconds only: it was created before it was seen.
        let created = config.metadata.creation_timestamp.as_ref();
        let mut new = Self {
            object: config.clone(),
            created: created.map_or(now, |t| t.0),
            deleted: None,
            specs: Vec::new(),
            verdicts: BTreeMap::new(),
            missed: Vec::new(),
            decided: None,
            invalid: Vec::new(),
            waiting: None,
            notes: Vec::new(),
        };
        new.see(config, now);
        new
    }

    pub(super) fn see(&mut self, config: &UpgradeConfig, now: Timestamp) {
        self.object = config.clone();
        if config.metadata.deletion_timestamp.is_some() {
            self.gone(now);
        }
        match self.specs.last() {
            None => self.specs.push((self.created, config.spec.clone())),
            Some((_, last)) if *last == config.spec => {}
            Some(_) => self.specs.push((now, config.spec.clone())),
        }
        if let Some(status) = &config.status {
            self.see_status(status, now);
        }
    }

    pub(super) fn gone(&mut self, now: Timestamp) {
        self.deleted.get_or_insert(now);
    }

    pub(super) fn note(&mut self, text: &str, now: Timestamp) {
        self.notes.push((now, text.to_owned()));
    }

    fn see_status(&mut self, status: &UpgradeConfigStatus, now: Timestamp) {
        for next in &status.next_possible_schedules {
            let verdict = next.verdict.as_deref().unwrap_or_default();
            let suspended = [Verdict::Suspended, Verdict::ScheduleSuspended];
            let fate = if suspended.iter().any(|v| v.as_str() == verdict) {
                Fate::Suspended
            } else if verdict == Verdict::Missed.as_str() {
                Fate::Missed
            } else {
                self.verdicts.remove(&next.time.0);
                continue;
            };
            let reason = next.reason.clone().unwrap_or_default();
            self.verdicts.insert(next.time.0, (fate, reason));
        }
        let condition = |type_| conditions::get(&status.conditions, type_);
        if let Some(decided) = status.last_scheduled_upgrade.as_ref().map(|t| t.0) {
            let before = self.decided.unwrap_or(self.created);
            if decided > before
                && let Some(missed) = condition(types::RUN_MISSED).filter(|c| c.status == "True")
            {
                self.missed.push((before, decided, missed.message.clone()));
            }
            self.decided = Some(decided);
        }
        let is_false = |type_| {
            let found = condition(type_).filter(|c| c.status == "False");
            found.map(|c| c.message.clone())
        };
        let invalid = is_false(types::VALID);
        if self.invalid.last().map(|(_, text)| text) != Some(&invalid) {
            self.invalid.push((now, invalid));
        }
        self.waiting = is_false(types::SCHEDULED);
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.object.name_any()
    }

    /// The zone of its schedule, where that can be read.
    pub fn zone(&self, zones: &Zones) -> TimeZone {
        let parsed = Schedule::parse(&self.object.spec.schedule, zones);
        parsed.map_or_else(|_| zones.default_zone().clone(), |p| p.schedule.zone().clone())
    }

    /// What was wrong with it when it was last seen.
    pub fn problem(&self) -> Option<&str> {
        self.invalid.last()?.1.as_deref()
    }

    /// All runs in (`from`, `end`], of the config as it was at the time.
    pub fn runs(&self, from: Timestamp, end: Timestamp, zones: &Zones) -> BTreeSet<Timestamp> {
        let ends = self.specs.iter().skip(1).map(|(since, _)| *since);
        let last = self.deleted.unwrap_or(end);
        let mut all = BTreeSet::new();
        for ((since, spec), until) in self.specs.iter().zip(ends.chain([last])) {
            let Ok(parsed) = Schedule::parse(&spec.schedule, zones) else {
                continue;
            };
            let schedule = parsed.schedule;
            let first = schedule.next_after(from.max(*since));
            let runs = std::iter::successors(first, |run| schedule.next_after(*run));
            all.extend(runs.take_while(|run| *run <= until.min(end)));
        }
        all
    }

    /// Why this run made no job, by what was said about it.
    pub fn fate(&self, run: Timestamp, end: Timestamp, zones: &Zones) -> (Fate, String) {
        if let Some((fate, reason)) = self.verdicts.get(&run) {
            return (*fate, reason.clone());
        }
        let of_run = |(after, until, _): &&(Timestamp, Timestamp, String)| *after < run && run <= *until;
        if let Some((_, _, text)) = self.missed.iter().find(of_run) {
            return (Fate::Missed, text.clone());
        }
        let then = self.invalid.iter().rev().find(|(since, _)| *since <= run);
        if let Some((_, Some(problem))) = then {
            return (
                Fate::Invalid,
                format!("the UpgradeConfig is not valid: {problem}"),
            );
        }
        if let Some(note) = self.note_of(run, zones) {
            return (Fate::Missed, note.to_owned());
        }
        if self.decided.is_none_or(|decided| decided < run) && end <= self.limit(run) {
            let reason = "the rehearsal ended before it was decided".to_owned();
            let reason = match &self.waiting {
                Some(waiting) => format!("{reason}: {waiting}"),
                None => reason,
            };
            return (Fate::Undecided, reason);
        }
        (Fate::Unaccounted, "nothing was said about it".to_owned())
    }

    /// An Event that names the run, or the first one after it that speaks of runs before another.
    fn note_of(&self, run: Timestamp, zones: &Zones) -> Option<&str> {
        let name = format!("the run at {}", text::time(run, &self.zone(zones)));
        let names_it = self.notes.iter().find(|(_, note)| note.starts_with(&name));
        let covers_it = |(at, note): &&(Timestamp, String)| *at >= run && note.contains(" before it were ");
        names_it
            .or_else(|| self.notes.iter().find(covers_it))
            .map(|(_, note)| note.as_str())
    }

    /// Until when the operator may decide this run.
    fn limit(&self, run: Timestamp) -> Timestamp {
        let then = self.specs.iter().rev().find(|(since, _)| *since < run);
        let waits = then.map_or(SignedDuration::ZERO, |(_, spec)| {
            let late = spec.max_scheduling_delay();
            late.saturating_sub(spec.pin_version_window())
                .max(SignedDuration::ZERO)
        });
        run.saturating_add(waits.saturating_add(GRACE))
            .unwrap_or(Timestamp::MAX)
    }
}
