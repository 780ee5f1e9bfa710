//! Every ending, and what it leaves behind.

use rstest::rstest;
use serde_json::json;

use super::{
    bench::Bench,
    fixtures::{NEW, OLD, at, held, hook, image, job},
};
use crate::{
    api::{
        annotations,
        upgrade_job::{JobPhase, PauseReason},
    },
    engine::{NodePhase, Run, StopRequest},
    lifecycle::RunState,
    plan::Plan,
    steps::Action,
    unreadable::{Kind, Unreadable},
};

fn asked(patch: serde_json::Value) -> Bench {
    Bench::new(job("j", patch)).asked()
}

fn accepted(patch: serde_json::Value) -> Bench {
    Bench::new(job("j", patch)).accepted()
}

fn assert_ended(bench: &Bench, reason: &str) {
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some(reason),
        "{}",
        bench.message()
    );
    assert_eq!(bench.status().phase, Some(JobPhase::Failed));
    assert!(!bench.is_locked(), "the lock is released");
    assert!(bench.job().metadata.finalizers.is_none(), "the finalizer is gone");
}

#[test]
fn unhealthy_before_the_start_touches_nothing_and_names_the_operator() {
    let mut bench = Bench::new(job("j", held()));
    bench.world.hooks = vec![
        hook("f", "Failure", "Ignore"),
        hook("n", "Finish", "Ignore"),
        hook("s", "Success", "Ignore"),
    ];
    let operator = &mut bench.world.operators[0];
    operator.status.as_mut().unwrap().conditions =
        serde_json::from_value(json!([{"type": "Available", "status": "True"},
            {"type": "Degraded", "status": "True", "message": "2 of 3 members"}]))
        .unwrap();
    bench.settle_at(10);
    bench.settle_at(10 + 3599);
    assert_eq!(bench.is_true("Failed"), None);
    bench.settle_at(10 + 3600);
    assert_ended(&bench, "PreHealthCheckFailed");
    assert!(
        bench
            .message()
            .contains("operator etcd is Degraded: 2 of 3 members"),
        "{}",
        bench.message()
    );
    assert_eq!(bench.desired(), None);
    assert_eq!(
        bench.count(|a| matches!(a, Action::PausePool { .. } | Action::SetDesiredUpdate(_))),
        0
    );
    let events: Vec<_> = bench
        .status()
        .hook_tracker
        .iter()
        .map(|t| t.hook_event.as_str())
        .collect();
    assert_eq!(events, ["Failure", "Finish"]);
}

#[rstest]
#[case::withdrawn("True", json!([]), json!([]), 10, "UpgradeWithdrawn")]
#[case::conditional("True", json!([]), json!([{"release": {"version": NEW, "image": image(NEW)}, "risks": [{"name": "BadDisk"}]}]),
    3600, "UpgradeConditional")]
#[case::silent("False", json!(null), json!([]), 3600, "UpdateServiceUnavailable")]
fn a_version_that_is_gone(
    #[case] retrieved: &str,
    #[case] available: serde_json::Value,
    #[case] conditional: serde_json::Value,
    #[case] fails_at: i64,
    #[case] reason: &str,
) {
    let mut bench = Bench::new(job("j", json!({})));
    bench.condition("RetrievedUpdates", retrieved, "no route to host");
    let status = bench
        .world
        .cluster_version
        .as_mut()
        .unwrap()
        .status
        .as_mut()
        .unwrap();
    status.available_updates = serde_json::from_value(available).unwrap();
    status.conditional_updates = serde_json::from_value(conditional).unwrap();
    if fails_at > 10 {
        bench.settle_at(10);
        assert_eq!(bench.is_true("Failed"), None, "{}", bench.message());
        bench.settle_at(fails_at - 1);
        assert_eq!(bench.is_true("Failed"), None);
    }
    bench.settle_at(fails_at);
    assert_ended(&bench, reason);
    assert_eq!(bench.desired(), None);
    if reason == "UpgradeConditional" {
        assert!(bench.message().contains("BadDisk"));
    }
}

#[test]
fn a_rejected_release_is_withdrawn_after_its_grace() {
    let mut bench = asked(held());
    bench.condition(
        "ReleaseAccepted",
        "False",
        "Preconditions failed for payload loaded version=\"4.18.5\"",
    );
    bench.settle_at(20);
    bench.settle_at(20 + 580);
    assert_eq!(bench.is_true("Failed"), None, "within the grace");
    bench.settle_at(20 + 600);
    assert_ended(&bench, "UpgradeRejected");
    assert_eq!(
        bench.desired(),
        None,
        "else it would start by itself in office hours"
    );
    assert_eq!(bench.is_true("IntentWithdrawn").as_deref(), Some("Withdrawn"));
    assert!(
        !bench.world.pool("night").unwrap().spec.paused,
        "nothing is pending for it"
    );
    assert!(bench.status().paused_pools.is_empty());
}

#[test]
fn an_older_rejection_of_another_release_does_not_count() {
    let mut bench = asked(json!({}));
    bench.condition(
        "ReleaseAccepted",
        "False",
        "Retrieving payload failed version=\"4.18.4\"",
    );
    bench.settle_at(3 * 3600);
    assert_eq!(bench.is_true("Failed"), None);
}

#[rstest]
#[case::what_the_cluster_has(OLD, Some(OLD))]
#[case::anything_else("4.18.1", None)]
fn what_was_there_before_is_put_back_only_if_it_changes_nothing(
    #[case] before: &str,
    #[case] after: Option<&str>,
) {
    let mut bench = Bench::new(job("j", json!({})));
    let status = bench.world.cluster_version.as_mut().unwrap();
    status.spec.desired_update =
        Some(serde_json::from_value(json!({"version": OLD, "image": image(OLD)})).unwrap());
    bench.settle_at(10);
    assert_eq!(bench.desired().as_deref(), Some(NEW));
    bench.job_mut().status.as_mut().unwrap().previous_desired_update =
        Some(serde_json::from_value(json!({"version": before, "image": image(before)})).unwrap());
    bench.condition("ReleaseAccepted", "False", "version=\"4.18.5\"");
    bench.settle_at(20);
    bench.settle_at(20 + 3600);
    assert_ended(&bench, "UpgradeRejected");
    assert_eq!(bench.desired().as_deref(), after);
}

#[test]
fn desired_update_cleared_after_acceptance_goes_on() {
    let mut bench = accepted(json!({}));
    bench.world.cluster_version.as_mut().unwrap().spec.desired_update = None;
    bench.settle_at(30);
    assert!(
        bench.message().contains("someone removed spec.desiredUpdate"),
        "{}",
        bench.message()
    );
    bench.condition(
        "Progressing",
        "True",
        "Working towards 4.18.5: 700 of 800 done (87% complete)",
    );
    bench.settle_at(40);
    let warned = bench.reasons.iter().filter(|r| *r == "DesiredUpdateChanged");
    assert_eq!(warned.count(), 1, "said once");
    bench.complete();
    bench.settle_at(60);
    bench.assert_succeeded();
}

#[test]
fn a_timeout_in_mid_upgrade_leaves_pending_pools_paused() {
    let mut bench = accepted(held());
    bench.settle_at(12 * 3600 - 1);
    // The hold's own limit comes first.
    assert_ended(&bench, "UnpausingPoolsExpired");
    assert!(
        bench.message().contains("hold-night") || bench.message().contains("await-control-plane"),
        "{}",
        bench.message()
    );
    assert!(
        bench.world.pool("night").unwrap().spec.paused,
        "the control plane is unsettled"
    );
    assert_eq!(bench.status().paused_pools[0].name, "night");
    assert_eq!(bench.is_true("PoolsLeftPaused").as_deref(), Some("Orphaned"));
    assert_eq!(
        bench.desired().as_deref(),
        Some(NEW),
        "accepted already: never withdrawn"
    );
}

#[test]
fn done_beats_failed_at_the_deadline() {
    let mut bench = accepted(json!({"spec": {"config": {"upgradeTimeout": "2h"}}}));
    bench.complete();
    // Nobody could look until the deadline was over; the last steps are only still to be recorded.
    bench.settle_at(7300);
    bench.assert_succeeded();
}

#[test]
fn an_unpause_that_comes_too_late_does_not_happen() {
    let mut bench = Bench::new(job("j", held())).completed();
    // The hold is over in the engine, then nobody looks until delayMax has passed.
    bench.now = 1800;
    while bench.step("hold-night").is_some_and(|s| !s.phase.is_finished()) {
        bench.pass();
    }
    bench.settle_at(3601);
    assert_ended(&bench, "UnpausingPoolsExpired");
    assert!(bench.world.pool("night").unwrap().spec.paused);
    assert_eq!(bench.count(|a| matches!(a, Action::UnpausePool { .. })), 0);
}

#[test]
fn an_upgrade_does_not_start_in_the_pass_that_ends_the_job() {
    let mut bench = Bench::new(job("j", json!({"spec": {"config": {"upgradeTimeout": "2h"}}})));
    while bench.step("pause-pools").is_none_or(|s| !s.phase.is_finished()) {
        assert!(bench.pass());
    }
    bench.settle_at(7200);
    assert_ended(&bench, "TimedOut");
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), 0);
    assert_eq!(bench.status().desired_update, None);
}

#[test]
fn a_failure_before_anything_was_touched_pauses_no_pool() {
    let patch = json!({"spec": {"config": {"pauseMachineConfigPoolsOnFailure": {"enabled": true}}}});
    let mut bench = Bench::new(job("j", patch));
    bench.accept();
    bench.settle_at(10);
    bench.settle_at(3610);
    assert_ended(&bench, "PreHealthCheckFailed");
    assert_eq!(bench.count(|a| matches!(a, Action::PausePool { .. })), 0);
}

#[test]
fn a_rejection_that_flaps_does_not_start_its_grace_anew() {
    let mut bench = asked(json!({}));
    for n in 1..=13 {
        bench.condition(
            "ReleaseAccepted",
            if n % 2 == 0 { "Unknown" } else { "False" },
            "version=\"4.18.5\"",
        );
        bench.settle_at(n * 55);
    }
    assert_ended(&bench, "UpgradeRejected");
}

#[test]
fn a_hook_that_is_edited_later_does_not_fire_for_jobs_of_the_past() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.settle_at(3600);
    assert_eq!(bench.status().phase, Some(JobPhase::Skipped));
    bench.world.hooks = vec![hook("late", "Finish", "Ignore")];
    bench.settle_at(7200);
    assert!(bench.world.hook_jobs.is_empty());
}

#[test]
fn an_unreadable_holder_keeps_its_lock() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.world.unreadable = vec![Unreadable::named(Kind::UpgradeJob, "other")];
    let cluster = bench.world.cluster_version.as_mut().unwrap();
    cluster.metadata.annotations = Some(
        [(annotations::UPGRADE_JOB.to_owned(), "ns/other".to_owned())]
            .into_iter()
            .collect(),
    );
    bench.settle_at(10);
    assert!(!bench.acted.contains(&Action::TakeLock));
}

#[test]
fn a_later_job_takes_over_what_an_ended_one_left_paused() {
    let mut bench = Bench::new(job("j", held()));
    let pool = bench.pool_mut("night");
    pool.spec.paused = true;
    pool.metadata.annotations = Some(
        [(annotations::UPGRADE_JOB.to_owned(), "ns/earlier".to_owned())]
            .into_iter()
            .collect(),
    );
    bench.settle_at(10);
    assert!(bench.acted.contains(&Action::PausePool {
        pool: "night".into(),
        reason: PauseReason::Delay
    }));
    assert_eq!(bench.status().paused_pools[0].name, "night");
}

#[test]
fn pools_are_paused_on_failure_where_asked_for() {
    let patch = json!({"spec": {"config": {"upgradeTimeout": "1h", "pauseMachineConfigPoolsOnFailure": {"enabled": true}}}});
    let mut bench = accepted(patch);
    bench.settle_at(3600);
    assert_ended(&bench, "TimedOut");
    assert!(
        bench.world.pool("worker").unwrap().spec.paused && bench.world.pool("night").unwrap().spec.paused
    );
    assert!(!bench.world.pool("master").unwrap().spec.paused);
    // A person lifts it, and it stays lifted.
    bench.pool_mut("worker").spec.paused = false;
    bench.settle_at(3700);
    assert!(!bench.world.pool("worker").unwrap().spec.paused);
}

#[test]
fn a_workflow_that_vanishes_is_rendered_again_without_what_is_done() {
    let mut bench = asked(json!({}));
    bench.workflow = None;
    bench.settle_at(20);
    let status = bench.status();
    assert_eq!(status.workflow.unwrap().name, "j-run-2");
    let plan = Plan::from_value(&status.plan.unwrap()).unwrap();
    assert!(plan.step("set-desired-update").is_none() && plan.step("await-control-plane").is_some());
    bench.accept();
    bench.complete();
    bench.settle_at(60);
    bench.assert_succeeded();
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), 1);
}

/// Whether the engine ends the step of the hook by itself, as Argo does, or leaves that to the operator, as Tekton does.
#[rstest]
#[case::stopped(StopRequest::Stop, NodePhase::Running, "stopped")]
#[case::terminated(StopRequest::Terminate, NodePhase::Failed, "terminated")]
fn who_stops_the_hooks_of_create_wants_no_upgrade(
    #[case] stop: StopRequest,
    #[case] shown: NodePhase,
    #[case] how: &str,
) {
    let mut bench = Bench::new(job("j", json!({})));
    bench.world.hooks = vec![hook("a", "Create", "Ignore"), hook("sorry", "Failure", "Ignore")];
    bench.settle_at(-60);
    bench.run_mut().stop = Some(stop);
    bench.run_mut().nodes[0].phase = shown;
    bench.settle_at(-50);
    let failed = bench.is_true("Failed");
    assert_eq!(failed.as_deref(), Some("WorkflowStopped"), "{}", bench.message());
    let said = format!("the workflow was {how} by a person. ");
    assert!(bench.message().starts_with(&said), "{}", bench.message());
    assert_eq!(bench.hooks_run(), ["Create:", "Failure:WorkflowStopped"]);
    bench.settle_at(10);
    assert!(bench.is_true("Started").is_none());
}

/// A workflow that is removed at once when it has ended: what was last seen of it tells a stop from a deletion.
#[rstest]
#[case::stopped(Some(StopRequest::Stop), "stopped by a person")]
#[case::terminated(Some(StopRequest::Terminate), "terminated by a person")]
#[case::deleted(None, "j-run-2")]
fn one_that_was_stopped_and_vanished_at_once_was_stopped(
    #[case] stop: Option<StopRequest>,
    #[case] expected: &str,
) {
    let mut bench = asked(json!({}));
    let (_, run) = bench.workflow.take().unwrap();
    bench.gone = Some(Run { stop, ..run });
    bench.settle_at(20);
    if stop.is_some() {
        assert_eq!(bench.is_true("Failed").as_deref(), Some("WorkflowStopped"));
        assert!(bench.message().contains(expected), "{}", bench.message());
    } else {
        assert_eq!(bench.status().workflow.unwrap().name, expected);
    }
    assert!(!bench.is_locked() || stop.is_none());
}

#[test]
fn a_lost_lock_stops_everything() {
    let mut bench = asked(held());
    bench.world.cluster_version.as_mut().unwrap().metadata.annotations = None;
    let before = bench.acted.len();
    bench.settle_at(20);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("LockLost"));
    let after: Vec<_> = bench.acted.get(before..).unwrap().iter().collect();
    assert!(
        matches!(
            after.as_slice(),
            [Action::WithdrawDesiredUpdate { .. }, Action::Unprotect]
        ),
        "only what we asked for is taken back: {after:?}"
    );
    assert!(bench.world.pool("night").unwrap().spec.paused);
}

fn delete(bench: &mut Bench, now: i64) {
    bench.job_mut().metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(now)));
    bench.settle_at(now);
}

#[test]
fn deletion_before_acceptance_gives_everything_back_and_runs_no_hook() {
    let mut bench = asked(held());
    bench.world.hooks = vec![hook("f", "Failure", "Ignore")];
    delete(&mut bench, 30);
    assert_eq!(bench.desired(), None);
    assert!(!bench.is_locked() && !bench.world.pool("night").unwrap().spec.paused);
    assert!(bench.acted.contains(&Action::StopWorkflow));
    assert!(bench.job().metadata.finalizers.is_none() && bench.world.hook_jobs.is_empty());
}

#[test]
fn deletion_in_mid_upgrade_leaves_the_upgrade_and_pending_pools_alone() {
    let mut bench = accepted(held());
    delete(&mut bench, 30);
    assert_eq!(bench.desired().as_deref(), Some(NEW));
    assert!(bench.world.pool("night").unwrap().spec.paused);
    assert!(!bench.is_locked() && bench.job().metadata.finalizers.is_none());
}

#[test]
fn deletion_of_a_job_that_never_started_is_immediate() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.settle_at(-60);
    delete(&mut bench, -50);
    assert!(bench.acted.is_empty());
}

#[test]
fn an_unreadable_plan_is_said_and_still_times_out() {
    let mut bench = asked(json!({}));
    bench.job_mut().status.as_mut().unwrap().plan =
        Some(json!({"version": 99, "run": {"kind": "main", "attempt": 1}, "steps": []}));
    let decision = crate::lifecycle::decide(&crate::lifecycle::Input {
        world: &bench.world,
        answers: &bench.answers,
        drains: &bench.drains,
        hook_pods: &bench.hook_pods,
        templates: &bench.templates,
        job: bench.job(),
        others: &[],
        run: &RunState::Absent,
        engine: &bench.engine,
        settings: &bench.settings,
        now: at(20),
    });
    assert!(decision.actions.is_empty());
    assert!(decision.status.message.unwrap().contains("version 99"));
}

#[rstest]
#[case::of_a_job_that_was_made_again_under_its_name("ns/j", Some("uid-of-old"), true)]
#[case::of_the_peer_which_writes_no_uid("ns/j", None, true)]
#[case::our_own("ns/j", Some("uid-j"), false)]
#[case::of_a_vanished_job("ns/gone", Some("uid-gone"), true)]
#[case::of_a_later_job_of_that_name("ns/other", Some("uid-of-old"), true)]
#[case::nonsense("someone", None, true)]
fn a_lock_without_a_job_is_taken_over(#[case] key: &str, #[case] uid: Option<&str>, #[case] taken: bool) {
    let mut bench = Bench::new(job("j", json!({"spec": {"startAfter": at(-1).to_string()}})));
    bench.world.jobs.push(job(
        "other",
        json!({"spec": {"startAfter": at(9000).to_string()}}),
    ));
    let annotations: std::collections::BTreeMap<String, String> = [
        (annotations::UPGRADE_JOB, Some(key)),
        (annotations::UPGRADE_JOB_UID, uid),
    ]
    .into_iter()
    .filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned())))
    .collect();
    bench.world.cluster_version.as_mut().unwrap().metadata.annotations = Some(annotations);
    bench.settle_at(10);
    // A lock that is ours already is not taken again.
    assert_eq!(
        bench.acted.contains(&Action::TakeLock),
        taken,
        "{}",
        bench.message()
    );
    assert!(bench.status().started_at.is_some(), "{}", bench.message());
}
