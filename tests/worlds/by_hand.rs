//! Worlds that are written, not drawn: where a drawn one found something wrong, the part of it that matters.

use std::collections::BTreeSet;

use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use crate::{
    draw::{NAMESPACE, World},
    invariants,
    play::{self, History},
    state::{JOBS, Job, POOLS, owner},
};

/// Three days from 2026-12-01, a Tuesday: one config, whose jobs hold the pool `worker` from 90 to 120 minutes, and a hook.
pub fn world(cron: &str, events: &Value) -> World {
    let mut world = World::of(1, &BTreeSet::new());
    let start: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
    (world.start, world.end) = (start, start + (24 * 3).hours());
    (world.deeds, world.api_faults) = (Vec::new(), Vec::new());
    world.scenario = json!({
        "cluster": {"operators": ["etcd"], "pools": [
            {"name": "master", "machines": 1}, {"name": "worker", "machines": 1, "labels": {"name": "w"}},
        ]},
        "durations": {"controlPlane": "20m", "node": "5m"},
        "updates": {"every": "12h"},
        "events": events,
    });
    let group =
        json!({"matchLabels": {"name": "w"}, "delayUpgrade": {"delayMin": "90m", "delayMax": "120m"}});
    let container = json!({"name": "main", "image": "busybox"});
    let pod = json!({"spec": {"containers": [container], "restartPolicy": "Never"}});
    let of_kind = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        })
    };
    world.objects = vec![
        of_kind(
            "UpgradeConfig",
            "weekly",
            json!({
                "schedule": {"cron": cron}, "pinVersionWindow": "1h",
                "jobTemplate": {"spec": {"config": {"machineConfigPools": [group], "upgradeTimeout": "4h"}}},
            }),
        ),
        of_kind(
            "UpgradeJobHook",
            "hook",
            json!({"events": ["Start"], "template": {"spec": {"template": pod}}}),
        ),
    ];
    world
}

/// The pool `worker` as it was at a time: whether it was paused, and whose name was on it.
fn worker(history: &History, at: &str) -> (bool, Option<String>) {
    let at: Timestamp = at.parse().unwrap();
    let changes = history
        .journal
        .iter()
        .filter(|e| e.kind == POOLS && e.name == "worker");
    let last = changes.take_while(|e| e.at <= at).last().unwrap();
    let pool = last.after.as_deref().unwrap();
    (pool["spec"]["paused"] == true, owner(pool).map(str::to_owned))
}

/// A job fails and leaves its pool paused. A person unpauses it, and pauses it again some other time, for reasons of their
/// own: that pause is not of the job, and the next job leaves it alone.
#[test]
fn a_pool_that_was_unpaused_by_hand_is_nobodys() {
    let pool = |at: &str, paused: bool| {
        json!({"at": at, "do": {"patch": {
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "worker",
            "merge": {"spec": {"paused": paused}},
        }}})
    };
    let events = json!([
        {"at": "2026-12-01T22:05:00Z", "for": "8h", "fault": {"stuckOperator": {"operator": "etcd"}}},
        pool("2026-12-02T13:00:00Z", false),
        pool("2026-12-02T16:00:00Z", true),
    ]);
    let history = play::play(world("0 22 * * 2,3", &events), false);

    let (is_paused, name) = worker(&history, "2026-12-02T12:00:00Z");
    assert!(is_paused && name.is_some(), "left paused by the job that failed");
    assert_eq!(worker(&history, "2026-12-02T13:01:00Z"), (false, None));
    assert_eq!(worker(&history, "2026-12-02T21:59:00Z"), (true, None));
    let jobs = history.journal.iter().filter(|e| e.kind == JOBS);
    let started = jobs
        .filter_map(|e| e.after.as_deref())
        .filter(|job| Job(job).has_started());
    let started: BTreeSet<&str> = started
        .filter_map(|job| job["metadata"]["name"].as_str())
        .collect();
    assert_eq!(started.len(), 2, "{started:?}");
    assert_eq!(
        worker(&history, "2026-12-03T23:59:00Z"),
        (true, None),
        "still theirs"
    );
    let found = invariants::violations(&history);
    assert!(found.is_empty(), "{found:#?}");
}
