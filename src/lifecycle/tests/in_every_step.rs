//! What can happen at any time, in every step of the plan: the timeout, another target, edits by people.

use jiff::SignedDuration;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    bench::Bench,
    fixtures::{NEW, at, hook, job},
};
use crate::{
    api::{GoDuration, labels, upgrade_job::StepPhase},
    steps::Action,
};

/// The job fails at two hours; night is held from minute 90, and no check gives up before.
fn patient() -> Value {
    json!({
        "metadata": {"labels": {labels::UPGRADE_CONFIG: "c", labels::START: at(0).as_second().to_string()}},
        "spec": {"startBefore": at(6 * 3600).to_string(), "config": {
            "upgradeTimeout": "2h",
            "preUpgradeHealthChecks": {"timeout": "10h"}, "postUpgradeHealthChecks": {"timeout": "10h"},
            "machineConfigPools": [{"matchLabels": {"name": "night"}, "delayUpgrade": {"delayMin": "90m"}}],
        }},
    })
}

/// Hooks of these events run until they are told to end.
fn with_hooks(events: &[&str]) -> Bench {
    let mut bench = Bench::new(job("j", patient()));
    bench.world.hooks = events.iter().map(|e| hook("h", e, "Ignore")).collect();
    bench
}

fn unhealthy(bench: &mut Bench) {
    bench.condition("Failing", "True", "etcd is unhappy");
}

fn set_updated(bench: &mut Bench, pool: &str, count: i64) {
    bench
        .pool_mut(pool)
        .status
        .as_mut()
        .unwrap()
        .updated_machine_count = count;
}

/// A job that has come to this step and no further.
fn stuck_in(step: &str) -> Bench {
    let mut bench = match step {
        "hook-start-h" => with_hooks(&["Start"]),
        "hook-upgrade-complete-h" => with_hooks(&["UpgradeComplete"]),
        "hook-unpause-night-h" => with_hooks(&["MachineConfigPoolUnpause"]),
        _ => with_hooks(&[]),
    };
    match step {
        "hook-start-h" => bench.settle_at(10),
        "pre-health-check" => {
            unhealthy(&mut bench);
            bench.settle_at(10);
        }
        "set-desired-update" => {
            bench.condition("RetrievedUpdates", "False", "no route to host");
            let cluster = bench.world.cluster_version.as_mut().unwrap();
            cluster.status.as_mut().unwrap().available_updates = None;
            bench.settle_at(10);
        }
        "await-control-plane" => bench = bench.accepted(),
        "await-pools" => {
            bench = bench.accepted();
            bench.complete();
            set_updated(&mut bench, "worker", 1);
            bench.settle_at(120);
        }
        "post-health-check" => {
            bench = bench.accepted();
            bench.complete();
            unhealthy(&mut bench);
            bench.settle_at(120);
        }
        _ => bench = bench.completed(),
    }
    match step {
        "hook-unpause-night-h" => bench.settle_at(5400),
        "await-night" => {
            bench.settle_at(5400);
            bench.settle_at(5500);
        }
        "final-health-check" => {
            bench.settle_at(5400);
            bench.roll("night");
            unhealthy(&mut bench);
            bench.settle_at(5500);
        }
        _ => {}
    }
    let status = bench.status();
    let running: Vec<&str> = status
        .steps
        .iter()
        .filter(|s| s.phase == StepPhase::Running)
        .map(|s| s.name.as_str())
        .collect();
    assert!(
        running.contains(&step),
        "{step} is not among {running:?}: {}",
        bench.message()
    );
    bench
}

/// Whatever the step waited for comes.
fn let_go_on(bench: &mut Bench, step: &str) {
    bench.condition("Failing", "False", "");
    bench.condition("RetrievedUpdates", "True", "");
    bench.hooks_end = Some("Complete");
    bench.end_hook_jobs("Complete");
    bench.settle();
    if bench.desired().is_some()
        && bench
            .world
            .cluster_version
            .as_ref()
            .unwrap()
            .newest()
            .unwrap()
            .version
            != NEW
    {
        bench.accept();
        bench.settle();
    }
    if [
        "hook-start-h",
        "pre-health-check",
        "set-desired-update",
        "await-control-plane",
    ]
    .contains(&step)
    {
        bench.complete();
    }
    set_updated(bench, "worker", 2);
    bench.settle();
    bench.settle_at(5600);
    if !bench.world.pool("night").unwrap().spec.paused {
        bench.roll("night");
    }
    bench.settle_at(5700);
}

#[rstest]
#[case("hook-start-h")]
#[case("pre-health-check")]
#[case("await-control-plane")]
#[case("await-pools")]
#[case("post-health-check")]
#[case("hook-upgrade-complete-h")]
#[case("hold-night")]
#[case("hook-unpause-night-h")]
#[case("await-night")]
#[case("final-health-check")]
fn the_upgrade_timeout_ends_the_job_and_names_the_step(#[case] step: &str) {
    let mut bench = stuck_in(step);
    if step == "hold-night" {
        // It would be over at minute 90; a broken canary keeps it.
        unhealthy(&mut bench);
    }
    bench.settle_at(7199);
    assert_eq!(bench.is_true("Failed"), None, "{}", bench.message());
    bench.settle_at(7200);
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some("TimedOut"),
        "{}",
        bench.message()
    );
    let message = bench.message();
    // A hook is told with the step that waits for it.
    assert!(
        message.contains("not done 2h after startAfter") && message.contains(step),
        "{message}"
    );
    assert!(!bench.is_locked() && bench.job().metadata.finalizers.is_none());
    let ran = bench.desired().is_some();
    assert_eq!(ran, !["hook-start-h", "pre-health-check"].contains(&step));
    let is_unpaused = !bench.world.pool("night").unwrap().spec.paused;
    // A held pool waits for its own time and for health, not for the other pools nor for hooks.
    let was_released = [
        "await-pools",
        "hook-upgrade-complete-h",
        "await-night",
        "final-health-check",
    ]
    .contains(&step);
    assert_eq!(is_unpaused, was_released || !ran, "night reboots at no ending");
}

#[test]
fn the_upgrade_timeout_bounds_the_wait_for_a_version() {
    let mut bench = stuck_in("set-desired-update");
    bench.settle_at(7200);
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some("UpdateServiceUnavailable"),
        "more exact than TimedOut"
    );
}

#[rstest]
#[case("await-control-plane")]
#[case("await-pools")]
#[case("post-health-check")]
#[case("hook-upgrade-complete-h")]
#[case("hold-night")]
#[case("hook-unpause-night-h")]
#[case("await-night")]
#[case("final-health-check")]
fn another_target_ends_the_job_and_is_left_alone(#[case] step: &str) {
    let mut bench = stuck_in(step);
    let unpaused = bench.count(|a| matches!(a, Action::UnpausePool { .. }));
    bench.ask_for("4.18.6");
    bench.settle_at(bench.now + 10);
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some("DesiredUpdateChanged"),
        "{}",
        bench.message()
    );
    assert_eq!(bench.desired().as_deref(), Some("4.18.6"));
    assert!(!bench.is_locked());
    assert_eq!(
        bench.count(|a| matches!(a, Action::UnpausePool { .. })),
        unpaused,
        "the cluster moves again: nothing is unpaused"
    );
}

#[rstest]
#[case("hook-start-h")]
#[case("pre-health-check")]
#[case("set-desired-update")]
fn another_target_before_ours_was_set_keeps_it_from_being_set(#[case] step: &str) {
    let mut bench = stuck_in(step);
    bench.ask_for("4.18.4");
    bench.condition("Failing", "False", "");
    bench.condition("RetrievedUpdates", "True", "");
    bench.end_hook_jobs("Complete");
    bench.settle_at(60);
    assert!(
        bench.message().contains("4.18.4 is asked for by someone else"),
        "{}",
        bench.message()
    );
    bench.settle_at(7200);
    assert!(bench.is_true("Failed").is_some());
    assert_eq!(bench.desired().as_deref(), Some("4.18.4"));
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), 0);
}

/// Somebody upgraded beyond our version while the job waited: it does not go back, whether or not it looks at what is offered.
#[rstest]
fn a_newer_version_that_was_installed_before_ours_was_set_skips_the_job(
    #[values("hook-start-h", "pre-health-check", "set-desired-update")] step: &str,
    #[values(true, false)] checks: bool,
    #[values(true, false)] may_go_back: bool,
) {
    let mut bench = stuck_in(step);
    let spec = &mut bench.job_mut().spec;
    spec.desired_version_check_availability = Some(checks);
    spec.allow_downgrade = Some(may_go_back);
    let cluster = bench.world.cluster_version.as_mut().unwrap();
    let newest = &mut cluster.status.as_mut().unwrap().history[0];
    (newest.version, newest.image) = ("4.18.6".to_owned(), super::fixtures::image("4.18.6"));
    bench.settle_at(60);
    let outcome = (bench.is_true("Succeeded"), bench.is_true("Failed"));
    if may_go_back {
        assert_eq!(outcome.0, None, "{}", bench.message());
        return;
    }
    assert_eq!(outcome, (Some("Skipped".to_owned()), None), "{}", bench.message());
    assert!(bench.message().starts_with("Superseded: "), "{}", bench.message());
    assert_eq!(bench.count(|a| matches!(a, Action::SetDesiredUpdate(_))), 0);
    assert!(!bench.is_locked());
}

fn config(cron: &str, suspend: bool) -> crate::api::UpgradeConfig {
    serde_json::from_value(json!({
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"schedule": {"cron": cron, "suspend": suspend}, "jobTemplate": {"spec": {"config": {}}}},
    }))
    .unwrap()
}

/// What people do to the config, its windows and hooks meanwhile.
#[derive(Clone, Copy, Debug)]
enum Edit {
    ConfigDeleted,
    ConfigSuspended,
    ConfigRescheduled,
    WindowAdded,
    HooksDeleted,
}

#[rstest]
fn a_running_job_is_not_touched_by_edits(
    #[values(
        "hook-start-h",
        "pre-health-check",
        "await-control-plane",
        "hold-night",
        "hook-unpause-night-h"
    )]
    step: &str,
    #[values(
        Edit::ConfigDeleted,
        Edit::ConfigSuspended,
        Edit::ConfigRescheduled,
        Edit::WindowAdded,
        Edit::HooksDeleted
    )]
    edit: Edit,
) {
    let mut bench = stuck_in(step);
    bench.world.configs = vec![config("* * * * *", false)];
    match edit {
        Edit::ConfigDeleted => bench.world.configs.clear(),
        Edit::ConfigSuspended => bench.world.configs = vec![config("* * * * *", true)],
        Edit::ConfigRescheduled => bench.world.configs = vec![config("17 3 1 1 *", false)],
        Edit::WindowAdded => {
            bench.world.windows = vec![
                serde_json::from_value(json!({
                    "metadata": {"name": "freeze", "namespace": "ns"},
                    "spec": {"start": at(0).to_string(), "end": at(90_000).to_string(), "configSelector": {}, "jobSelector": {}},
                }))
                .unwrap(),
            ];
        }
        Edit::HooksDeleted => bench.world.hooks.clear(),
    }
    let_go_on(&mut bench, step);
    bench.assert_succeeded();
    assert_eq!(bench.desired().as_deref(), Some(NEW));
    assert!(bench.paused().is_empty() && !bench.is_locked());
}

#[test]
fn a_hook_that_is_edited_in_mid_run_counts_as_it_is_then() {
    let mut bench = stuck_in("hook-unpause-night-h");
    bench.world.hooks[0] = hook("h", "MachineConfigPoolUnpause", "Abort");
    bench.end_hook_jobs("Failed");
    bench.settle_at(5500);
    assert_eq!(
        bench.is_true("Failed").as_deref(),
        Some("HookFailed"),
        "{}",
        bench.message()
    );
    assert!(
        bench.world.pool("night").unwrap().spec.paused,
        "the guard said no"
    );
}

#[test]
fn a_hook_that_is_added_in_mid_run_runs_when_its_event_comes() {
    let mut bench = stuck_in("await-control-plane");
    bench.world.hooks = vec![hook("late", "UpgradeComplete", "Ignore")];
    bench.complete();
    bench.settle_at(120);
    assert_eq!(bench.hooks_run(), ["UpgradeComplete:Completed"]);
}

#[test]
fn an_edited_timeout_counts_at_once() {
    let mut bench = stuck_in("await-control-plane");
    let longer = GoDuration::from(SignedDuration::from_hours(3));
    bench.job_mut().spec.config.upgrade_timeout = Some(longer);
    bench.settle_at(7200);
    assert_eq!(bench.is_true("Failed"), None, "{}", bench.message());
    bench.settle_at(3 * 3600);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("TimedOut"));
}

#[test]
fn a_running_job_that_is_edited_into_nonsense_says_so_and_goes_on() {
    let mut bench = stuck_in("await-control-plane");
    let delay = bench.job_mut().spec.config.machine_config_pools[0]
        .delay_upgrade
        .as_mut()
        .unwrap();
    delay.delay_max = Some(GoDuration::from(SignedDuration::from_mins(5)));
    bench.job_mut().spec.config.upgrade_timeout = None;
    bench.settle_at(30);
    let status = bench.status();
    let valid = crate::api::conditions::get(&status.conditions, "Valid").unwrap();
    assert_eq!(valid.status, "False", "{}", valid.message);
    assert!(valid.message.contains("delayMin"), "{}", valid.message);
    assert_eq!(bench.is_true("Failed"), None);
    assert_eq!(
        bench.reasons.iter().filter(|r| *r == "Invalid").count(),
        1,
        "said once"
    );
}
