//! No reconcile loop: what our operator asks of the API server in an hour is bounded.

use std::collections::BTreeSet;

use jiff::{Timestamp, ToSpan};

use super::Judge;
use crate::{
    play::{History, is_ours},
    state::{JOBS, Job, name},
};

/// Requests and writes of an hour in which no job is under way.
const IDLE: (u64, u64) = (400, 100);
/// What each job that is under way may add.
const EACH: (u64, u64) = (1_200, 200);

pub fn check(judge: &mut Judge<'_>) {
    let mut found = Vec::new();
    for (hour, requests, writes) in hours(judge.history) {
        let jobs = under_way(judge.history, hour - 1.hour(), hour);
        let most = (IDLE.0 + EACH.0 * jobs, IDLE.1 + EACH.1 * jobs);
        if requests > most.0 || writes > most.1 {
            let what = format!(
                "{requests} requests and {writes} writes in the hour before, with {jobs} jobs under way; the most are \
                 {} and {}",
                most.0, most.1
            );
            found.push((hour, what));
        }
    }
    for (at, what) in found {
        judge.find("no reconcile loop", at, what);
    }
}

/// The end of each hour, with its requests and writes.
fn hours(history: &History) -> Vec<(Timestamp, u64, u64)> {
    let mut before = (0, 0);
    let hours = history.traffic.iter().map(|(at, requests, writes)| {
        let of_hour = (*at, requests - before.0, writes - before.1);
        before = (*requests, *writes);
        of_hour
    });
    hours.collect()
}

/// The most requests and writes of an hour.
pub fn busiest_hour(history: &History) -> (u64, u64) {
    let hours = hours(history);
    let requests = hours.iter().map(|h| h.1).max().unwrap_or(0);
    (requests, hours.iter().map(|h| h.2).max().unwrap_or(0))
}

/// Jobs that changed in this time.
fn under_way(history: &History, from: Timestamp, to: Timestamp) -> u64 {
    let from = history.journal.partition_point(|e| e.at < from);
    let to = history.journal.partition_point(|e| e.at <= to);
    let entries = history.journal[from..to].iter();
    let jobs = entries.filter(|e| e.kind == JOBS && is_ours(e.identity));
    let names: BTreeSet<&str> = jobs
        .filter_map(|e| e.after.as_deref())
        .filter(|job| Job(job).has_started() || Job(job).outcome().is_some() || !job["status"].is_null())
        .map(name)
        .collect();
    names.len() as u64
}
