//! Start, steps, pools.

use rstest::rstest;
use serde_json::json;

use super::{
    bench::Bench,
    fixtures::{NEW, OLD, at, held, hook, image, job},
};
use crate::{
    api::{
        annotations,
        upgrade_job::{JobPhase, StepPhase},
    },
    engine::NodePhase,
    steps::Action,
};

/// Through the whole plan with the night pool held until minute 30.
fn to_hold() -> Bench {
    Bench::new(job("j", held())).completed()
}

#[test]
fn nothing_happens_before_the_start() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.settle_at(-60);
    assert!(bench.acted.is_empty());
    assert_eq!(bench.status().phase, Some(JobPhase::Pending));
    assert!(bench.message().starts_with("starts at "), "{}", bench.message());
    assert_eq!(bench.decide().wake_at, Some(at(0)));
}

#[test]
fn finalizer_then_lock_then_started_then_workflow() {
    let mut bench = Bench::new(job("j", json!({})));
    assert_eq!(bench.decide().actions, [Action::Protect]);
    bench.pass();
    assert_eq!(bench.decide().actions, [Action::TakeLock]);
    bench.pass();
    let decision = bench.decide();
    assert!(decision.actions.is_empty());
    assert!(decision.status.plan.is_some() && decision.status.started_at.is_some());
    bench.pass();
    assert_eq!(bench.decide().actions, [Action::CreateWorkflow]);
    assert_eq!(bench.status().workflow.unwrap().name, "j-run-1");
}

#[test]
fn a_whole_upgrade_with_a_held_pool() {
    let mut bench = to_hold();
    assert_eq!(bench.status().phase, Some(JobPhase::Paused));
    assert_eq!(bench.is_true("Paused").as_deref(), Some("DelaySet"));
    assert_eq!(bench.is_true("UpgradeCompleted").as_deref(), Some("Completed"));
    assert_eq!(bench.is_true("PostHealthCheckDone").as_deref(), Some("Completed"));
    assert!(bench.world.pool("night").unwrap().spec.paused);
    assert_eq!(bench.decide().wake_at, Some(at(1800)));

    bench.settle_at(1800);
    assert!(!bench.world.pool("night").unwrap().spec.paused);
    assert_eq!(bench.step("await-night").unwrap().phase, StepPhase::Running);
    bench.roll("night");
    bench.settle_at(1900);

    assert_eq!(bench.status().phase, Some(JobPhase::Succeeded));
    assert_eq!(bench.is_true("Succeeded").as_deref(), Some("Succeeded"));
    assert!(!bench.is_locked() && bench.job().metadata.finalizers.is_none());
    assert_eq!(
        bench.desired().as_deref(),
        Some(NEW),
        "an upgrade that is done is not withdrawn"
    );
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), 1);
    assert_eq!(bench.count(|a| matches!(a, Action::CreateWorkflow)), 1);
    assert!(
        bench.status().steps.iter().all(|s| s.phase.is_finished()),
        "{:#?}",
        bench.status().steps
    );
}

#[test]
fn the_same_upgrade_without_any_workflow() {
    let mut with = to_hold();
    let mut without = Bench::new(job("j", held())).embedded().completed();
    for bench in [&mut with, &mut without] {
        bench.settle_at(1800);
        bench.roll("night");
        bench.settle_at(1900);
    }
    assert_eq!(without.status().phase, Some(JobPhase::Succeeded));
    assert_eq!(
        without.status().steps,
        with.status().steps,
        "the same steps, times and messages"
    );
    assert_eq!(without.status().conditions, with.status().conditions);
    assert_eq!(without.count(|a| matches!(a, Action::CreateWorkflow)), 0);
    assert!(
        without
            .acted
            .iter()
            .eq(with.acted.iter().filter(|a| !matches!(a, Action::CreateWorkflow)))
    );
}

#[test]
fn without_any_workflow_a_failed_step_ends_the_job() {
    let mut bench = Bench::new(job("j", json!({}))).embedded();
    bench.world.hooks = vec![hook("c", "Create", "Ignore"), hook("guard", "Start", "Abort")];
    bench.settle_at(-60);
    bench.end_hook_jobs("Complete");
    bench.settle_at(10);
    bench.end_hook_jobs("Failed");
    bench.settle_at(20);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("HookFailed"));
    assert!(!bench.is_locked() && bench.desired().is_none());
}

#[test]
fn the_intent_is_on_record_before_the_write() {
    let mut bench = Bench::new(job("j", json!({})));
    let set = loop {
        let decision = bench.decide();
        if decision
            .actions
            .iter()
            .any(|a| matches!(a, Action::SetDesiredUpdate(_)))
        {
            break decision;
        }
        assert!(bench.pass(), "settled without setting desiredUpdate");
    };
    assert_eq!(set.status.desired_update.unwrap().image, Some(image(NEW)));
}

#[test]
fn a_job_without_version_is_a_run_of_hooks_and_pools() {
    let mut bench = Bench::new(job("j", json!({"spec": {"desiredVersion": null}})));
    bench.settle_at(10);
    bench.assert_succeeded();
    assert!(bench.step("set-desired-update").is_none());
    assert_eq!(bench.desired(), None);
}

#[test]
fn a_job_made_by_hand_finds_its_image() {
    let mut bench = Bench::new(job("j", json!({"spec": {"desiredVersion": {"image": null}}})));
    bench.settle_at(10);
    assert_eq!(bench.status().desired_update.unwrap().image, Some(image(NEW)));
}

#[test]
fn a_version_that_cannot_be_resolved_is_invalid_and_expires() {
    let mut bench = Bench::new(job(
        "j",
        json!({"spec": {"desiredVersion": {"version": "4.19.0", "image": null}}}),
    ));
    bench.settle_at(10);
    assert!(bench.acted.is_empty());
    assert!(bench.reasons.contains(&"Invalid".to_owned()));
    bench.settle_at(3600);
    assert_eq!(bench.is_true("Expired").as_deref(), Some("Invalid"));
    assert_eq!(bench.is_true("Succeeded").as_deref(), Some("Skipped"));
}

#[test]
fn of_two_due_jobs_the_earlier_goes_first_and_the_other_says_so() {
    let mut bench = Bench::new(job("second", json!({"spec": {"startAfter": at(1).to_string()}})));
    bench.world.jobs.push(job("first", json!({})));
    bench.settle_at(10);
    assert!(bench.acted.is_empty());
    assert!(bench.message().contains("first"), "{}", bench.message());
}

#[rstest]
#[case::gone(json!(null), true)]
#[case::under_way(json!({"metadata": {"finalizers": ["managedupgrade.appuio.io/release"]},
    "status": {"conditions": [{"type": "Started", "status": "True", "reason": "", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}), false)]
#[case::ended_and_not_released(json!({"metadata": {"finalizers": ["managedupgrade.appuio.io/release"]},
    "status": {"conditions": [{"type": "Failed", "status": "True", "reason": "", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}), false)]
#[case::ended_and_released(json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "",
    "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}), true)]
fn a_lock_is_taken_over_only_from_a_job_that_is_gone_or_done(
    #[case] other: serde_json::Value,
    #[case] taken: bool,
) {
    let mut bench = Bench::new(job("j", json!({})));
    if !other.is_null() {
        bench.world.jobs.push(job("other", other));
    }
    let cluster = bench.world.cluster_version.as_mut().unwrap();
    cluster.metadata.annotations = Some(
        [(annotations::UPGRADE_JOB.to_owned(), "ns/other".to_owned())]
            .into_iter()
            .collect(),
    );
    bench.settle_at(10);
    assert_eq!(
        bench.acted.contains(&Action::TakeLock),
        taken,
        "{}",
        bench.message()
    );
    if !taken {
        assert!(
            bench.message().contains("ns/other has the lock"),
            "{}",
            bench.message()
        );
        bench.settle_at(3600);
        assert_eq!(bench.is_true("Expired").as_deref(), Some("LockHeld"));
    }
}

#[test]
fn a_job_in_another_namespace_keeps_its_lock() {
    let mut bench = Bench::new(job("j", json!({})));
    let cluster = bench.world.cluster_version.as_mut().unwrap();
    cluster.metadata.annotations = Some(
        [(annotations::UPGRADE_JOB.to_owned(), "elsewhere/job".to_owned())]
            .into_iter()
            .collect(),
    );
    bench.settle_at(10);
    assert!(!bench.acted.contains(&Action::TakeLock));
}

#[test]
fn a_node_that_was_resumed_by_hand_reboots_nothing_early() {
    let mut bench = to_hold();
    let (_, run) = bench.workflow.as_mut().unwrap();
    let hold = run.nodes.iter_mut().find(|n| n.step == "hold-night").unwrap();
    hold.phase = NodePhase::Succeeded;
    hold.ended_by = Some("admin".into());
    bench.settle_at(130);
    assert!(bench.world.pool("night").unwrap().spec.paused);
    bench.settle_at(1800);
    assert!(!bench.world.pool("night").unwrap().spec.paused);
    let hold = bench.step("hold-night").unwrap();
    assert_eq!(hold.phase, StepPhase::Overridden);
    assert!(hold.message.unwrap().contains("admin"));
}

#[test]
fn a_health_check_that_a_person_ended_is_an_approval() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.condition("Failing", "True", "etcd is unhappy");
    bench.settle_at(10);
    assert_eq!(bench.desired(), None);
    let (_, run) = bench.workflow.as_mut().unwrap();
    let check = run
        .nodes
        .iter_mut()
        .find(|n| n.step == "pre-health-check")
        .unwrap();
    check.phase = NodePhase::Succeeded;
    check.ended_by = Some("admin".into());
    bench.settle_at(20);
    assert_eq!(bench.is_true("PreHealthCheckDone").as_deref(), Some("Overridden"));
    assert_eq!(bench.desired().as_deref(), Some(NEW));
    assert!(
        bench
            .step("pre-health-check")
            .unwrap()
            .message
            .unwrap()
            .contains("etcd is unhappy")
    );
}

#[test]
fn a_broken_canary_stops_the_held_pools() {
    let mut bench = to_hold();
    bench.condition("Failing", "True", "worker image is broken");
    bench.settle_at(1800);
    assert!(bench.world.pool("night").unwrap().spec.paused);
    assert!(
        bench.message().contains("worker image is broken"),
        "{}",
        bench.message()
    );
}

#[test]
fn a_pool_with_nothing_pending_is_not_held() {
    let mut bench = Bench::new(job("j", held())).accepted();
    bench.complete();
    bench.pool_mut("night").status.as_mut().unwrap().machine_count = 0;
    bench.settle_at(120);
    bench.assert_succeeded();
}

#[test]
fn a_pool_that_appears_later_is_paused_too() {
    let mut bench = Bench::new(job("j", held()));
    bench.settle_at(10);
    let mut late = bench.world.pool("worker").unwrap().clone();
    late.metadata.name = Some("night-2".into());
    late.metadata.labels = Some([("name".to_owned(), "night".to_owned())].into_iter().collect());
    bench.world.pools.push(late);
    bench.settle_at(20);
    assert!(bench.world.pool("night-2").unwrap().spec.paused);
}

#[test]
fn a_foreign_pause_is_left_alone_and_the_job_waits_at_its_end() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.pool_mut("worker").spec.paused = true;
    let mut bench = bench.completed();
    assert_eq!(bench.is_true("Paused").as_deref(), Some("ForeignPause"));
    assert!(bench.world.pool("worker").unwrap().spec.paused);
    bench.pool_mut("worker").spec.paused = false;
    bench.roll("worker");
    bench.settle_at(200);
    bench.assert_succeeded();
}

#[test]
fn a_delay_that_is_taken_out_in_mid_run_gives_the_pool_back() {
    let mut bench = to_hold();
    bench.job_mut().spec.config.machine_config_pools[0].delay_upgrade = None;
    bench.settle_at(130);
    assert!(!bench.world.pool("night").unwrap().spec.paused);
    assert_eq!(
        bench.status().phase,
        Some(JobPhase::Running),
        "night is not done: {}",
        bench.message()
    );
    bench.roll("night");
    bench.settle_at(200);
    bench.assert_succeeded();
}

#[test]
fn a_workflow_that_vanishes_after_its_last_step_does_not_matter() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.pool_mut("worker").spec.paused = true;
    let mut bench = bench.completed();
    bench.workflow = None;
    bench.settle_at(130);
    bench.pool_mut("worker").spec.paused = false;
    bench.roll("worker");
    bench.settle_at(200);
    bench.assert_succeeded();
}

#[test]
fn a_job_that_is_due_earlier_and_cannot_start_does_not_take_the_window_of_others() {
    let mut bench = Bench::new(job("second", json!({"spec": {"startAfter": at(1).to_string()}})));
    bench.world.jobs.push(job("first", json!({})));
    bench.settle_at(10);
    assert!(bench.acted.is_empty());
    bench.settle_at(121);
    assert!(bench.acted.contains(&Action::TakeLock));
}

#[test]
fn a_stale_render_is_not_done() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.settle_at(10);
    bench.accept();
    bench.complete();
    bench
        .world
        .rendered
        .insert("rendered-worker-2".into(), OLD.into());
    bench.settle_at(60);
    assert!(
        bench
            .message()
            .contains("worker: not rendered for the new version yet"),
        "{}",
        bench.message()
    );
}

#[test]
fn hooks_run_once_and_an_ignored_failure_changes_nothing() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.world.hooks = vec![
        hook("a", "Create", "Abort"),
        hook("b", "Start", "Ignore"),
        hook("z", "Finish", "Abort"),
    ];
    bench.settle_at(-60);
    assert_eq!(bench.status().workflow.unwrap().name, "j-create-1");
    assert_eq!(bench.world.hook_jobs.len(), 1);
    bench.settle_at(0);
    assert!(
        bench.message().contains("hooks of Create are still running"),
        "{}",
        bench.message()
    );
    bench.end_hook_jobs("Complete");
    bench.settle_at(2);
    assert_eq!(bench.status().workflow.unwrap().name, "j-run-1");
    assert_eq!(bench.world.hook_jobs.len(), 2);
    bench.end_hook_jobs("Failed");
    bench.settle_at(3);
    bench.accept();
    bench.complete();
    bench.settle_at(60);
    bench.assert_succeeded();
    assert_eq!(bench.world.hook_jobs.len(), 3, "Finish ran");
    bench.end_hook_jobs("Failed");
    bench.settle_at(61);
    assert_eq!(
        bench.status().phase,
        Some(JobPhase::Succeeded),
        "exit hooks never change the outcome"
    );
    let finish = bench.step("hook-finish-z").unwrap();
    assert!(
        finish.message.unwrap().contains("told to"),
        "the failure is shown"
    );
}

#[test]
fn a_job_that_is_due_when_it_is_created_runs_its_create_hooks_first() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.world.hooks = vec![hook("a", "Create", "Ignore")];
    bench.settle_at(1);
    assert_eq!(bench.status().workflow.unwrap().name, "j-create-1");
    assert!(
        bench.message().contains("hooks of Create are still running"),
        "{}",
        bench.message()
    );
    bench.end_hook_jobs("Complete");
    bench.settle_at(2);
    bench.world.hooks.push(hook("late", "Create", "Ignore"));
    bench.settle_at(3);
    assert_eq!(bench.status().workflow.unwrap().name, "j-run-1");
    assert_eq!(
        bench.world.hook_jobs.len(),
        1,
        "a hook that appears after the start comes too late"
    );
}

#[test]
fn a_job_that_is_skipped_runs_no_create_hooks_any_more() {
    let mut bench = Bench::new(job("j", json!({})));
    bench.world.hooks = vec![hook("a", "Create", "Ignore")];
    bench.world.windows = vec![
        serde_json::from_value(json!({
            "metadata": {"name": "freeze", "namespace": "ns"},
            "spec": {"start": at(0).to_string(), "end": at(9).to_string(), "reason": "r", "jobSelector": {}},
        }))
        .unwrap(),
    ];
    bench.settle_at(1);
    assert_eq!(bench.status().phase, Some(JobPhase::Skipped));
    assert_eq!(bench.world.hook_jobs.len(), 0);
}

#[test]
fn a_decision_is_the_same_twice() {
    let bench = to_hold();
    assert_eq!(bench.decide(), bench.decide());
}
