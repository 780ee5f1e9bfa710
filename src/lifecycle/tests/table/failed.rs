//! Jobs that fail.

use super::*;

fn unhealthy() -> Bench {
    let mut bench = plain();
    bench.condition("Failing", "True", "etcd is unhappy");
    bench.settle_at(10);
    bench.settle_at(3610);
    bench
}

fn moving_cluster() -> Bench {
    let mut bench = plain();
    bench.ask_for("4.18.4");
    bench.settle_at(10);
    bench.settle_at(3610);
    bench
}

fn not_offered(available: Value, conditional: Value, retrieved: &str, at: i64) -> Bench {
    let mut bench = plain();
    bench.condition("RetrievedUpdates", retrieved, "no route to host");
    let cluster = bench.world.cluster_version.as_mut().unwrap();
    let status = cluster.status.as_mut().unwrap();
    status.available_updates = serde_json::from_value(available).unwrap();
    status.conditional_updates = serde_json::from_value(conditional).unwrap();
    bench.settle_at(10);
    bench.settle_at(at);
    bench
}

fn withdrawn() -> Bench {
    not_offered(json!([]), json!([]), "True", 10)
}

/// On the wire an empty list is null.
fn withdrawn_with_null() -> Bench {
    not_offered(json!(null), json!([]), "True", 10)
}

fn conditional() -> Bench {
    let risky = json!([{"release": {"version": NEW, "image": image(NEW)}, "risks": [{"name": "BadDisk"}]}]);
    not_offered(json!([]), risky, "True", 3600)
}

fn update_service_silent() -> Bench {
    not_offered(json!(null), json!([]), "False", 3600)
}

fn refused(type_: &str, status: &str, after: i64) -> Bench {
    let mut bench = plain().asked();
    bench.condition(type_, status, "version=\"4.18.5\" is not verified");
    bench.settle_at(20);
    bench.settle_at(20 + after);
    bench
}

fn target_changed() -> Bench {
    let mut bench = plain().accepted();
    bench.ask_for("4.18.6");
    bench.settle_at(30);
    bench
}

fn target_removed_before_acceptance() -> Bench {
    let mut bench = plain().asked();
    bench.world.cluster_version.as_mut().unwrap().spec.desired_update = None;
    bench.settle_at(30);
    bench
}

/// Between our write and the look at what came of it.
fn target_changed_at_once() -> Bench {
    let mut bench = plain();
    bench.now = 10;
    while bench.desired().is_none() {
        assert!(bench.pass());
    }
    bench.ask_for("4.18.6");
    bench.settle();
    bench
}

fn timed_out() -> Bench {
    let mut bench = bench(&json!({"spec": {"config": {"upgradeTimeout": "50m"}}})).accepted();
    bench.settle_at(3000);
    bench
}

fn unpausing_expired() -> Bench {
    let mut bench = plain().accepted();
    bench.settle_at(3600);
    assert_eq!(bench.is_true("Failed"), None, "in time is in time");
    bench.settle_at(3601);
    bench
}

fn unhealthy_afterwards() -> Bench {
    let mut bench =
        bench(&json!({"spec": {"config": {"postUpgradeHealthChecks": {"timeout": "5m"}}}})).accepted();
    bench.complete();
    bench.condition("Failing", "True", "etcd is unhappy");
    bench.settle_at(100);
    bench.settle_at(400);
    bench
}

fn abort(event: &str) -> Bench {
    let mut bench = plain();
    bench.world.hooks.push(hook("guard", event, "Abort"));
    bench.hooks_end = None;
    bench
}

fn abort_at_create() -> Bench {
    let mut bench = abort("Create");
    bench.settle_at(-60);
    bench.end_hook_jobs("Failed");
    bench.hooks_end = Some("Complete");
    bench.settle_at(-50);
    bench
}

fn abort_at_start() -> Bench {
    let mut bench = abort("Start");
    bench.settle_at(10);
    bench.end_hook_jobs("Failed");
    bench.hooks_end = Some("Complete");
    bench.settle_at(20);
    bench
}

fn stopped(how: StopRequest) -> Bench {
    let mut bench = plain().accepted();
    let (_, run) = bench.workflow.as_mut().unwrap();
    run.stop = Some(how);
    run.stopped_by = Some("admin".into());
    bench.settle_at(30);
    bench
}

fn stopped_before_acceptance() -> Bench {
    let mut bench = plain().asked();
    let (_, run) = bench.workflow.as_mut().unwrap();
    run.stop = Some(StopRequest::Stop);
    bench.settle_at(30);
    bench
}

fn workflow_vanishes_for_ever() -> Bench {
    let mut bench = plain().accepted();
    bench.settings.engine_handover_after = None;
    for n in 0..6 {
        bench.workflow = None;
        bench.settle_at(30 + n);
    }
    bench
}

#[rstest]
#[case::pre_health(unhealthy(), "PreHealthCheckFailed", "etcd is unhappy", &UNTOUCHED)]
#[case::never_on_a_moving_cluster(moving_cluster(), "PreHealthCheckFailed", "4.18.4 is asked for by someone else",
    &Left { desired: Some("4.18.4"), paused: &[] })]
#[case::version_gone(withdrawn(), "UpgradeWithdrawn", "4.18.5 is no longer offered", &UNTOUCHED)]
#[case::version_gone_null(withdrawn_with_null(), "UpgradeWithdrawn", "4.18.5 is no longer offered", &UNTOUCHED)]
#[case::conditional_now(conditional(), "UpgradeConditional", "BadDisk", &UNTOUCHED)]
#[case::update_server_silent(update_service_silent(), "UpdateServiceUnavailable", "no route to host", &UNTOUCHED)]
#[case::rejected(refused("ReleaseAccepted", "False", 600), "UpgradeRejected", "is not verified", &UNTOUCHED)]
#[case::invalid(refused("Invalid", "True", 0), "UpgradeInvalid", "is not verified", &UNTOUCHED)]
#[case::another_target(target_changed(), "DesiredUpdateChanged", "from 4.18.5 to 4.18.6",
    &Left { desired: Some("4.18.6"), paused: &["night"] })]
#[case::another_target_at_once(target_changed_at_once(), "DesiredUpdateChanged", "from 4.18.5 to 4.18.6",
    &Left { desired: Some("4.18.6"), paused: &["night"] })]
#[case::target_removed(target_removed_before_acceptance(), "DesiredUpdateChanged", "removed", &UNTOUCHED)]
#[case::upgrade_timeout(timed_out(), "TimedOut", "await-control-plane (62% done, waiting on etcd)", &UNDER_WAY)]
#[case::pool_not_unpaused_by_delay_max(unpausing_expired(), "UnpausingPoolsExpired", "held by await-control-plane", &UNDER_WAY)]
#[case::post_health(unhealthy_afterwards(), "PostHealthCheckFailed", "etcd is unhappy", &UNDER_WAY)]
#[case::abort_hook_of_create(abort_at_create(), "HookFailed", "guard", &UNTOUCHED)]
#[case::abort_hook_of_start(abort_at_start(), "HookFailed", "guard", &UNTOUCHED)]
#[case::workflow_stopped(stopped(StopRequest::Stop), "WorkflowStopped", "stopped by admin", &UNDER_WAY)]
#[case::workflow_terminated(stopped(StopRequest::Terminate), "WorkflowStopped", "terminated by admin", &UNDER_WAY)]
#[case::workflow_stopped_early(stopped_before_acceptance(), "WorkflowStopped", "stopped by a person", &UNTOUCHED)]
#[case::workflow_vanishes(workflow_vanishes_for_ever(), "WorkflowStopped", "rendered 5 times", &UNDER_WAY)]
fn failed(#[case] bench: Bench, #[case] reason: &str, #[case] says: &str, #[case] left: &Left) {
    assert_eq!(
        bench.status().phase,
        Some(JobPhase::Failed),
        "{}",
        bench.message()
    );
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some(reason),
        "{}",
        bench.message()
    );
    assert_eq!(
        (bench.is_true("Succeeded"), bench.is_true("Expired")),
        (None, None)
    );
    assert!(bench.message().contains(says), "{}", bench.message());
    let hooks = bench.hooks_run();
    let (before, exit) = hooks.split_at(hooks.len() - 2);
    assert_eq!(exit, [format!("Failure:{reason}"), format!("Finish:{reason}")]);
    assert!(
        before
            .iter()
            .all(|h| !h.starts_with('F') && !h.starts_with("Success")),
        "each once: {hooks:?}"
    );
    assert_left(&bench, left);
    // The intent was taken back where it was set and the upgrade had not begun.
    let is_ours_gone =
        bench.status().desired_update.is_some() && left.desired.is_none() && reason != "DesiredUpdateChanged";
    assert_eq!(bench.is_true("IntentWithdrawn").is_some(), is_ours_gone);
}

#[test]
fn lock_lost() {
    let mut bench = plain().accepted();
    bench.world.cluster_version.as_mut().unwrap().metadata.annotations =
        Some([(annotations::UPGRADE_JOB.to_owned(), "ns/other".to_owned())].into());
    bench.world.jobs.push(started("other"));
    let before = bench.acted.len();
    bench.settle_at(30);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("LockLost"));
    assert!(
        bench.message().contains("taken by ns/other"),
        "{}",
        bench.message()
    );
    assert_eq!(bench.hooks_run()[1..], ["Failure:LockLost", "Finish:LockLost"]);
    assert_eq!(
        (bench.desired().as_deref(), bench.paused()),
        (Some(NEW), vec!["night"])
    );
    let touched = bench.acted[before..].iter().filter(|a| {
        !matches!(
            a,
            crate::steps::Action::CreateHookJob(_)
                | crate::steps::Action::ReleaseHookRun(_)
                | crate::steps::Action::Unprotect
        )
    });
    assert_eq!(touched.count(), 0, "it stops acting");
}
