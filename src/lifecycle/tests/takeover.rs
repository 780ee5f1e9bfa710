//! Jobs that openshift-upgrade-controller started, from every place where it may have stopped.

use k8s_openapi::api::batch::v1::Job;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    bench::Bench,
    fixtures::{NEW, at, held, hook, job, object},
};
use crate::{
    api::{
        annotations,
        upgrade_job::{EngineChoice, JobPhase, StepPhase},
        upgrade_job_hook::HookEvent,
    },
    hooks::{environment::Event, job as hook_job},
    lifecycle::EngineState,
    steps::Action,
};

/// How far the peer came: each has what is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stopped {
    /// Waits for a hook of Start, without the lock.
    StartHook,
    /// The hook has ended, and nothing else was done.
    StartHookEnded,
    Locked,
    PoolsPaused,
    PreHealthBegun,
    PreHealthDone,
    Asked,
    InProgress,
    Accepted,
    ControlPlaneDone,
    UpgradeCompleted,
    PostHealthBegun,
    PostHealthDone,
    /// Waits for a hook of UpgradeComplete.
    CompleteHook,
    Paused,
    /// Pool `night` is unpaused, and its nodes reboot.
    Unpaused,
}

const PEER: &str = "done by openshift-upgrade-controller: ";

fn condition(bench: &mut Bench, type_: &str, status: &str, reason: &str, message: &str) {
    let all = &mut bench.job_mut().status.get_or_insert_default().conditions;
    all.retain(|c| c.type_ != type_);
    all.push(object(
        json!({"type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": at(5).to_string()}),
    ));
}

/// A Job of the peer: it has other names.
fn run_hook(bench: &mut Bench, hook: usize, event: HookEvent, key: &str, condition: &str) {
    let event = Event {
        name: event,
        time: at(5),
        reason: "OfThePeer".to_owned(),
        message: String::new(),
        pool: None,
    };
    let mut made: Job =
        hook_job::build(&bench.world.hooks[hook], &event, bench.job(), key, false, None).unwrap();
    made.metadata.name = Some(format!("peers-{hook}"));
    if !condition.is_empty() {
        made.status = Some(object(
            json!({"conditions": [{"type": condition, "status": "True"}]}),
        ));
    }
    bench.world.hook_jobs.push(made);
}

fn track(bench: &mut Bench, hook: &str, event: &str, key: &str, status: &str) {
    let tracker = &mut bench.job_mut().status.get_or_insert_default().hook_tracker;
    tracker.push(object(
        json!({"hookEvent": event, "trackingKey": key, "upgradeJobHook": hook, "status": status, "message": ""}),
    ));
}

fn lock(bench: &mut Bench, holder: &str) {
    let cluster = bench.world.cluster_version.as_mut().unwrap();
    let all = cluster.metadata.annotations.get_or_insert_default();
    all.insert(annotations::UPGRADE_JOB.into(), holder.into());
}

fn pause(bench: &mut Bench, pool: &str, paused: bool) {
    let pool = bench.pool_mut(pool);
    pool.spec.paused = paused;
    let all = pool.metadata.annotations.get_or_insert_default();
    all.insert(annotations::UPGRADE_JOB.into(), "ns/j".into());
}

/// The job as the peer left it, with hooks that abort.
fn left_at(stopped: Stopped) -> Bench {
    left_by(stopped, held())
}

/// A health check of the peer, begun or done.
fn health(bench: &mut Bench, type_: &str, done: bool) {
    if done {
        condition(bench, type_, "True", "Completed", "Health checks ok");
    } else {
        condition(bench, type_, "False", "InProgress", "Health checks started");
    }
}

fn left_by(stopped: Stopped, patch: Value) -> Bench {
    let mut bench = Bench::new(job("j", patch));
    bench.world.hooks = vec![
        hook("s", "Start", "Abort"),
        hook("c", "UpgradeComplete", "Abort"),
        hook("u", "MachineConfigPoolUnpause", "Abort"),
    ];
    bench.hooks_end = Some("Complete");
    let came_to = |stage: Stopped| stopped >= stage;
    condition(&mut bench, "Started", "True", "Started", "Upgrade started");
    if stopped == Stopped::StartHook {
        run_hook(&mut bench, 0, HookEvent::Start, "", "");
        track(&mut bench, "s", "Start", "", "active");
    } else {
        // Its Job has gone: only the tracker knows of it.
        track(&mut bench, "s", "Start", "", "complete");
    }
    if came_to(Stopped::Locked) {
        lock(&mut bench, "ns/j");
    }
    if came_to(Stopped::PoolsPaused) {
        pause(&mut bench, "night", true);
        let message = "of the peer";
        condition(
            &mut bench,
            "MachineConfigPoolsPaused",
            "True",
            "DelaySet",
            message,
        );
    }
    if came_to(Stopped::PreHealthBegun) {
        health(&mut bench, "PreHealthCheckDone", came_to(Stopped::PreHealthDone));
    }
    if came_to(Stopped::Asked) {
        bench.ask_for(NEW);
    }
    if came_to(Stopped::InProgress) {
        let done = came_to(Stopped::UpgradeCompleted);
        let (status, reason) = if done {
            ("True", "Completed")
        } else {
            ("False", "InProgress")
        };
        condition(&mut bench, "UpgradeCompleted", status, reason, "Upgrade …");
    }
    if came_to(Stopped::Accepted) {
        bench.accept();
    }
    if came_to(Stopped::ControlPlaneDone) {
        bench.complete();
    }
    if came_to(Stopped::PostHealthBegun) {
        health(
            &mut bench,
            "PostHealthCheckDone",
            came_to(Stopped::PostHealthDone),
        );
    }
    if came_to(Stopped::CompleteHook) {
        let is_running = stopped == Stopped::CompleteHook;
        run_hook(
            &mut bench,
            1,
            HookEvent::UpgradeComplete,
            "",
            if is_running { "" } else { "Complete" },
        );
        let state = if is_running { "active" } else { "complete" };
        track(&mut bench, "c", "UpgradeComplete", "", state);
    }
    if came_to(Stopped::Paused) {
        let status = if came_to(Stopped::Unpaused) {
            "False"
        } else {
            "True"
        };
        condition(&mut bench, "Paused", status, "DelaySet", "of the peer");
    }
    if came_to(Stopped::Unpaused) {
        track(&mut bench, "u", "MachineConfigPoolUnpause", "night", "complete");
        pause(&mut bench, "night", false);
        bench.now = 1900;
    }
    bench
}

/// Steps that were recorded as done by the peer.
fn taken_over(bench: &Bench) -> String {
    let steps = bench.status().steps;
    let by_peer = steps.iter().filter(|s| {
        s.phase == StepPhase::Succeeded && s.message.as_deref().is_some_and(|m| m.starts_with(PEER))
    });
    by_peer.map(|s| s.name.as_str()).collect::<Vec<_>>().join(" ")
}

/// Passes until the job has its plan.
fn take_over(bench: &mut Bench) {
    for _ in 0..3 {
        assert!(bench.pass(), "{}", bench.message());
    }
    assert!(bench.status().plan.is_some(), "{}", bench.message());
}

/// What is left of the night, as far as the cluster is not through it.
fn end_night(bench: &mut Bench) {
    bench.end_hook_jobs("Complete");
    bench.settle_at(bench.now.max(60));
    let newest = |bench: &Bench| {
        bench
            .world
            .cluster_version
            .as_ref()
            .unwrap()
            .newest()
            .cloned()
            .unwrap()
    };
    if newest(bench).version != NEW {
        assert_eq!(bench.desired().as_deref(), Some(NEW), "{}", bench.message());
        bench.accept();
        bench.settle();
    }
    if !newest(bench).is_completed() {
        bench.complete();
        bench.settle();
    }
    if bench.now < 1800 {
        assert_eq!(bench.paused(), ["night"], "held: {}", bench.message());
        bench.settle_at(1790);
        assert_eq!(bench.paused(), ["night"], "held: {}", bench.message());
        assert_eq!(
            bench.status().phase,
            Some(JobPhase::Paused),
            "{}",
            bench.message()
        );
        bench.settle_at(1800);
    }
    assert_eq!(bench.paused(), Vec::<&str>::new(), "{}", bench.message());
    bench.roll("night");
    bench.settle_at(bench.now + 60);
}

const ASKED: &str = "pre-health-check set-desired-update";
const DONE: &str = "pre-health-check set-desired-update await-control-plane await-pools";
const POST: &str = "pre-health-check set-desired-update await-control-plane await-pools post-health-check";
const ALL: &str = "pre-health-check set-desired-update await-control-plane await-pools post-health-check hold-night \
     hook-unpause-night-u hooks-unpause-night unpause-night";

#[rstest]
#[case::start_hook(Stopped::StartHook, "")]
#[case::start_hook_ended(Stopped::StartHookEnded, "")]
#[case::locked(Stopped::Locked, "")]
#[case::pools_paused(Stopped::PoolsPaused, "")]
#[case::pre_health_begun(Stopped::PreHealthBegun, "")]
// Ours looks at more, and nothing is asked for yet.
#[case::pre_health_done(Stopped::PreHealthDone, "")]
#[case::asked(Stopped::Asked, ASKED)]
#[case::in_progress(Stopped::InProgress, ASKED)]
#[case::accepted(Stopped::Accepted, ASKED)]
#[case::control_plane_done(Stopped::ControlPlaneDone, ASKED)]
#[case::upgrade_completed(Stopped::UpgradeCompleted, DONE)]
#[case::post_health_begun(Stopped::PostHealthBegun, DONE)]
#[case::post_health_done(Stopped::PostHealthDone, POST)]
#[case::complete_hook(Stopped::CompleteHook, POST)]
#[case::paused(Stopped::Paused, POST)]
#[case::unpaused(Stopped::Unpaused, ALL)]
fn a_job_of_the_peer_is_carried_on_from_wherever_it_is(#[case] stopped: Stopped, #[case] done: &str) {
    // Neither the engine that the job names, nor that of the operator.
    let wants_argo = json!({"spec": {"config": {"workflow": {"engine": "argo"}}}});
    let mut patch = held();
    json_patch::merge(&mut patch, &wants_argo);
    let mut bench = left_by(stopped, patch);
    bench.engine = EngineState::Missing("Argo is not installed".to_owned());
    take_over(&mut bench);
    assert_eq!(taken_over(&bench), done);
    let status = bench.status();
    assert_eq!(status.workflow.map(|w| w.engine), Some(EngineChoice::Embedded));
    assert_eq!(status.started_at.map(|t| t.0), Some(at(5)), "the peer's start");
    assert_eq!(bench.is_true("TakenOver").as_deref(), Some("StartedByPeer"));
    assert_eq!(bench.reasons, ["TakenOver"]);

    let hooks_of_peer = bench.world.hook_jobs.len();
    end_night(&mut bench);
    bench.assert_succeeded();
    assert_eq!(bench.message(), "Upgrade to 4.18.5 succeeded");
    let asked = usize::from(stopped < Stopped::Asked);
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), asked);
    let unpaused = usize::from(stopped < Stopped::Unpaused);
    assert_eq!(
        bench.count(|a| matches!(a, Action::UnpausePool { .. })),
        1,
        "or its owner is removed"
    );
    assert_eq!(
        bench.count(|a| matches!(a, Action::PausePool { .. })),
        usize::from(stopped < Stopped::PoolsPaused)
    );
    // Each once: those of the peer are not run again.
    let complete = usize::from(stopped < Stopped::CompleteHook);
    assert_eq!(bench.world.hook_jobs.len() - hooks_of_peer, complete + unpaused);
    assert_eq!(bench.status().hook_tracker.len(), 3);
    assert!(!bench.is_locked(), "the lock is released");
    assert!(bench.job().metadata.finalizers.is_none(), "the finalizer is gone");
    assert!(bench.pool_mut("night").metadata.annotations.is_none());
}

/// A hook that runs is waited for: not run beside it, and its failure counts.
#[rstest]
#[case(Stopped::StartHook)]
#[case(Stopped::CompleteHook)]
fn a_hook_of_the_peer_that_runs_is_waited_for(#[case] stopped: Stopped) {
    let mut bench = left_at(stopped);
    bench.settle_at(60);
    assert_eq!(bench.world.hook_jobs.len(), 1);
    assert_eq!(
        bench.status().phase,
        Some(JobPhase::Running),
        "{}",
        bench.message()
    );
    bench.end_hook_jobs("Failed");
    bench.settle();
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some("HookFailed"),
        "{}",
        bench.message()
    );
}

/// Killed before any of its writes but the status, the next operator does the same.
#[rstest]
fn the_takeover_survives_being_killed(#[values(0, 1, 2, 3, 4)] at_pass: usize) {
    let mut bench = left_at(Stopped::Accepted);
    for _ in 0..at_pass {
        bench.pass();
    }
    let decision = bench.decide();
    bench.job_mut().status = Some(decision.status);
    end_night(&mut bench);
    bench.assert_succeeded();
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), 0);
    assert_eq!(
        bench.reasons.iter().filter(|r| *r == "TakenOver").count(),
        usize::from(at_pass != 2)
    );
}

/// It is this job's lock that the peer took; our UID says so from now on.
#[test]
fn the_lock_is_signed_before_anything_else() {
    let mut bench = left_at(Stopped::Accepted);
    bench.pass();
    bench.pass();
    assert_eq!(bench.acted, [Action::Protect, Action::TakeLock]);
    assert_eq!(bench.status().plan, None);
}

/// The lock is somebody's, or nobody's where there is no name.
fn left_without_lock(stopped: Stopped, holder: &str) -> Bench {
    let mut bench = left_at(stopped);
    let mut other = job("other", json!({}));
    other.status = Some(object(
        json!({"conditions": [{"type": "Started", "status": "True", "reason": "Started",
        "message": "", "lastTransitionTime": at(0).to_string()}]}),
    ));
    bench.world.jobs.push(other);
    bench.world.cluster_version.as_mut().unwrap().metadata.annotations = None;
    if !holder.is_empty() {
        lock(&mut bench, holder);
    }
    bench
}

/// The peer starts a job before it asks for the lock: this one never had it, and has lost nothing.
#[test]
fn a_job_that_never_had_the_lock_waits_for_it() {
    let mut bench = left_without_lock(Stopped::StartHook, "ns/other");
    bench.settle_at(60);
    let message = bench.message();
    assert!(
        message.contains("UpgradeJob ns/other has the lock on the ClusterVersion"),
        "{message}"
    );
    assert_eq!(bench.status().phase, Some(JobPhase::Running), "{message}");
    assert_eq!((bench.is_true("Failed"), bench.status().plan), (None, None));

    bench.world.cluster_version.as_mut().unwrap().metadata.annotations = None;
    bench.settle_at(120);
    assert_eq!(bench.is_true("TakenOver").as_deref(), Some("StartedByPeer"));
    assert!(bench.is_locked());
}

#[rstest]
#[case::nobodys(Stopped::PoolsPaused, "", "someone removed our lock")]
#[case::of_another_job(Stopped::Accepted, "ns/other", "was taken by ns/other")]
fn without_the_lock_the_job_fails(#[case] stopped: Stopped, #[case] holder: &str, #[case] message: &str) {
    let mut bench = left_without_lock(stopped, holder);
    bench.settle_at(60);
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some("LockLost"),
        "{}",
        bench.message()
    );
    assert!(bench.message().contains(message), "{}", bench.message());
    let touches = |a: &Action| !matches!(a, Action::CreateHookJob(_) | Action::ReleaseHookRun(_));
    assert_eq!(bench.count(touches), 0, "{:?}", bench.acted);
}

/// Its steps tell that it is ours: nobody knows what the plan was.
#[test]
fn a_plan_that_was_removed_by_hand_is_not_made_again() {
    let mut bench = Bench::new(job("j", json!({}))).asked();
    bench.job_mut().status.as_mut().unwrap().plan = None;
    bench.settle_at(60);
    assert_eq!(bench.message(), "status.plan is missing: was it removed by hand?");
    assert_eq!(bench.is_true("TakenOver"), None);
}

#[rstest]
#[case("Succeeded")]
#[case("Failed")]
fn a_job_that_the_peer_ended_is_left_alone(#[case] outcome: &str) {
    let mut bench = left_at(Stopped::Unpaused);
    bench.world.cluster_version.as_mut().unwrap().metadata.annotations = None;
    condition(&mut bench, outcome, "True", outcome, "The peer said so");
    bench.settle();
    let acts = |a: &Action| !matches!(a, Action::ReleaseHookRun(_));
    assert_eq!(bench.count(acts), 0, "{:?}", bench.acted);
    assert_eq!(bench.status().steps, []);
    assert_eq!(bench.is_true("TakenOver"), None);
}

#[test]
fn another_target_is_not_fought() {
    let mut bench = left_at(Stopped::InProgress);
    bench.ask_for("4.18.9");
    bench.settle_at(60);
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some("DesiredUpdateChanged"),
        "{}",
        bench.message()
    );
    assert_eq!(bench.desired().as_deref(), Some("4.18.9"));
}

/// What the peer asked for is taken back at an ending before it was accepted.
#[test]
fn the_timeout_counts_from_the_start_under_the_peer() {
    let mut patch = held();
    patch["spec"]["config"]["machineConfigPools"][0]["delayUpgrade"] = json!({"delayMin": "30m"});
    let mut bench = left_by(Stopped::InProgress, patch);
    bench.settle_at(12 * 3600 - 1);
    assert_eq!(bench.is_true("Failed"), None, "{}", bench.message());
    bench.settle_at(12 * 3600);
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some("TimedOut"),
        "{}",
        bench.message()
    );
    assert_eq!(bench.desired(), None);
}

/// Done beats Failed, however late somebody looks.
#[test]
fn an_upgrade_that_is_through_succeeds_after_the_timeout() {
    let mut bench = left_at(Stopped::Unpaused);
    bench.roll("night");
    bench.settle_at(24 * 3600);
    bench.assert_succeeded();
}

/// The peer says that all is done as soon as any entry of the history has the version; the cluster does not.
#[test]
fn what_the_peer_says_of_the_cluster_does_not_count() {
    let mut bench = left_at(Stopped::Accepted);
    condition(
        &mut bench,
        "UpgradeCompleted",
        "True",
        "Completed",
        "Upgrade completed",
    );
    health(&mut bench, "PostHealthCheckDone", true);
    take_over(&mut bench);
    assert_eq!(taken_over(&bench), ASKED);
    assert_eq!(bench.is_true("UpgradeCompleted"), None);
    end_night(&mut bench);
    bench.assert_succeeded();
}

/// Of a group of pools the peer unpauses one after the other.
#[test]
fn a_pool_that_the_peer_unpaused_is_not_paused_again() {
    let two = json!({"spec": {"config": {"machineConfigPools": [{
        "matchLabels": {"matchExpressions": [{"key": "name", "operator": "In", "values": ["night", "worker"]}]},
        "delayUpgrade": {"delayMin": "30m", "delayMax": "1h"}}]}}});
    let mut bench = left_by(Stopped::Unpaused, two);
    pause(&mut bench, "worker", true);
    let state = bench.pool_mut("worker").status.as_mut().unwrap();
    state.configuration.name = "rendered-worker-1".into();
    state.updated_machine_count = 0;
    take_over(&mut bench);
    assert_eq!(taken_over(&bench), POST);
    bench.settle();
    assert_eq!(bench.paused(), Vec::<&str>::new());
    assert_eq!(bench.count(|a| matches!(a, Action::PausePool { .. })), 0);
    let unpaused = |a: &Action| matches!(a, Action::UnpausePool { pool } if pool == "worker");
    assert_eq!(bench.count(unpaused), 1);
    bench.roll("worker");
    bench.roll("night");
    bench.settle();
    bench.assert_succeeded();
    assert_eq!(bench.hooks_run().len(), 2, "{:?}", bench.hooks_run());
}

/// For the peer `{}` is the control plane's pool, too, and with that paused no upgrade ends.
#[test]
fn the_pool_of_the_control_plane_is_unpaused_at_once() {
    let mut patch = held();
    patch["spec"]["config"]["machineConfigPools"][0]["matchLabels"] = json!({});
    let mut bench = left_by(Stopped::Accepted, patch);
    pause(&mut bench, "master", true);
    pause(&mut bench, "worker", true);
    bench.settle_at(60);
    assert_eq!(bench.paused(), ["night", "worker"]);
    assert_eq!(bench.is_true("TakenOver").as_deref(), Some("StartedByPeer"));
}

/// A person unpaused it: before its time it is paused again, as everywhere.
#[test]
fn a_pool_that_was_unpaused_too_early_is_paused_again() {
    let mut bench = left_at(Stopped::Accepted);
    pause(&mut bench, "night", false);
    bench.settle_at(60);
    assert_eq!(bench.paused(), ["night"]);
}

/// Hooks and pools only.
#[test]
fn maintenance_without_an_update_is_carried_on() {
    let mut patch = held();
    patch["spec"]["desiredVersion"] = Value::Null;
    let mut bench = left_by(Stopped::PreHealthDone, patch);
    health(&mut bench, "PostHealthCheckDone", true);
    take_over(&mut bench);
    assert_eq!(
        taken_over(&bench),
        "pre-health-check await-pools post-health-check"
    );
    bench.settle_at(60);
    bench.assert_succeeded();
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), 0);
}
