//! What is told of a world that broke an invariant.

use std::fmt::Write;

use jiff::{Timestamp, ToSpan};
use openshift_upgrade_operator::simulator::api::Entry;
use serde_json::Value;

use crate::{
    invariants::Violation,
    play::History,
    state::{HOOK_JOBS, JOBS, POOLS, is_cluster_version, owner},
};

/// So many lines of the journal, at most.
const LINES: usize = 60;

/// Seed, what is wrong, what happened before, and how to see it again.
pub fn failure(history: &History, violations: &[Violation], without: &str) -> String {
    let mut text = String::new();
    let seed = history.world.seed;
    let _ = writeln!(
        text,
        "world {seed} ({} to {}):",
        history.world.start, history.world.end
    );
    for violation in violations.iter().take(5) {
        let Violation { invariant, at, what } = violation;
        let _ = writeln!(text, "  {at} violated: {invariant}: {what}");
    }
    if let Some(first) = violations.first() {
        let _ = writeln!(text, "  what happened before:");
        for line in lines(history, first.at) {
            let _ = writeln!(text, "    {line}");
        }
    }
    let without = if without.is_empty() {
        String::new()
    } else {
        format!("WORLD_WITHOUT={without} ")
    };
    let _ = writeln!(
        text,
        "  replay: {without}WORLD_SEED={seed} cargo test --test worlds random_worlds -- --nocapture"
    );
    text
}

/// The changes up to a little after a time.
pub fn lines(history: &History, at: Timestamp) -> Vec<String> {
    let end = history.journal.partition_point(|e| e.at <= at + 2.minutes());
    let all: Vec<String> = history.journal[..end].iter().filter_map(line).collect();
    all[all.len().saturating_sub(LINES)..].to_vec()
}

/// A change in one line; `None` if nothing that matters here has changed.
pub fn line(entry: &Entry) -> Option<String> {
    let none = Value::Null;
    let before = entry.before.as_deref().unwrap_or(&none);
    let after = entry.after.as_deref().unwrap_or(&none);
    let says: fn(&Value) -> Vec<(&'static str, Value)> = if is_cluster_version(entry) {
        cluster_version
    } else if entry.kind == POOLS {
        pool
    } else if entry.kind == JOBS {
        job
    } else if entry.kind == HOOK_JOBS {
        |o| vec![("conditions", o["status"]["conditions"][0]["type"].clone())]
    } else if entry.kind == crate::state::EVENTS {
        |o| {
            vec![
                ("note", o["note"].clone()),
                ("of", o["regarding"]["name"].clone()),
            ]
        }
    } else if entry.kind.ends_with("managedupgrade.appuio.io") {
        |o| {
            let last = o["status"]["lastScheduledUpgrade"].clone();
            vec![("spec", o["spec"].clone()), ("last", last)]
        }
    } else {
        return None;
    };
    let (old, new) = (says(before), says(after));
    let changed: Vec<String> = new
        .iter()
        .zip(&old)
        .filter(|(n, o)| n != o)
        .map(|((field, value), _)| format!("{field}={value}"))
        .collect();
    let how = match (&entry.before, &entry.after) {
        (None, _) => "new",
        (_, None) => "gone",
        _ if changed.is_empty() => return None,
        _ => "",
    };
    let kind = entry.kind.split('.').next().unwrap_or_default();
    Some(format!(
        "{} {:?} {kind}/{} {how} {}",
        entry.at,
        entry.identity,
        entry.name,
        changed.join(" ")
    ))
}

fn cluster_version(o: &Value) -> Vec<(&'static str, Value)> {
    let newest = &o["status"]["history"][0];
    let newest = format!("{} {}", newest["version"], newest["state"]);
    vec![
        ("desired", o["spec"]["desiredUpdate"]["version"].clone()),
        ("channel", o["spec"]["channel"].clone()),
        ("lock", owner(o).into()),
        ("newest", newest.into()),
    ]
}

fn pool(o: &Value) -> Vec<(&'static str, Value)> {
    let differs = o["spec"]["configuration"]["name"] != o["status"]["configuration"]["name"];
    vec![
        ("paused", o["spec"]["paused"].clone()),
        ("owner", owner(o).into()),
        ("behind", differs.into()),
        ("machines", o["status"]["machineCount"].clone()),
    ]
}

fn job(o: &Value) -> Vec<(&'static str, Value)> {
    let outcome = crate::state::Job(o).outcome();
    vec![
        ("phase", o["status"]["phase"].clone()),
        ("message", o["status"]["message"].clone()),
        ("outcome", outcome.map(|c| c["reason"].clone()).into()),
        ("finalizers", o["metadata"]["finalizers"].clone()),
        ("deleted", o["metadata"]["deletionTimestamp"].clone()),
        ("config", o["spec"]["config"].clone()),
        ("start", o["spec"]["startAfter"].clone()),
        ("before", o["spec"]["startBefore"].clone()),
        ("version", o["spec"]["desiredVersion"]["version"].clone()),
    ]
}
