//! MachineConfigPools in an upgrade: several groups, pools that come and go, and what stays paused after the end.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    bench::Bench,
    fixtures::{NEW, at, held, job, object, pool},
};
use crate::{
    api::{UpgradeConfig, conditions, upgrade_job::StepPhase},
    steps::Action,
};

/// Holds the pools of each label map from its delay on.
fn groups(entries: &[(Value, &str)]) -> Value {
    let entries: Vec<Value> = entries
        .iter()
        .map(|(labels, min)| json!({"matchLabels": labels, "delayUpgrade": {"delayMin": min}}))
        .collect();
    json!({"spec": {"config": {"machineConfigPools": entries}}})
}

fn is_paused(bench: &Bench, pool: &str) -> bool {
    bench.world.pool(pool).unwrap().spec.paused
}

fn said(bench: &Bench, step: &str) -> String {
    bench.step(step).and_then(|s| s.message).unwrap_or_default()
}

fn phase(bench: &Bench, step: &str) -> StepPhase {
    bench.step(step).unwrap().phase
}

fn left_paused(bench: &Bench) -> (String, String) {
    let status = bench.status();
    let left = conditions::get(&status.conditions, "PoolsLeftPaused").expect("condition PoolsLeftPaused");
    assert_eq!(left.status, "True");
    (left.reason.clone(), left.message.clone())
}

/// Whatever stays paused, the message has the command for it.
fn command(pool: &str) -> String {
    format!("oc patch machineconfigpool {pool} --type merge -p '{{\"spec\":{{\"paused\":false}}}}'")
}

#[test]
fn groups_are_unpaused_each_at_its_own_time() {
    let late_first = groups(&[
        (json!({"name": "worker"}), "1h"),
        (json!({"name": "night"}), "30m"),
    ]);
    let mut bench = Bench::new(job("j", late_first)).completed();
    assert_eq!(bench.paused(), ["night", "worker"]);
    bench.settle_at(1800);
    assert_eq!(bench.paused(), ["worker"]);
    bench.roll("night");
    bench.settle_at(3599);
    assert_eq!(bench.paused(), ["worker"]);
    bench.settle_at(3600);
    assert_eq!(bench.paused(), Vec::<&str>::new());
    assert_eq!(said(&bench, "await-worker"), "worker: 0 of 2 updated");
    bench.roll("worker");
    bench.settle_at(3700);
    bench.assert_succeeded();
}

#[test]
fn of_two_entries_that_select_a_pool_the_first_counts_and_that_is_said() {
    let both = groups(&[
        (json!({"name": "night"}), "1h"),
        (json!({"name": "worker"}), "30m"),
        (json!({}), "30m"),
    ]);
    let mut bench = Bench::new(job("j", both)).completed();
    let twice = |pool, first| {
        format!("{pool} is selected by entries {first} and 3 of machineConfigPools, and entry {first} counts")
    };
    assert_eq!(
        said(&bench, "pause-pools"),
        format!(
            "paused worker, night; {}; {}",
            twice("night", 1),
            twice("worker", 2)
        ),
    );
    let events = bench.reasons.iter().filter(|r| *r == "SelectedTwice").count();
    assert_eq!(events, 2, "one a pool, and only once");
    bench.settle_at(1800);
    assert_eq!(bench.paused(), ["night"], "not in the time of the third entry");
}

#[test]
fn a_held_pool_that_appears_in_mid_run_is_paused_at_once() {
    let mut bench = Bench::new(job("j", groups(&[(json!({"tier": "slow"}), "30m")]))).accepted();
    assert_eq!(bench.paused(), Vec::<&str>::new());
    bench.world.pools.push(pool("gpu", &json!({"tier": "slow"})));
    bench.settle_at(30);
    assert_eq!(bench.paused(), ["gpu"]);
    bench.complete();
    bench.settle_at(120);
    assert_eq!(phase(&bench, "hold-group-1"), StepPhase::Running);
    bench.settle_at(1800);
    assert_eq!(bench.paused(), Vec::<&str>::new());
    assert_eq!(said(&bench, "await-group-1"), "gpu: 0 of 2 updated");
    bench.roll("gpu");
    bench.settle_at(1900);
    bench.assert_succeeded();
}

#[test]
fn a_pool_that_appears_in_mid_run_and_is_not_held_is_waited_for() {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    let mut new = pool("gpu", &json!({}));
    new.status.as_mut().unwrap().updated_machine_count = 1;
    bench.world.pools.push(new);
    bench.complete();
    bench
        .pool_mut("gpu")
        .status
        .as_mut()
        .unwrap()
        .updated_machine_count = 1;
    bench.settle_at(120);
    assert_eq!(said(&bench, "await-pools"), "gpu: 1 of 2 updated");
    bench.roll("gpu");
    bench.settle_at(130);
    bench.assert_succeeded();
}

#[rstest]
#[case::before_the_control_plane_is_done(20)]
#[case::while_it_is_held(120)]
#[case::while_its_nodes_update(1800)]
fn a_held_pool_that_is_deleted_in_mid_run_holds_nothing_up(#[case] when: i64) {
    let mut bench = Bench::new(job("j", held())).accepted();
    if when >= 120 {
        bench.complete();
    }
    bench.settle_at(when);
    bench
        .world
        .pools
        .retain(|p| p.metadata.name.as_deref() != Some("night"));
    if when < 120 {
        bench.complete();
    }
    bench.settle_at(when + 1);
    bench.assert_succeeded();
    assert_eq!(bench.status().paused_pools, []);
    assert_eq!(bench.is_true("PoolsLeftPaused"), None);
}

#[test]
fn a_held_pool_without_machines_is_done_with_the_control_plane() {
    let mut bench = Bench::new(job("j", held()));
    bench.pool_mut("night").status.as_mut().unwrap().machine_count = 0;
    bench
        .pool_mut("night")
        .status
        .as_mut()
        .unwrap()
        .updated_machine_count = 0;
    let bench = bench.completed();
    bench.assert_succeeded();
    assert!(!is_paused(&bench, "night"));
    assert_eq!(said(&bench, "hold-night"), "nothing is pending for its pools");
}

#[test]
fn a_held_pool_without_an_update_is_unpaused_at_once() {
    let mut bench = Bench::new(job("j", held())).accepted();
    bench.complete();
    // The new release renders the same configuration for it.
    let night = bench.pool_mut("night");
    let now = night.status.as_mut().unwrap().configuration.name.clone();
    night.spec.configuration.name.clone_from(&now);
    night.status.as_mut().unwrap().updated_machine_count = 2;
    bench.world.rendered.insert(now, NEW.into());
    bench.settle_at(120);
    assert!(!is_paused(&bench, "night"));
    bench.assert_succeeded();
}

/// Somebody applies a MachineConfig in the middle of it.
#[rstest]
#[case::to_a_pool_that_is_not_held("worker", 120)]
#[case::to_the_held_pool("night", 1900)]
fn a_new_configuration_in_mid_run_is_waited_for(#[case] name: &str, #[case] when: i64) {
    let mut bench = Bench::new(job("j", held())).completed();
    bench.settle_at(1800);
    bench.world.rendered.insert("rendered-3".into(), NEW.into());
    let changed = bench.pool_mut(name);
    changed.spec.configuration.name = "rendered-3".into();
    changed.status.as_mut().unwrap().updated_machine_count = 0;
    if name != "night" {
        bench.roll("night");
    }
    bench.settle_at(when.max(1801));
    assert_eq!(bench.is_true("Succeeded"), None, "{}", bench.message());
    assert!(
        bench.message().contains(&format!("{name}: 0 of 2 updated")),
        "{}",
        bench.message()
    );
    bench.roll(name);
    bench.settle_at(2000);
    bench.assert_succeeded();
}

#[test]
fn a_degraded_pool_is_waited_for_and_counted() {
    let mut bench = Bench::new(job("j", json!({}))).accepted();
    bench.complete();
    let worker = bench.pool_mut("worker").status.as_mut().unwrap();
    worker.updated_machine_count = 1;
    worker.degraded_machine_count = 1;
    bench.settle_at(120);
    assert_eq!(said(&bench, "await-pools"), "worker: 1 of 2 updated, 1 degraded");
}

/// A group of two pools, one of them paused by someone else: ours goes its way, the other is left alone.
#[test]
fn a_foreign_pause_in_a_group_holds_only_its_own_pool() {
    let both = groups(&[(json!({"tier": "slow"}), "30m")]);
    let mut bench = Bench::new(job("j", both));
    for name in ["night", "worker"] {
        let labels = bench.pool_mut(name).metadata.labels.as_mut().unwrap();
        labels.insert("tier".into(), "slow".into());
    }
    bench.pool_mut("worker").spec.paused = true;
    let mut bench = bench.completed();
    assert_eq!(
        said(&bench, "pause-pools"),
        "paused night; worker paused by someone else, left alone"
    );
    bench.settle_at(1800);
    assert_eq!(bench.paused(), ["worker"]);
    bench.roll("night");
    bench.settle_at(1900);
    assert_eq!(bench.is_true("Paused").as_deref(), Some("ForeignPause"));
    bench.pool_mut("worker").spec.paused = false;
    bench.roll("worker");
    bench.settle_at(2000);
    bench.assert_succeeded();
}

/// A job that holds pool night and failed in the middle of the control plane's update, in the world that `prepare` makes.
fn failed_with_a_held_pool(prepare: impl FnOnce(&mut Bench)) -> Bench {
    let mut bench = Bench::new(job("j", held())).accepted();
    prepare(&mut bench);
    bench.settle_at(3601);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("UnpausingPoolsExpired"));
    assert_eq!(bench.paused(), ["night"]);
    bench
}

/// An UpgradeConfig whose jobs hold the pools with this name.
fn config_that_holds(pool: &str) -> UpgradeConfig {
    let mut config = held()["spec"]["config"].clone();
    config["machineConfigPools"][0]["matchLabels"] = json!({"name": pool});
    object(json!({
        "metadata": {"name": "weekly", "namespace": "ns"},
        "spec": {"schedule": {"cron": "0 22 * * 2"}, "pinVersionWindow": "4h", "jobTemplate": {"spec": {"config": config}}},
    }))
}

#[rstest]
#[case::nobody(
    None,
    "Orphaned",
    "no UpgradeConfig holds it, so nobody will unpause it but you"
)]
#[case::another_pool(Some("day"), "Orphaned", "nobody will unpause it but you")]
#[case::a_config(
    Some("night"),
    "PendingChanges",
    "the next job of UpgradeConfig weekly takes over and unpauses it in its own time"
)]
fn a_pool_that_stays_paused_says_since_when_and_who_lifts_it(
    #[case] config: Option<&str>,
    #[case] reason: &str,
    #[case] who: &str,
) {
    let bench = failed_with_a_held_pool(|bench| {
        bench.world.configs.extend(config.map(config_that_holds));
    });
    let (why, message) = left_paused(&bench);
    assert_eq!(why, reason);
    let since = bench.status().paused_pools[0].since.clone().unwrap().0;
    assert_eq!(since, at(10));
    let since = crate::text::time(since, bench.settings.zone());
    let start = format!("left paused: night (paused since {since}): changes are pending");
    assert!(message.starts_with(&start), "{message}");
    assert!(message.contains(who), "{message}");
    assert!(message.contains(&command("night")), "{message}");
}

/// The condition follows what is there, long after the end.
#[test]
fn a_pool_is_no_orphan_any_more_when_a_job_or_a_config_covers_it() {
    let mut bench = failed_with_a_held_pool(|_| {});
    assert_eq!(left_paused(&bench).0, "Orphaned");
    bench.world.configs = vec![config_that_holds("night")];
    bench.settle_at(7200);
    assert_eq!(left_paused(&bench).0, "PendingChanges");
    bench.world.configs.clear();
    bench.world.jobs.push(job("later", held()));
    bench.settle_at(7300);
    let (reason, message) = left_paused(&bench);
    assert_eq!(reason, "PendingChanges");
    assert!(message.contains("UpgradeJob later takes over"), "{message}");
    bench.world.jobs.pop();
    bench.settle_at(7400);
    assert_eq!(left_paused(&bench).0, "Orphaned");
    bench.pool_mut("night").spec.paused = false;
    bench.settle_at(7500);
    assert_eq!(bench.is_true("PoolsLeftPaused"), None);
}

#[test]
fn a_pool_that_was_paused_because_of_the_failure_waits_for_a_person() {
    let patch = json!({"spec": {"config": {"upgradeTimeout": "1h",
        "pauseMachineConfigPoolsOnFailure": {"enabled": true, "selector": {"matchLabels": {"name": "worker"}}}}}});
    let mut bench = Bench::new(job("j", patch)).accepted();
    bench.settle_at(3600);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("TimedOut"));
    let (reason, message) = left_paused(&bench);
    assert_eq!(reason, "PausedOnFailure");
    assert!(message.contains("only a person unpauses it"), "{message}");
    assert!(message.contains(&command("worker")), "{message}");
    // A job that would hold it does not take that over.
    bench.world.configs = vec![config_that_holds("worker")];
    bench.settle_at(3700);
    assert_eq!(left_paused(&bench).0, "PausedOnFailure");
}

/// A job that lost the lock touches no pool, though it might be unpaused.
#[test]
fn a_pool_for_which_nothing_is_pending_says_that_it_may_be_unpaused() {
    let mut bench = Bench::new(job("j", held())).asked();
    bench.world.cluster_version.as_mut().unwrap().metadata.annotations = None;
    bench.settle_at(20);
    assert_eq!(bench.is_true("Failed").as_deref(), Some("LockLost"));
    let (reason, message) = left_paused(&bench);
    assert_eq!(reason, "NothingPending");
    assert!(
        message.contains("no node reboots when it is unpaused"),
        "{message}"
    );
    assert_eq!(bench.count(|a| matches!(a, Action::UnpausePool { .. })), 0);
}
