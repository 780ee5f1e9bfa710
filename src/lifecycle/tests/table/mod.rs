//! Design 5, "endings": one row each. What the job says, which hooks run and with which reason, and how the cluster is left.

mod failed;
mod skipped;

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    bench::Bench,
    fixtures::{NEW, OLD, at, held, hook, image, job},
};
use crate::{
    api::{UpgradeJob, annotations, conditions, labels, upgrade_job::JobPhase},
    engine::StopRequest,
    lifecycle::EngineState,
    schedule::version::{Choice, choose},
};

/// Where an ending leaves the cluster.
struct Left {
    /// Version of `spec.desiredUpdate`.
    desired: Option<&'static str>,
    /// Pools that are paused.
    paused: &'static [&'static str],
}

const UNTOUCHED: Left = Left {
    desired: None,
    paused: &[],
};
/// What an upgrade under way leaves: it goes on by itself, and reboots nothing that was held.
const UNDER_WAY: Left = Left {
    desired: Some(NEW),
    paused: &["night"],
};

/// With hooks of every event that end well at once, and pool `night` held from minute 30 to minute 60.
fn bench(patch: &Value) -> Bench {
    let mut merged = held();
    json_patch::merge(&mut merged, patch);
    let mut bench = Bench::new(job("j", merged));
    let events = [
        "Start",
        "UpgradeComplete",
        "MachineConfigPoolUnpause",
        "Success",
        "Failure",
        "Finish",
    ];
    bench.world.hooks = events
        .iter()
        .map(|e| hook(&e.to_lowercase(), e, "Ignore"))
        .collect();
    bench.hooks_end = Some("Complete");
    bench
}

fn plain() -> Bench {
    bench(&json!({}))
}

/// Another job, that has the lock.
fn started(name: &str) -> UpgradeJob {
    job(
        name,
        json!({"metadata": {"finalizers": ["managedupgrade.appuio.io/release"]},
            "status": {"conditions": [{"type": "Started", "status": "True", "reason": "", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
    )
}

fn assert_left(bench: &Bench, left: &Left) {
    assert_eq!(bench.desired().as_deref(), left.desired, "desiredUpdate");
    assert_eq!(bench.paused(), left.paused, "paused pools");
    let recorded: Vec<String> = bench
        .status()
        .paused_pools
        .iter()
        .map(|p| p.name.clone())
        .collect();
    assert_eq!(recorded, left.paused, "status.pausedPools");
    assert_eq!(
        bench.is_true("PoolsLeftPaused").is_some(),
        !left.paused.is_empty(),
        "condition PoolsLeftPaused"
    );
    assert!(!bench.is_locked(), "the lock is free");
    assert!(bench.job().metadata.finalizers.is_none(), "the finalizer is gone");
}

#[test]
fn succeeded() {
    let mut bench = plain().completed();
    bench.settle_at(1800);
    bench.roll("night");
    bench.settle_at(1900);
    assert_eq!(bench.is_true("Succeeded").as_deref(), Some("Succeeded"));
    assert_eq!(
        bench.hooks_run(),
        [
            "Start:Started",
            "UpgradeComplete:Completed",
            "MachineConfigPoolUnpause:DelayReached",
            "Success:Succeeded",
            "Finish:Succeeded"
        ]
    );
    assert_left(
        &bench,
        &Left {
            desired: Some(NEW),
            paused: &[],
        },
    );
}

// --- version choice: a job by hand is the same as a pinned one ---------------------------------------------------------

#[test]
fn the_installed_version_again_is_a_run_of_hooks_and_pools() {
    let mut bench = bench(&json!({"spec": {"desiredVersion": {"version": OLD, "image": image(OLD)}}}));
    bench.settle_at(10);
    assert_eq!(
        bench.is_true("Succeeded").as_deref(),
        Some("Succeeded"),
        "{}",
        bench.message()
    );
    assert_eq!(
        bench.step("set-desired-update").unwrap().message.as_deref(),
        Some("4.18.3 is already installed")
    );
    assert_left(&bench, &UNTOUCHED);
}

#[test]
fn an_older_version_is_installed_where_that_is_allowed() {
    let patch = json!({"spec": {"allowDowngrade": true, "desiredVersionCheckAvailability": false,
        "desiredVersion": {"version": "4.18.2", "image": "x"}}});
    let mut bench = bench(&patch);
    bench.settle_at(10);
    assert_eq!(bench.desired().as_deref(), Some("4.18.2"), "{}", bench.message());
}

#[test]
fn a_job_by_hand_is_treated_as_one_that_was_pinned() {
    let cluster = plain().world.cluster_version;
    let Choice::Update { version, .. } = choose(cluster.as_ref(), None, at(-60)) else {
        panic!("4.18.5 is offered");
    };
    let by_hand = plain().completed();
    let mut pinned = bench(&json!({"spec": {"desiredVersion": version}})).completed();
    pinned.settle_at(120);
    assert_eq!(by_hand.status().steps, pinned.status().steps);
    assert_eq!(by_hand.desired(), pinned.desired());
}
