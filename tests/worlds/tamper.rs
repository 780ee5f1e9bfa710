//! The invariants can fail: a history that keeps them all is tampered with, and each must be noticed.

use std::{collections::BTreeSet, sync::Arc};

use jiff::ToSpan;
use openshift_upgrade_operator::simulator::api::{Entry, Identity};
use serde_json::{Value, json};

use crate::{
    by_hand,
    invariants::{self, Violation},
    play::{self, History, is_ours},
    state::{
        CONFIGS, EVENTS, HOOK_JOBS, JOBS, Job, POOLS, WINDOWS, condition, has_finalizer, is_cluster_version,
        owner,
    },
};

/// A quiet world with an upgrade that unpauses a held pool in its time, and a hook.
fn quiet() -> History {
    play::play(by_hand::world("0 22 * * 2", &json!([])), false)
}

/// Changes the first change of our operator that is meant.
fn first(history: &mut History, is_meant: impl Fn(&Entry) -> bool, change: impl Fn(&mut Entry)) {
    let entries = &mut history.journal;
    let found = entries.iter_mut().find(|e| is_ours(e.identity) && is_meant(e));
    change(found.expect("there is such a change"));
}

fn edit(object: &mut Option<Arc<Value>>, pointer: &str, value: Value) {
    let object = Arc::make_mut(object.as_mut().unwrap());
    *object.pointer_mut(pointer).unwrap() = value;
}

/// A new object, there from the beginning.
fn new(history: &History, kind: &str, name: &str, object: Value) -> Entry {
    Entry {
        at: history.world.start,
        identity: Identity::Admin,
        kind: kind.to_owned(),
        name: name.to_owned(),
        before: None,
        after: Some(Arc::new(object)),
        ..history.journal[0].clone()
    }
}

fn is_paused(pool: Option<&Arc<Value>>) -> bool {
    pool.is_some_and(|o| o["spec"]["paused"] == true)
}

fn is_unpause(entry: &Entry) -> bool {
    entry.kind == POOLS && is_paused(entry.before.as_ref()) && !is_paused(entry.after.as_ref())
}

fn owner_of(entry: &Entry) -> Option<&str> {
    owner(entry.after.as_deref()?)
}

fn starts(entry: &Entry) -> bool {
    let has_started = |o: &Option<Arc<Value>>| o.as_ref().is_some_and(|o| Job(o).has_started());
    entry.kind == JOBS && has_started(&entry.after) && !has_started(&entry.before)
}

fn sets_intent(entry: &Entry) -> bool {
    let desired = |o: &Option<Arc<Value>>| o.as_ref().map(|o| o["spec"]["desiredUpdate"].clone());
    is_cluster_version(entry) && is_ours(entry.identity) && desired(&entry.before) != desired(&entry.after)
}

fn ends(entry: &Entry) -> bool {
    let has_ended = |o: &Option<Arc<Value>>| o.as_ref().is_some_and(|o| Job(o).outcome().is_some());
    entry.kind == JOBS && has_ended(&entry.after) && !has_ended(&entry.before)
}

/// Which invariant is broken, a word of what is said then, and a change of what was that breaks it.
type Tampering = (&'static str, &'static str, fn(&mut History));

const TAMPERINGS: &[Tampering] = &[
    ("nothing breaks", "", |h| h.problems.push("a panic".to_owned())),
    ("at most one job runs", "at the same time", |h| {
        let runs = |e: &&Entry| e.kind == JOBS && e.after.as_ref().is_some_and(|j| Job(j).is_running());
        let at = h.journal.iter().position(|e| runs(&e)).unwrap();
        let mut other = h.journal[at].clone();
        other.before = None;
        "other".clone_into(&mut other.name);
        edit(&mut other.after, "/metadata/name", "other".into());
        h.journal.insert(at + 1, other);
    }),
    ("jobs start in their window", "not in [", |h| {
        let late = "2026-12-01T20:59:00Z";
        for entry in h.journal.iter_mut().filter(|e| e.kind == JOBS) {
            edit(&mut entry.after, "/spec/startBefore", late.into());
        }
    }),
    ("at most one job runs", "at the same time", |h| {
        // The end of the first comes after the start of the second.
        let mut second = h.journal[h.journal.iter().position(starts).unwrap()].clone();
        second.before = None;
        "other".clone_into(&mut second.name);
        edit(&mut second.after, "/metadata/name", "other".into());
        let end = h.journal.iter().position(ends).unwrap();
        h.journal.insert(end, second);
    }),
    ("jobs start in their window", "window w is open", |h| {
        h.journal.retain(|e| e.kind != CONFIGS);
        let window = json!({
            "metadata": {"name": "w"},
            "spec": {"start": "2026-12-01T20:00:00Z", "end": "2026-12-02T20:00:00Z", "jobSelector": {}},
        });
        h.journal.insert(0, new(h, WINDOWS, "w", window));
    }),
    ("an outcome never changes", "Succeeded", |h| {
        let last = h.journal.iter().rfind(|e| e.kind == JOBS).unwrap();
        let mut again = last.clone();
        again.before.clone_from(&again.after);
        edit(
            &mut again.after,
            "/status/finishedAt",
            "2026-12-02T21:00:00Z".into(),
        );
        h.journal.push(again);
    }),
    ("an outcome never changes", "both succeeded and failed", |h| {
        // Succeeded and failed.
        first(h, ends, |e| {
            let failed = json!({"type": "Failed", "status": "True", "reason": "r", "message": "m"});
            let object = Arc::make_mut(e.after.as_mut().unwrap());
            object["status"]["conditions"]
                .as_array_mut()
                .unwrap()
                .push(failed);
        });
    }),
    ("every job comes to its ending in time", "has not ended", |h| {
        let at = h.journal.iter().position(ends).unwrap();
        h.journal.retain({
            let mut index = 0;
            move |e| {
                index += 1;
                index <= at || e.kind != JOBS
            }
        });
    }),
    ("every job comes to its ending in time", "was to end by", |h| {
        first(h, ends, |e| e.at += 24.hours());
    }),
    (
        "a job without an ending says what it waits for",
        "what it waits for",
        |h| {
            let has_status =
                |e: &Entry| e.kind == JOBS && e.after.as_ref().is_some_and(|j| !j["status"].is_null());
            let at = h.journal.iter().position(has_status).unwrap();
            h.journal.truncate(at + 1);
            edit(&mut h.journal[at].after, "/status/message", "".into());
        },
    ),
    (
        "an ended job gives everything back",
        "still has its finalizer",
        |h| {
            let at = h.journal.iter().position(ends).unwrap();
            let mut index = 0;
            h.journal.retain(|e| {
                index += 1;
                index <= at + 1 || e.kind != JOBS
            });
        },
    ),
    ("a hook runs once", "", |h| {
        let made = |e: &&Entry| e.kind == HOOK_JOBS && e.before.is_none();
        let mut again = h.journal.iter().find(made).unwrap().clone();
        "again".clone_into(&mut again.name);
        h.journal.push(again);
    }),
    ("conditions have a reason and a message", "", |h| {
        first(
            h,
            |e| e.kind == CONFIGS,
            |e| edit(&mut e.after, "/status/conditions/0/message", "".into()),
        );
    }),
    ("Events have a reason and a note", "", |h| {
        first(
            h,
            |e| e.kind == EVENTS,
            |e| edit(&mut e.after, "/note", "".into()),
        );
    }),
    (
        "desiredUpdate changes in a job's time only",
        "the job's time is",
        |h| {
            first(h, sets_intent, |e| e.at -= 3.hours());
        },
    ),
    (
        "desiredUpdate changes in a job's time only",
        "the job's time is",
        |h| {
            first(h, sets_intent, |e| e.at += 5.hours());
        },
    ),
    (
        "desiredUpdate changes in a job's time only",
        "has not started",
        |h| {
            // Before the job has started.
            let set = h.journal.iter().position(sets_intent).unwrap();
            let entry = h.journal.remove(set);
            let start = h.journal.iter().position(starts).unwrap();
            h.journal.insert(start, entry);
        },
    ),
    (
        "desiredUpdate changes in a job's time only",
        "no job has the lock",
        |h| {
            // Nobody has the lock.
            first(h, sets_intent, |e| {
                edit(&mut e.before, "/metadata/annotations", json!({}));
            });
        },
    ),
    (
        "desiredUpdate changes in a job's time only",
        "not what the job is for",
        |h| {
            first(h, sets_intent, |e| {
                edit(&mut e.after, "/spec/desiredUpdate/version", "4.17.1".into());
            });
        },
    ),
    ("the lock is taken from nobody", "", |h| {
        let is_locked =
            |e: &Entry| is_cluster_version(e) && e.after.as_deref().is_some_and(|o| owner(o).is_some());
        let pointer = "/metadata/annotations/managedupgrade.appuio.io~1upgrade-job";
        let mut index = 0;
        h.journal.iter_mut().filter(|e| is_locked(e)).for_each(|e| {
            index += 1;
            if index == 2 {
                edit(&mut e.after, pointer, "ns/other".into());
                e.identity = Identity::Operator(1);
            }
        });
    }),
    ("no foreign pause is touched", "paused by somebody else", |h| {
        first(h, is_unpause, |e| {
            edit(&mut e.before, "/metadata/annotations", json!({}));
        });
    }),
    ("no foreign pause is touched", "paused by somebody else", |h| {
        // Somebody else had paused it, whatever is written on it.
        let paused =
            |e: &Entry| e.kind == POOLS && is_paused(e.after.as_ref()) && !is_paused(e.before.as_ref());
        h.journal.iter_mut().find(|e| paused(e)).unwrap().identity = Identity::Admin;
    }),
    ("no foreign pause is touched", "for a failure", |h| {
        let reason = "/metadata/annotations/managedupgrade.appuio.io~1pause-reason";
        first(h, is_unpause, |e| edit(&mut e.before, reason, "failure".into()));
    }),
    (
        "pools are paused by running jobs only",
        "in no state to pause it",
        |h| {
            // Its job has ended.
            let is_meant = |e: &Entry| {
                e.kind == POOLS
                    && is_ours(e.identity)
                    && is_paused(e.after.as_ref())
                    && !is_paused(e.before.as_ref())
            };
            let pause = h.journal.iter().find(|e| is_meant(e)).unwrap().clone();
            h.journal.push(pause);
        },
    ),
    (
        "a pool of ours is unpaused in [delayMin, delayMax]",
        "may from",
        |h| {
            first(h, is_unpause, |e| e.at -= 10.minutes());
        },
    ),
    (
        "a pool of ours is unpaused in [delayMin, delayMax]",
        "may from",
        |h| {
            first(h, is_unpause, |e| e.at += 40.minutes());
        },
    ),
    ("nothing is left behind", "the lock of", |h| {
        let is_locked =
            |e: &Entry| is_cluster_version(e) && e.after.as_deref().is_some_and(|o| owner(o).is_some());
        let last = h.journal.iter().rfind(|e| is_locked(e)).unwrap().clone();
        h.journal.push(last);
    }),
    ("nothing is left behind", "the pause of pool", |h| {
        // A pause that the job does not list.
        let last = h
            .journal
            .iter()
            .rfind(|e| e.kind == POOLS && owner_of(e).is_some());
        let last = last.unwrap().clone();
        h.journal.push(last);
    }),
    ("nothing is left behind", "desiredUpdate", |h| {
        // An intent that was not carried out.
        let set = h.journal.iter().find(|e| sets_intent(e)).unwrap().clone();
        h.journal.push(set);
    }),
    ("nothing is left behind", "the finalizer of Job", |h| {
        // The finalizer of a hook's Job.
        let is_held = |e: &&Entry| {
            e.kind == HOOK_JOBS
                && e.after
                    .as_deref()
                    .is_some_and(|j| has_finalizer(j) && condition(j, "Complete").is_some())
        };
        let held = h.journal.iter().find(is_held).unwrap().clone();
        h.journal.push(held);
    }),
    ("every run is accounted for", "no record", |h| {
        // The run is missed without a word.
        h.journal.retain(|e| e.kind != JOBS);
        for entry in h.journal.iter_mut().filter(|e| e.kind == CONFIGS) {
            for object in [&mut entry.before, &mut entry.after].into_iter().flatten() {
                if let Some(status) = Arc::make_mut(object)
                    .get_mut("status")
                    .and_then(Value::as_object_mut)
                {
                    status.remove("lastScheduledUpgrade");
                }
            }
        }
    }),
    ("every run is accounted for", "no reason why", |h| {
        // It is recorded as done, without a job and without a reason.
        h.journal.retain(|e| e.kind != JOBS && e.kind != EVENTS);
    }),
    ("every run is accounted for", "for one run", |h| {
        // Two jobs for one run.
        let made = h.journal.iter().find(|e| e.kind == JOBS && e.before.is_none());
        let mut again = made.unwrap().clone();
        "again".clone_into(&mut again.name);
        edit(&mut again.after, "/metadata/name", "again".into());
        h.journal.push(again);
    }),
    ("every run is accounted for", "has no run at", |h| {
        // A job without a run.
        for entry in h.journal.iter_mut().filter(|e| e.kind == JOBS) {
            edit(
                &mut entry.after,
                "/spec/startAfter",
                "2026-12-01T21:59:00Z".into(),
            );
        }
    }),
    ("no reconcile loop", "", |h| {
        h.traffic[30..].iter_mut().for_each(|hour| hour.1 += 20_000);
    }),
    ("no reconcile loop", "", |h| {
        h.traffic[30..].iter_mut().for_each(|hour| hour.2 += 1_000);
    }),
];

#[test]
fn whatever_is_broken_is_noticed() {
    let quiet = quiet();
    let found = invariants::violations(&quiet);
    assert!(found.is_empty(), "{found:#?}");
    for (number, (invariant, word, tamper)) in TAMPERINGS.iter().enumerate() {
        let mut history = quiet.clone();
        tamper(&mut history);
        let found = invariants::violations(&history);
        let is_it = |v: &Violation| v.invariant == *invariant && v.what.contains(word);
        assert!(
            found.iter().any(is_it),
            "{number}. {invariant}: {word}: {found:#?}"
        );
    }
}

#[test]
fn every_invariant_can_be_broken() {
    let broken: BTreeSet<&str> = TAMPERINGS.iter().map(|(invariant, ..)| *invariant).collect();
    assert_eq!(broken, BTreeSet::from(invariants::ALL));
}
