//! Jobs: one runs at a time, each starts in its window and comes to one ending in time; hooks run once; whatever is said has a
//! reason.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use openshift_upgrade_operator::simulator::api::Entry;
use serde_json::Value;

use super::Judge;
use crate::{
    play::{History, is_ours},
    state::{CONFIGS, HOOK_JOBS, JOBS, Job, State, WINDOWS, has_finalizer, is_deleting, name, replay, uid},
};

/// A decision is carried out a few requests later.
const WRITE: SignedDuration = SignedDuration::from_secs(15);

pub fn check(judge: &mut Judge<'_>) {
    at_most_one_runs(judge);
    starts(judge);
    outcomes(judge);
    deadlines(judge);
    hooks_once(judge);
    reasons(judge);
}

fn jobs_of(entry: &Entry) -> (Option<&Value>, Option<&Value>) {
    match entry.kind.as_str() {
        JOBS => (entry.before.as_deref(), entry.after.as_deref()),
        _ => (None, None),
    }
}

fn at_most_one_runs(judge: &mut Judge<'_>) {
    let mut running: BTreeSet<String> = BTreeSet::new();
    let mut found = Vec::new();
    replay(judge.history, |_, entry| {
        let (before, after) = jobs_of(entry);
        let Some(object) = after.or(before) else { return };
        if after.is_some_and(|job| Job(job).is_running()) {
            running.insert(name(object).to_owned());
            if running.len() > 1 && !before.is_some_and(|job| Job(job).is_running()) {
                found.push((entry.at, format!("{running:?} run at the same time")));
            }
        } else {
            running.remove(name(object));
        }
    });
    for (at, what) in found {
        judge.find("at most one job runs", at, what);
    }
}

/// A job starts in `[startAfter, startBefore)` by our operator's clock, in no suspension window, and not while its config is
/// suspended.
fn starts(judge: &mut Judge<'_>) {
    let mut found = Vec::new();
    replay(judge.history, |state, entry| {
        let (before, after) = jobs_of(entry);
        let Some(job) = after.map(Job) else { return };
        if !job.has_started() || before.is_some_and(|b| Job(b).has_started()) {
            return;
        }
        let now = judge.clocks.of_operator(entry.at);
        let who = name(job.0);
        if judge.clocks.is_wrong(entry.at) {
            found.push((entry.at, format!("{who} started by a clock that is wrong")));
        }
        if judge.clocks.is_too_early(entry.at, job.start_after()) || now >= job.start_before() + WRITE {
            let (from, to) = (job.start_after(), job.start_before());
            found.push((entry.at, format!("{who} started at {now}, not in [{from}, {to})")));
        }
        if let Some(why) = suspension(state, job, now) {
            found.push((entry.at, format!("{who} started at {now}, but {why}")));
        }
    });
    for (at, what) in found {
        judge.find("jobs start in their window", at, what);
    }
}

/// What keeps this job from starting: a window on it or its config, or a suspended config.
fn suspension(state: &State, job: Job<'_>, now: Timestamp) -> Option<String> {
    let config = job.0["metadata"]["labels"]["managedupgrade.appuio.io/upgrade-config"].as_str();
    let config = config.and_then(|name| state.get(CONFIGS, name));
    if config.is_some_and(|c| c["spec"]["schedule"]["suspend"] == true) {
        return Some("its config is suspended".to_owned());
    }
    for (name, window) in state.all(WINDOWS) {
        let spec = &window["spec"];
        let (start, end) = (crate::draw::time(&spec["start"]), crate::draw::time(&spec["end"]));
        let is_open = |t: Timestamp| start <= t && t < end;
        let selects = |field: &str, object: Option<&Value>| {
            let labels = spec[field]["matchLabels"].as_object();
            let object = object.filter(|_| !spec[field].is_null());
            object.is_some_and(|o| {
                labels
                    .into_iter()
                    .flatten()
                    .all(|(key, value)| o["metadata"]["labels"][key] == *value)
            })
        };
        let is_meant = selects("jobSelector", Some(job.0)) || selects("configSelector", config);
        if is_meant && (is_open(now) || is_open(job.start_after())) {
            return Some(format!("window {name} is open"));
        }
    }
    None
}

/// The reason of each outcome: `Succeeded` and more.
pub fn reasons_of_outcomes(history: &History) -> Vec<String> {
    let mut reasons = Vec::new();
    for entry in &history.journal {
        let (before, after) = jobs_of(entry);
        let ended = |job: Option<&Value>| {
            job.and_then(|j| Job(j).outcome())
                .map(|c| c["reason"].as_str().unwrap_or_default().to_owned())
        };
        if ended(before).is_none() {
            reasons.extend(ended(after));
        }
    }
    reasons
}

/// One outcome, and it stays.
fn outcomes(judge: &mut Judge<'_>) {
    let mut found = Vec::new();
    replay(judge.history, |_, entry| {
        let (Some(before), Some(after)) = jobs_of(entry) else {
            return;
        };
        if !is_ours(entry.identity) {
            return;
        }
        let says = |job: &Value| {
            let what = Job(job).outcome().map(|c| {
                let all = [
                    &c["type"],
                    &c["reason"],
                    &c["message"],
                    &job["status"]["finishedAt"],
                ];
                all.map(ToString::to_string)
            });
            (what, job["status"]["phase"].clone())
        };
        if Job(before).outcome().is_some() && says(before) != says(after) {
            let what = format!("{} was {:?}, is {:?}", name(after), says(before), says(after));
            found.push((entry.at, what));
        }
        let all = after["status"]["conditions"].as_array();
        let is_end =
            |c: &&Value| c["status"] == "True" && (c["type"] == "Succeeded" || c["type"] == "Failed");
        if all.into_iter().flatten().filter(is_end).count() > 1 {
            found.push((entry.at, format!("{} both succeeded and failed", name(after))));
        }
    });
    for (at, what) in found {
        judge.find("an outcome never changes", at, what);
    }
}

/// Every job ends by its deadline; one that has not says what it waits for.
fn deadlines(judge: &mut Judge<'_>) {
    // When the limits of a job were written, and by when it must have ended, by uid.
    let mut due: BTreeMap<String, (String, Timestamp)> = BTreeMap::new();
    let mut found = Vec::new();
    let end = judge.history.world.end;
    replay(judge.history, |_, entry| {
        let (before, after) = jobs_of(entry);
        let Some(object) = after.or(before) else { return };
        let Some(job) = after.map(Job) else {
            due.remove(uid(object));
            return;
        };
        // What is deleted has no ending; that it goes is another matter.
        if job.outcome().is_some() || is_deleting(job.0) {
            if let Some((_, limit)) = due.remove(uid(object))
                && entry.at > limit
                && !is_deleting(job.0)
            {
                let what = format!("{} ended at {}, was to end by {limit}", name(object), entry.at);
                found.push((entry.at, what));
            }
            return;
        }
        let limit = if job.has_started() {
            job.deadline()
        } else {
            job.start_before()
        };
        let edited = before.is_none_or(|b| b["spec"] != job.0["spec"]);
        let old = due.get(uid(object)).map(|(_, limit)| *limit);
        let mut limit = judge.clocks.latest(limit);
        if edited {
            limit = limit.max(judge.clocks.latest(entry.at));
        } else if before.is_some_and(|b| !Job(b).has_started() && job.has_started()) {
            // It may start when its timeout has passed already (`startBefore` is later): then it ends at once.
            limit = limit.max(judge.clocks.latest(entry.at));
        } else if let Some(old) = old {
            limit = old;
        }
        due.insert(uid(object).to_owned(), (name(object).to_owned(), limit));
    });
    let mut silent = Vec::new();
    for (who, limit) in due.values() {
        if *limit < end {
            found.push((*limit, format!("{who} has not ended, was to end by {limit}")));
        }
        let job = judge.end.get(JOBS, who).unwrap();
        let message = job["status"]["message"].as_str().unwrap_or_default();
        if message.is_empty() {
            silent.push(format!("{who} does not say what it waits for"));
        }
    }
    for (at, what) in found {
        judge.find("every job comes to its ending in time", at, what);
    }
    for what in silent {
        judge.find("a job without an ending says what it waits for", end, what);
    }
    gone_in_time(judge);
}

/// A deleted job goes, and an ended one lets go.
fn gone_in_time(judge: &mut Judge<'_>) {
    let mut since: BTreeMap<String, (String, Timestamp)> = BTreeMap::new();
    let mut found = Vec::new();
    replay(judge.history, |_, entry| {
        let (before, after) = jobs_of(entry);
        let Some(object) = after.or(before) else { return };
        let holds = |job: &Value| has_finalizer(job) && (is_deleting(job) || Job(job).outcome().is_some());
        if after.is_some_and(holds) {
            let first = || (name(object).to_owned(), entry.at);
            since.entry(uid(object).to_owned()).or_insert_with(first);
        } else if let Some((who, at)) = since.remove(uid(object)) {
            let limit = judge.clocks.latest(at);
            if entry.at > limit {
                let what = format!("{who} let go at {}, was to by {limit}", entry.at);
                found.push((entry.at, what));
            }
        }
    });
    for (who, at) in since.values() {
        let limit = judge.clocks.latest(*at);
        if limit < judge.history.world.end {
            found.push((limit, format!("{who} ended at {at} and still has its finalizer")));
        }
    }
    for (at, what) in found {
        judge.find("an ended job gives everything back", at, what);
    }
}

/// No hook runs twice for one job, event and pool.
fn hooks_once(judge: &mut Judge<'_>) {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    for entry in &judge.history.journal {
        let (HOOK_JOBS, None, Some(job)) = (entry.kind.as_str(), &entry.before, &entry.after) else {
            continue;
        };
        let owner = &job["metadata"]["ownerReferences"][0]["uid"];
        let label = |l: &str| {
            let key = format!("upgradejobs.managedupgrade.appuio.io/{l}");
            job["metadata"]["labels"][key].to_string()
        };
        let what = [
            owner.to_string(),
            label("upgradejobhook"),
            label("event"),
            label("tracking-key"),
        ]
        .join(" ");
        if let Some(first) = seen.insert(what.clone(), name(job).to_owned()) {
            found.push((entry.at, format!("{first} and {} are both for {what}", name(job))));
        }
    }
    for (at, what) in found {
        judge.find("a hook runs once", at, what);
    }
}

/// Conditions of our kinds have a reason and a message, and an outcome comes with a time.
fn reasons(judge: &mut Judge<'_>) {
    let mut found = BTreeMap::new();
    for entry in &judge.history.journal {
        let Some(object) = entry
            .after
            .as_ref()
            .filter(|_| entry.kind.ends_with(".managedupgrade.appuio.io"))
        else {
            continue;
        };
        for condition in object["status"]["conditions"].as_array().into_iter().flatten() {
            let is_empty = |field: &str| condition[field].as_str().is_none_or(str::is_empty);
            if is_empty("reason") || is_empty("message") {
                let what = format!("{} {}: {condition}", entry.kind, entry.name);
                found.entry(what).or_insert(entry.at);
            }
        }
    }
    if let Some((what, at)) = found.into_iter().next() {
        judge.find("conditions have a reason and a message", at, what);
    }
    let mut events = Vec::new();
    for entry in &judge.history.journal {
        if entry.kind == crate::state::EVENTS
            && let Some(event) = &entry.after
            && (event["reason"].as_str().is_none_or(str::is_empty)
                || event["note"].as_str().is_none_or(str::is_empty))
        {
            events.push((entry.at, event.to_string()));
        }
    }
    for (at, what) in events {
        judge.find("Events have a reason and a note", at, what);
    }
}
