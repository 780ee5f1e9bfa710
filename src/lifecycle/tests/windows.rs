//! Suspension windows and overlays around the start of a job.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    bench::Bench,
    fixtures::{at, job},
};
use crate::api::{
    UpgradeConfig, UpgradeSuspensionWindow,
    conditions::{self, types},
    labels,
};

/// A window from one second to another; `selectors` are merged into its spec.
fn window(start: i64, end: i64, selectors: &Value) -> UpgradeSuspensionWindow {
    let mut spec =
        json!({"start": at(start).to_string(), "end": at(end).to_string(), "reason": "end of year"});
    json_patch::merge(&mut spec, selectors);
    serde_json::from_value(json!({"metadata": {"name": "holidays", "namespace": "ns"}, "spec": spec}))
        .unwrap()
}

/// A job of config `c`, which has label `on=config`; the job has `on=job`.
fn bench() -> Bench {
    let mut bench = Bench::new(job(
        "j",
        json!({"metadata": {"labels": {labels::UPGRADE_CONFIG: "c", labels::START: at(0).as_second().to_string(),
            "on": "job"}}}),
    ));
    let config: UpgradeConfig = serde_json::from_value(json!({
        "metadata": {"name": "c", "namespace": "ns", "labels": {"on": "config"}},
        "spec": {"schedule": {"cron": "* * * * *"}, "jobTemplate": {"spec": {"config": {}}}},
    }))
    .unwrap();
    bench.world.configs.push(config);
    bench
}

fn all_jobs() -> Value {
    json!({"jobSelector": {}})
}

#[rstest]
#[case::begins_at_the_start(window(0, 60, &all_jobs()), 0, true)]
#[case::ends_at_the_start(window(-60, 0, &all_jobs()), 0, false)]
#[case::begins_after_the_start(window(1, 60, &all_jobs()), 0, false)]
#[case::begins_before_a_late_start(window(5, 60, &all_jobs()), 10, true)]
#[case::is_over_at_a_late_start(window(-5, 5, &all_jobs()), 10, true)]
#[case::by_the_label_of_the_job(window(0, 60, &json!({"jobSelector": {"matchLabels": {"on": "job"}}})), 0, true)]
#[case::job_selector_does_not_read_the_config(
    window(0, 60, &json!({"jobSelector": {"matchLabels": {"on": "config"}}})), 0, false)]
#[case::by_the_label_of_its_config(window(0, 60, &json!({"configSelector": {"matchLabels": {"on": "config"}}})), 0, true)]
#[case::config_selector_does_not_read_the_job(
    window(0, 60, &json!({"configSelector": {"matchLabels": {"on": "job"}}})), 0, false)]
#[case::without_selectors(window(0, 60, &json!({})), 0, false)]
#[case::turned_round(window(60, -60, &all_jobs()), 0, false)]
fn a_due_job_is_skipped_where_a_window_says_so(
    #[case] window: UpgradeSuspensionWindow,
    #[case] now: i64,
    #[case] skipped: bool,
) {
    let mut bench = bench();
    bench.settle_at(-1);
    assert_eq!(bench.is_true(types::SUCCEEDED), None, "not before its start");
    // Created at the last second.
    bench.world.windows.push(window);
    bench.settle_at(now);
    assert_eq!(
        bench.is_true(types::SUCCEEDED).as_deref() == Some("Skipped"),
        skipped
    );
    assert_eq!(bench.is_true(types::STARTED).is_some(), !skipped);
    if skipped {
        let status = bench.status();
        let condition = conditions::get(&status.conditions, types::SUCCEEDED).unwrap();
        for said in [&condition.message, &bench.message()] {
            assert!(
                said.contains("UpgradeSuspensionWindow holidays (end of year) until"),
                "{said}"
            );
        }
        assert!(
            bench.reasons.iter().any(|r| r == "Skipped"),
            "an Event: {:?}",
            bench.reasons
        );
        assert_eq!(bench.acted, [], "nothing was touched");
    }
}

#[test]
fn a_window_of_another_namespace_never_counts() {
    let mut bench = bench();
    let mut window = window(-60, 60, &json!({"jobSelector": {}, "configSelector": {}}));
    window.metadata.namespace = Some("other".to_owned());
    bench.world.windows.push(window);
    bench.settle_at(0);
    assert!(bench.is_true(types::STARTED).is_some());
}

#[test]
fn a_window_that_was_moved_away_in_time_lets_the_job_start_and_one_that_begins_later_does_not_stop_it() {
    let mut bench = bench();
    bench.world.windows.push(window(-60, 60, &all_jobs()));
    bench.settle_at(-1);
    bench.world.windows[0] = window(60, 120, &all_jobs());
    bench.settle_at(0);
    assert!(bench.is_true(types::STARTED).is_some());
    bench.settle_at(70);
    assert_eq!(bench.is_true(types::SUCCEEDED), None);
    assert_eq!(bench.is_true(types::FAILED), None);
}

#[test]
fn a_channel_change_before_the_start_is_announced_on_the_pinned_job() {
    let mut bench = bench();
    let overlay = |second: i64| {
        serde_json::from_value(json!({
            "metadata": {"name": "version", "namespace": "ns"},
            "spec": {"template": {"spec": {"channel": "stable-4.18"}},
                "overlays": [{"from": at(second).to_string(), "overlay": {"spec": {"channel": "stable-4.19"}}}]},
        }))
        .unwrap()
    };
    bench.world.managed_versions = vec![overlay(1)];
    bench.settle_at(-600);
    assert_eq!(bench.is_true(types::CHANNEL_CHANGE_AHEAD), None);
    bench.world.managed_versions = vec![overlay(-300)];
    bench.settle_at(-600);
    assert_eq!(
        bench.is_true(types::CHANNEL_CHANGE_AHEAD).as_deref(),
        Some("OverlayDue")
    );
    assert_eq!(bench.reasons.iter().filter(|r| *r == "OverlayDue").count(), 1);
    let message = bench.message();
    for part in [
        "starts at ",
        "changes the channel from stable-4.18 to stable-4.19",
        "the job keeps 4.18.5, which may not be offered any more then",
    ] {
        assert!(message.contains(part), "{message}");
    }
    bench.settle_at(-200);
    assert!(
        bench.message().contains("changed the channel"),
        "{}",
        bench.message()
    );
    // Called off.
    bench.world.managed_versions.clear();
    bench.settle_at(-100);
    assert_eq!(bench.is_true(types::CHANNEL_CHANGE_AHEAD), None);
    assert!(!bench.message().contains("channel"), "{}", bench.message());
}

/// `kubectl get -o yaml`, another name, another start, `kubectl apply`.
#[rstest]
#[case::of_the_config(0, "Skipped")]
#[case::a_copy_with_a_start_of_its_own(-3600, "")]
fn a_job_that_a_person_copied_is_no_run_of_the_config(#[case] label: i64, #[case] ending: &str) {
    let mut bench = bench();
    let labels = bench.job_mut().metadata.labels.get_or_insert_default();
    labels.insert(labels::START.to_owned(), at(label).as_second().to_string());
    let config = &mut bench.world.configs[0];
    config.spec.schedule.cron = "17 3 1 1 *".to_owned();
    bench.settle_at(0);
    assert_eq!(bench.is_true(types::SUCCEEDED).unwrap_or_default(), ending);
    assert_eq!(bench.is_true(types::STARTED).is_some(), ending.is_empty());
}

#[rstest]
#[case::schedule("/spec/schedule/cron", json!("0 22 * * 7"), "spec.schedule: cron \"0 22 * * 7\"")]
#[case::duration("/spec/pinVersionWindow", json!("4 hours"), "spec.pinVersionWindow: \"4 hours\"")]
fn a_pinned_job_goes_on_as_it_was_when_its_config_becomes_invalid_and_says_so(
    #[case] field: &str,
    #[case] value: Value,
    #[case] why: &str,
) {
    let mut bench = bench();
    bench.settle_at(-600);
    assert!(!bench.message().contains("invalid"), "{}", bench.message());
    let mut config = serde_json::to_value(&bench.world.configs[0]).unwrap();
    config["spec"]["pinVersionWindow"] = json!("4h");
    *config.pointer_mut(field).unwrap() = value;
    bench.world.configs[0] = serde_json::from_value(config).unwrap();
    bench.settle_at(-300);
    let said = bench.message();
    assert!(
        said.starts_with("starts at ") && said.contains("UpgradeConfig c is invalid now"),
        "{said}"
    );
    assert!(
        said.contains(why) && said.ends_with("delete it if it is not to run"),
        "{said}"
    );
    bench.settle_at(-200);
    assert_eq!(
        bench.reasons.iter().filter(|r| *r == "ConfigInvalid").count(),
        1,
        "said once"
    );
    bench.settle_at(0);
    let status = bench.status();
    let started = conditions::get(&status.conditions, types::STARTED).unwrap();
    assert_eq!(started.status, "True");
    assert!(
        started.message.contains("UpgradeConfig c is invalid now"),
        "{}",
        started.message
    );
}

/// What can be read of an invalid config counts all the same.
#[test]
fn an_invalid_config_that_is_suspended_suspends() {
    let mut bench = bench();
    let schedule = &mut bench.world.configs[0].spec.schedule;
    (schedule.suspend, schedule.cron) = (true, "no cron".to_owned());
    bench.settle_at(0);
    assert_eq!(bench.is_true(types::SUCCEEDED).as_deref(), Some("Skipped"));
    assert!(bench.message().contains("is suspended"), "{}", bench.message());
}
