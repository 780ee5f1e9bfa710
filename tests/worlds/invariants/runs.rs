//! Runs: each one of a config's schedule has a job or a record why not, and no job is without a run.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp, ToSpan};
use openshift_upgrade_operator::simulator::api::Entry;
use serde_json::Value;

use super::Judge;
use crate::{
    calendar::Schedule,
    draw::time,
    play::is_ours,
    state::{CONFIGS, EVENTS, JOBS, condition, duration, name, uid},
};

/// Around an edit of its schedule a run may be of either.
const BLUR: SignedDuration = SignedDuration::from_mins(10);

/// A config from its creation to its deletion.
struct Config<'a> {
    name: &'a str,
    created: Timestamp,
    gone: Timestamp,
    /// Its specs, each from its time on.
    schedules: Vec<(Timestamp, Schedule)>,
    /// When `lastScheduledUpgrade` moved, from where to where, and whether it was said why.
    records: Vec<Record>,
    /// The longest `maxSchedulingDelay` that it had: for so long after a run its job may still be created, where something
    /// was in the way.
    patience: SignedDuration,
    was_invalid: bool,
}

struct Record {
    from: Timestamp,
    to: Timestamp,
    is_explained: bool,
}

pub fn check(judge: &mut Judge<'_>) {
    let history = judge.history;
    let jobs = jobs_by_run(judge);
    let mut configs: BTreeMap<&str, Config<'_>> = BTreeMap::new();
    for (index, entry) in history.journal.iter().enumerate() {
        if entry.kind == CONFIGS {
            see(&mut configs, entry, &history.journal[index..], history.world.end);
        }
    }
    let mut found = Vec::new();
    for config in configs.values() {
        for (run, schedule) in config.runs() {
            let has_job = jobs.contains_key(&(config.name.to_owned(), run));
            if !has_job && let Some(why) = judge.unaccounted(config, run, &schedule) {
                found.push((run, format!("run of {} at {run}: {why}", config.name)));
            }
        }
    }
    for ((config, run), made) in &jobs {
        if made.len() > 1 && !is_of_other_configs(made) {
            let names: Vec<&str> = made.iter().map(|job| name(job)).collect();
            found.push((*run, format!("{config} has {names:?} for one run")));
        }
        let of_name = configs.values().filter(|c| c.name == config);
        if !of_name.into_iter().any(|c| c.may_have(*run)) {
            found.push((*run, format!("{config} has no run at {run}, but a job")));
        }
    }
    for (at, what) in found {
        judge.find("every run is accounted for", at, what);
    }
}

impl Judge<'_> {
    /// Why nobody knows what became of a run that made no job; `None` if somebody does.
    fn unaccounted(&self, config: &Config<'_>, run: Timestamp, schedule: &Schedule) -> Option<String> {
        // What is due when our operator can't work is recorded as soon as it can.
        let by = self.clocks.latest(run + config.patience) + BLUR;
        if by >= config.gone || config.was_invalid || self.is_hosted() {
            return None;
        }
        let record = config.records.iter().find(|r| r.from < run && run <= r.to);
        let Some(record) = record else {
            return Some(format!("no job, and no record ({schedule:?})"));
        };
        // An Event may be lost with the write that was to make it, or with the operator.
        let may_be_lost =
            !self.history.world.api_faults.is_empty() || !self.history.world.restarts().is_empty();
        (!record.is_explained && !may_be_lost).then(|| "no job, and no reason why".to_owned())
    }

    fn is_hosted(&self) -> bool {
        self.history.world.scenario["cluster"]["topology"] == "External"
    }
}

/// Jobs that configs made, by name of the config and run.
fn jobs_by_run<'a>(judge: &Judge<'a>) -> BTreeMap<(String, Timestamp), Vec<&'a Value>> {
    let mut jobs: BTreeMap<_, Vec<&Value>> = BTreeMap::new();
    for entry in &judge.history.journal {
        let (JOBS, None, Some(job)) = (entry.kind.as_str(), &entry.before, &entry.after) else {
            continue;
        };
        let config = job["metadata"]["labels"]["managedupgrade.appuio.io/upgrade-config"].as_str();
        if let Some(config) = config {
            let run = time(&job["spec"]["startAfter"]);
            jobs.entry((config.to_owned(), run)).or_default().push(job);
        }
    }
    jobs
}

/// A config that was deleted and made again is another one, with its own job for the same run.
fn is_of_other_configs(jobs: &[&Value]) -> bool {
    let owner = |job: &Value| job["metadata"]["ownerReferences"][0]["uid"].to_string();
    let mut owners: Vec<String> = jobs.iter().map(|job| owner(job)).collect();
    owners.sort();
    owners.dedup();
    owners.len() == jobs.len()
}

fn see<'a>(configs: &mut BTreeMap<&'a str, Config<'a>>, entry: &'a Entry, rest: &[Entry], end: Timestamp) {
    let Some(object) = entry.after.as_deref() else {
        let gone = entry.before.as_deref().and_then(|c| configs.get_mut(uid(c)));
        gone.unwrap().gone = entry.at;
        return;
    };
    let created = time(&object["metadata"]["creationTimestamp"]);
    let config = configs.entry(uid(object)).or_insert_with(|| Config {
        name: &entry.name,
        created,
        gone: end,
        schedules: Vec::new(),
        records: Vec::new(),
        patience: SignedDuration::ZERO,
        was_invalid: false,
    });
    let schedule = Schedule::of(&object["spec"]["schedule"]);
    if config.schedules.last().is_none_or(|(_, last)| *last != schedule) {
        config.schedules.push((entry.at, schedule));
    }
    let patience = object["spec"]["maxSchedulingDelay"].as_str();
    let patience = patience.map_or(SignedDuration::from_hours(1), duration);
    config.patience = config.patience.max(patience);
    let valid = object["status"]["conditions"].as_array();
    let is_invalid = |c: &Value| c["type"] == "Valid" && c["status"] == "False";
    config.was_invalid |= valid.into_iter().flatten().any(is_invalid);
    let last = |config: &Value| {
        let last = &config["status"]["lastScheduledUpgrade"];
        (!last.is_null()).then(|| time(last))
    };
    let before = entry.before.as_deref().and_then(last);
    if let Some(to) = last(object).filter(|to| before != Some(*to))
        && is_ours(entry.identity)
    {
        let reason = |c: Option<&Value>| {
            let missed = c.and_then(|c| condition(c, "RunMissed"));
            missed.map(|m| m["message"].clone())
        };
        let said = reason(Some(object)).is_some_and(|m| Some(m) != reason(entry.before.as_deref()));
        config.records.push(Record {
            from: before.unwrap_or(created),
            to,
            is_explained: said || is_told(entry, rest),
        });
    }
}

/// Whether an Event about this config follows at once.
fn is_told(entry: &Entry, rest: &[Entry]) -> bool {
    let soon = rest.iter().take_while(|e| e.at <= entry.at + 30.seconds());
    soon.filter(|e| e.kind == EVENTS).any(|e| {
        let event = e.after.as_deref().unwrap_or(&Value::Null);
        let note = event["note"].as_str().unwrap_or_default();
        event["regarding"]["name"] == entry.name && (note.contains("suspended") || note.contains("missed"))
    })
}

impl Config<'_> {
    /// The runs of each schedule in its time.
    fn runs(&self) -> Vec<(Timestamp, Schedule)> {
        let mut runs = Vec::new();
        for (index, (from, schedule)) in self.schedules.iter().enumerate() {
            let next = self.schedules.get(index + 1);
            let to = next.map_or(self.gone, |(to, _)| *to - BLUR);
            let from = if index == 0 { self.created } else { *from + BLUR };
            runs.extend(
                schedule
                    .runs(from, to)
                    .into_iter()
                    .map(|run| (run, schedule.clone())),
            );
        }
        runs
    }

    /// Whether this was a run of one of the schedules, from its time on.
    fn may_have(&self, run: Timestamp) -> bool {
        let is_it = |schedule: &Schedule| schedule.runs(run - 1.second(), run) == [run];
        self.schedules.iter().any(|(_, schedule)| is_it(schedule))
    }
}
