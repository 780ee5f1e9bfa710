//! The cluster: what our operator changes of it, when, and what is left at the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use openshift_upgrade_operator::simulator::api::Entry;
use serde_json::Value;

use super::Judge;
use crate::{
    play::is_ours,
    state::{
        HOOK_JOBS, JOBS, Job, POOLS, State, has_finalizer, is_cluster_version, is_deleting,
        is_of_control_plane, is_release, name, owner, pause_reason, replay, uid,
    },
};

/// A decision is carried out a few requests later.
const WRITE: SignedDuration = SignedDuration::from_secs(15);

pub fn check(judge: &mut Judge<'_>) {
    let mut found = Vec::new();
    let history = judge.history;
    let mut pauses = Pauses::default();
    replay(history, |state, entry| {
        if entry.kind == POOLS {
            found.extend(foreign_pause(&pauses, entry));
            pauses.see(judge, entry);
        }
        if !is_ours(entry.identity) {
            return;
        }
        let (Some(before), Some(after)) = (entry.before.as_deref(), entry.after.as_deref()) else {
            return;
        };
        if is_cluster_version(entry) {
            found.extend(intent(judge, state, entry, before, after));
            found.extend(lock(state, entry, before, after));
        } else if entry.kind == POOLS {
            found.extend(pool(judge, state, entry, before, after));
        }
    });
    for (invariant, entry, what) in found {
        judge.find(invariant, entry.at, what);
    }
    left_behind(judge);
}

type Found<'a> = Option<(&'static str, &'a Entry, String)>;

/// `desiredUpdate` is set by a running job within its time, and taken back by one that has ended.
fn intent<'a>(
    judge: &Judge<'_>,
    state: &State,
    entry: &'a Entry,
    before: &Value,
    after: &Value,
) -> Found<'a> {
    let (old, new) = (&before["spec"]["desiredUpdate"], &after["spec"]["desiredUpdate"]);
    if old == new {
        return None;
    }
    let wrong = |why: &str| {
        Some((
            "desiredUpdate changes in a job's time only",
            entry,
            format!("desiredUpdate was {old}, is {new}: {why}"),
        ))
    };
    let Some(job) = state.job_of(before).map(Job) else {
        // A job that lost its lock takes its own intent back (design 5: "every ending …").
        let ended = state.all(JOBS).map(|(_, job)| Job(job)).find(|job| {
            (job.outcome().is_some() || is_deleting(job.0)) && job.0["status"]["desiredUpdate"] == *old
        });
        return if ended.is_some() {
            None
        } else {
            wrong("no job has the lock")
        };
    };
    let newest = &before["status"]["history"][0];
    let is_over = job.outcome().is_some() || is_deleting(job.0);
    if is_over {
        if is_release(old, newest) {
            return wrong("it is the newest of the history already, and is not to be taken back");
        }
        if job.0["status"]["desiredUpdate"] != *old {
            return wrong("it was not what the job had set");
        }
        if !new.is_null() && !is_release(new, newest) {
            return wrong("what is put back is not installed");
        }
        return None;
    }
    let now = judge.clocks.of_operator(entry.at);
    let wanted = &job.0["spec"]["desiredVersion"]["version"];
    if !job.has_started() {
        return wrong("the job has not started");
    }
    if new["version"] != *wanted || new["image"].as_str().is_none_or(str::is_empty) {
        return wrong("that is not what the job is for");
    }
    if judge.clocks.is_too_early(entry.at, job.start_after()) || now >= job.deadline() + WRITE {
        let (from, to) = (job.start_after(), job.deadline());
        return wrong(&format!("it is {now}, the job's time is [{from}, {to})"));
    }
    if newest["state"] != "Completed" {
        return wrong("the cluster is on the move");
    }
    if !old.is_null() && !is_release(old, newest) && old != new {
        return wrong("somebody else has asked for something");
    }
    None
}

/// Who paused each pool, by who did it, and not by what is written on the pool.
#[derive(Default)]
struct Pauses {
    /// Since when a pool is not paused.
    unpaused: BTreeMap<String, Timestamp>,
    /// Pools that somebody else has paused.
    foreign: BTreeSet<String>,
}

impl Pauses {
    fn see(&mut self, judge: &Judge<'_>, entry: &Entry) {
        let was_paused = entry.before.as_ref().is_some_and(|p| p["spec"]["paused"] == true);
        let is_paused = entry.after.as_ref().is_some_and(|p| p["spec"]["paused"] == true);
        let pool = entry.name.clone();
        if !is_paused {
            self.foreign.remove(&pool);
            if was_paused || entry.before.is_none() {
                self.unpaused.insert(pool, entry.at);
            }
        } else if !was_paused && !is_ours(entry.identity) {
            // Unpaused and paused again behind our operator's back, it looks as before.
            let since = self.unpaused.get(&pool);
            if since.is_none_or(|t| judge.clocks.latest(*t) < entry.at) {
                self.foreign.insert(pool);
            }
        }
    }
}

/// Our operator changes nothing of a pool that somebody else paused.
fn foreign_pause<'a>(pauses: &Pauses, entry: &'a Entry) -> Found<'a> {
    let (before, after) = (entry.before.as_ref()?, entry.after.as_ref()?);
    let says = |pool: &Value| (pool["spec"]["paused"].clone(), owner(pool).map(str::to_owned));
    let is_touched = is_ours(entry.identity) && says(before) != says(after);
    let what = format!("{} was paused by somebody else", entry.name);
    (is_touched && pauses.foreign.contains(&entry.name)).then_some((
        "no foreign pause is touched",
        entry,
        what,
    ))
}

/// The lock is taken from nobody.
fn lock<'a>(state: &State, entry: &'a Entry, before: &Value, after: &Value) -> Found<'a> {
    if owner(before) == owner(after) {
        return None;
    }
    let holder = state.job_of(before).map(Job)?;
    let is_over = (holder.outcome().is_some() && owner(after).is_none())
        || (holder.outcome().is_some() && !has_finalizer(holder.0))
        || is_deleting(holder.0);
    let what = format!("{} had the lock, now {:?} has", name(holder.0), owner(after));
    (!is_over).then_some(("the lock is taken from nobody", entry, what))
}

fn pool<'a>(judge: &Judge<'_>, state: &State, entry: &'a Entry, before: &Value, after: &Value) -> Found<'a> {
    let was_paused = before["spec"]["paused"] == true;
    let is_paused = after["spec"]["paused"] == true;
    let who = name(before);
    if was_paused && owner(before).is_none() {
        let what = format!("{who} was paused by somebody else");
        return Some(("no foreign pause is touched", entry, what));
    }
    if was_paused && pause_reason(before) == Some("failure") {
        let what = format!("{who} was paused for a failure: only people lift that");
        return Some(("no foreign pause is touched", entry, what));
    }
    let now = judge.clocks.of_operator(entry.at);
    if is_paused {
        let what = pausing(state, before, after)?;
        return Some((
            "pools are paused by running jobs only",
            entry,
            format!("{who}: {what}"),
        ));
    }
    if !was_paused || !state.is_pending(before) {
        return None;
    }
    let wrong = |why: String| {
        let what = format!("{who} was unpaused at {now} with changes pending: {why}");
        Some(("a pool of ours is unpaused in [delayMin, delayMax]", entry, what))
    };
    let Some(job) = state.job_of(before).map(Job) else {
        return wrong("its job is gone".to_owned());
    };
    if !job.is_running() || is_deleting(job.0) {
        return wrong(format!("{} does not run", name(job.0)));
    }
    if state.is_unsettled() {
        return wrong("the control plane is not done".to_owned());
    }
    // The delay was taken out of the job: then nothing holds the pool any more.
    let (from, to) = job.hold(before)?;
    if judge.clocks.is_too_early(entry.at, from) || to.is_some_and(|to| now > to + WRITE) {
        return wrong(format!("{} may from {from} to {to:?}", name(job.0)));
    }
    None
}

/// What is wrong with a pause, if anything.
fn pausing(state: &State, before: &Value, after: &Value) -> Option<String> {
    if is_of_control_plane(after) {
        return Some("is of the control plane".to_owned());
    }
    let Some(job) = state.job_of(after).map(Job) else {
        return Some("there is no such job".to_owned());
    };
    let is_failure = pause_reason(after) == Some("failure");
    let failed = crate::state::condition(job.0, "Failed").is_some();
    if is_deleting(job.0) || job.is_running() == is_failure || failed != is_failure {
        return Some(format!(
            "{} is in no state to pause it ({:?})",
            name(job.0),
            pause_reason(after)
        ));
    }
    if before["spec"]["paused"] == true && is_failure {
        return Some("was paused already".to_owned());
    }
    None
}

/// At the end nothing of ended jobs is left but what their status lists.
fn left_behind(judge: &mut Judge<'_>) {
    let end = judge.history.world.end;
    let mut found = Vec::new();
    let is_over = |job: Option<&Value>| job.is_none_or(|j| Job(j).outcome().is_some());
    let cluster = judge.end.cluster_version();
    if owner(cluster).is_some() && is_over(judge.end.job_of(cluster)) {
        found.push(format!("the lock of {:?}", owner(cluster)));
    }
    for (pool, object) in judge.end.all(POOLS) {
        let Some(owner) = owner(object) else { continue };
        let Some(job) = judge.end.job_of(object).map(Job) else {
            // Design 5: a deleted job leaves pools with something pending paused.
            if object["spec"]["paused"] != true {
                found.push(format!("the name of {owner} on pool {pool}"));
            }
            continue;
        };
        let listed = job.0["status"]["pausedPools"].as_array();
        let is_listed = listed.into_iter().flatten().any(|p| p["name"] == pool);
        if job.outcome().is_some() && !is_listed {
            found.push(format!("the pause of pool {pool}, which {owner} does not list"));
        }
    }
    for (_, job) in judge.end.all(JOBS) {
        let set = &job["status"]["desiredUpdate"];
        let asked = &cluster["spec"]["desiredUpdate"];
        let began = is_release(asked, &cluster["status"]["history"][0]);
        let asks = |o: &Arc<Value>| o["spec"]["desiredUpdate"].clone();
        let by_people = judge.history.journal.iter().any(|e| {
            let (Some(before), Some(after)) = (&e.before, &e.after) else {
                return false;
            };
            is_cluster_version(e) && !is_ours(e.identity) && asks(before) != asks(after)
        });
        if Job(job).outcome().is_some() && !set.is_null() && set == asked && !began && !by_people {
            found.push(format!("desiredUpdate {asked} of {}", name(job)));
        }
    }
    for (hook_job, object) in judge.end.all(HOOK_JOBS) {
        let ended = ["Complete", "Failed"].map(|t| crate::state::condition(object, t));
        let ended = ended.into_iter().flatten().next();
        let since = ended.map(|c| crate::draw::time(&c["lastTransitionTime"]));
        if has_finalizer(object) && since.is_some_and(|t| judge.clocks.latest(t) < end) {
            found.push(format!("the finalizer of Job {hook_job}"));
        }
        let owner = &object["metadata"]["ownerReferences"][0]["uid"];
        if !judge.end.all(JOBS).any(|(_, job)| *owner == *uid(job)) && is_deleting(object) {
            found.push(format!("Job {hook_job}, whose UpgradeJob is gone"));
        }
    }
    for what in found {
        judge.find("nothing is left behind", end, what);
    }
}
