//! What `/metrics` tells of UpgradeConfigs. Names and labels are the peer's where it has them (its
//! `upgrade_information_collector.go`).

use jiff::{Timestamp, tz::TimeZone};
use kube::ResourceExt;

use super::{
    history::{Outcome, outcome},
    job,
};
use crate::{
    api::{
        UpgradeConfig, UpgradeJob, UpgradeSuspensionWindow,
        conditions::{self, types},
        upgrade_config::NextPossibleSchedule,
    },
    metrics::{Family, Series},
    schedule::forecast::{self, Verdict},
    world::World,
};

/// All metrics of configs.
pub fn metrics(world: &World, now: Timestamp) -> Vec<Family> {
    let configs = &world.configs;
    let mut all = of_the_peer(configs);
    all.extend([
        Family::gauge(
            "openshift_upgrade_controller_upgradeconfig_next_run_timestamp_seconds",
            "When the next run of the UpgradeConfig is that nothing suspends, as far as its status says, in seconds since 1970.",
            series(configs, next_run),
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradeconfig_last_success_timestamp_seconds",
            "When an UpgradeJob of the UpgradeConfig last succeeded, of those that are kept, in seconds since 1970.",
            series(configs, |config| last_success(config, &world.jobs)),
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradeconfig_created_timestamp_seconds",
            "When the UpgradeConfig was created, in seconds since 1970.",
            series(configs, |config| config.metadata.creation_timestamp.as_ref().map(|t| t.0)),
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradeconfig_suspended",
            "Whether the UpgradeConfig is suspended now, by schedule.suspend or by a window: 1 or 0.",
            series(configs, |config| Some(is_suspended(config, &world.windows, now))),
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradeconfig_run_missed",
            "Runs that made no UpgradeJob though nothing suspended them, until a later one does or a job made by hand has started, always 1; reason is that of the condition RunMissed.",
            configs.iter().filter_map(missed),
        ),
    ]);
    all
}

fn of_the_peer(configs: &[UpgradeConfig]) -> Vec<Family> {
    let info = configs.iter().map(|config| {
        let schedule = &config.spec.schedule;
        let labels = vec![
            ("upgradeconfig", config.name_any()),
            ("cron", schedule.cron.clone()),
            ("location", schedule.location.clone().unwrap_or_default()),
            ("suspended", schedule.suspend.to_string()),
        ];
        Series::new(labels, true)
    });
    let runs = configs.iter().flat_map(|config| {
        next_runs(config).iter().enumerate().map(|(n, next)| {
            let labels = vec![
                ("upgradeconfig", config.name_any()),
                ("n", n.to_string()),
                ("timestamp", next.time.0.to_string()),
            ];
            Series::new(labels, next.time.0)
        })
    });
    vec![
        Family::gauge(
            "openshift_upgrade_controller_upgradeconfig_info",
            "The schedule of the UpgradeConfig, always 1; suspended is its schedule.suspend.",
            info,
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradeconfig_pin_version_window_seconds",
            "How long before a run its version is chosen: the pinVersionWindow.",
            series(configs, |config| Some(config.spec.pin_version_window())),
        ),
        Family::gauge(
            "openshift_upgrade_controller_upgradeconfig_next_possible_schedule_timestamp_seconds",
            "When the schedule of the UpgradeConfig has its next runs, suspended ones too, in seconds since 1970; n counts from 0.",
            runs,
        ),
    ]
}

fn series<V: Into<crate::metrics::Value>>(
    configs: &[UpgradeConfig],
    value: impl Fn(&UpgradeConfig) -> Option<V>,
) -> Vec<Series> {
    let of = |config: &UpgradeConfig| {
        Some(Series::new(
            vec![("upgradeconfig", config.name_any())],
            value(config)?,
        ))
    };
    configs.iter().filter_map(of).collect()
}

fn next_runs(config: &UpgradeConfig) -> &[NextPossibleSchedule] {
    config.status.as_ref().map_or(&[], |s| &s.next_possible_schedules)
}

fn next_run(config: &UpgradeConfig) -> Option<Timestamp> {
    let mut runs = next_runs(config).iter();
    let will_run = |n: &&NextPossibleSchedule| n.verdict.as_deref() == Some(Verdict::WillRun.as_str());
    runs.find(will_run).map(|n| n.time.0)
}

fn last_success(config: &UpgradeConfig, jobs: &[UpgradeJob]) -> Option<Timestamp> {
    let mine = jobs.iter().filter(|job| job::is_of(job, &config.metadata));
    let ends = mine
        .filter(|job| outcome(job) == Some(Outcome::Succeeded))
        .filter_map(|job| {
            let status = job.status.as_ref()?;
            let by_the_peer =
                || Some(&conditions::get(&status.conditions, types::SUCCEEDED)?.last_transition_time);
            status.finished_at.as_ref().or_else(by_the_peer).map(|t| t.0)
        });
    ends.max()
}

/// Whether a run would be suspended if there were one now.
fn is_suspended(config: &UpgradeConfig, windows: &[UpgradeSuspensionWindow], now: Timestamp) -> bool {
    match forecast::forecast(config, windows, now, &TimeZone::UTC).verdict {
        Verdict::Suspended | Verdict::ScheduleSuspended => true,
        Verdict::WillRun | Verdict::Missed => false,
    }
}

fn missed(config: &UpgradeConfig) -> Option<Series> {
    let all = &config.status.as_ref()?.conditions;
    let missed = conditions::get(all, types::RUN_MISSED).filter(|c| c.status == "True")?;
    let labels = vec![
        ("upgradeconfig", config.name_any()),
        ("reason", missed.reason.clone()),
    ];
    Some(Series::new(labels, true))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::metrics::told;

    const NOW: &str = "2026-12-24T12:00:00Z";

    fn world(config: &Value, jobs: &Value) -> World {
        let mut object = json!({
            "metadata": {"name": "weekly", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}},
            "spec": {"schedule": {"cron": "0 22 * * 2", "location": "Europe/Zurich"}, "pinVersionWindow": "4h", "jobTemplate": {"spec": {}}},
        });
        json_patch::merge(&mut object, config);
        World {
            configs: serde_json::from_value(json!([object])).unwrap(),
            jobs: serde_json::from_value(jobs.clone()).unwrap(),
            ..World::default()
        }
    }

    fn lines(world: &World) -> Vec<String> {
        told(&metrics(world, NOW.parse().unwrap()))
    }

    #[test]
    fn a_new_config_tells_what_it_says() {
        assert_eq!(
            lines(&world(&json!({}), &json!([]))),
            [
                "upgradeconfig_info weekly,0 22 * * 2,Europe/Zurich,false 1",
                "upgradeconfig_pin_version_window_seconds weekly 14400",
                "upgradeconfig_created_timestamp_seconds weekly 1767225600",
                "upgradeconfig_suspended weekly 0",
            ]
        );
    }

    #[test]
    fn runs_to_come_are_all_told_and_the_next_that_will_happen() {
        let run = |day: &str, verdict: &str| json!({"time": format!("2026-12-{day}T21:00:00Z"), "verdict": verdict});
        let next = [run("25", "Suspended"), run("26", "WillRun"), run("27", "WillRun")];
        let all = lines(&world(
            &json!({"status": {"nextPossibleSchedules": next}}),
            &json!([]),
        ));
        let runs: Vec<_> = all.iter().filter(|line| line.contains("_next_")).collect();
        assert_eq!(
            runs,
            [
                "upgradeconfig_next_possible_schedule_timestamp_seconds weekly,0,2026-12-25T21:00:00Z 1798232400",
                "upgradeconfig_next_possible_schedule_timestamp_seconds weekly,1,2026-12-26T21:00:00Z 1798318800",
                "upgradeconfig_next_possible_schedule_timestamp_seconds weekly,2,2026-12-27T21:00:00Z 1798405200",
                "upgradeconfig_next_run_timestamp_seconds weekly 1798318800",
            ]
        );
    }

    fn job(name: &str, day: &str, end: (&str, &str), finished: Option<&str>) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "ns", "ownerReferences": [
                {"apiVersion": "v1", "kind": "UpgradeConfig", "name": "weekly", "uid": "u", "controller": true}]},
            "spec": {"startAfter": format!("2026-11-{day}T00:00:00Z"), "startBefore": format!("2026-11-{day}T01:00:00Z")},
            "status": {"finishedAt": finished, "conditions": [
                {"type": end.0, "status": "True", "reason": end.1, "message": "", "lastTransitionTime": format!("2026-11-{day}T02:00:00Z")}]},
        })
    }

    #[rstest]
    #[case::the_newest(json!([job("a", "01", ("Succeeded", "Succeeded"), Some("2026-11-01T03:00:00Z")),
        job("b", "08", ("Succeeded", "Succeeded"), Some("2026-11-08T03:00:00Z")), job("c", "15", ("Failed", "TimedOut"), None)]), Some(1_794_106_800))]
    #[case::not_a_skipped_one(json!([job("a", "01", ("Succeeded", "Skipped"), Some("2026-11-01T00:00:00Z"))]), None)]
    #[case::the_peers(json!([job("a", "01", ("Succeeded", "Succeeded"), None)]), Some(1_793_498_400))]
    fn the_last_success_is_that_of_a_job_that_ran(#[case] jobs: Value, #[case] expected: Option<i64>) {
        let all = lines(&world(&json!({}), &jobs));
        let last = all.iter().find(|line| line.contains("_last_success_"));
        let expected = expected.map(|t| format!("upgradeconfig_last_success_timestamp_seconds weekly {t}"));
        assert_eq!(last, expected.as_ref());
    }

    #[rstest]
    #[case::no_window(json!({}), json!([]), "0")]
    #[case::switched_off(json!({"spec": {"schedule": {"suspend": true}}}), json!([]), "1")]
    #[case::now(json!({}), json!([("2026-12-24", "2026-12-25", json!({}))]), "1")]
    #[case::of_others(json!({}), json!([("2026-12-24", "2026-12-25", json!({"matchLabels": {"a": "c"}}))]), "0")]
    #[case::later(json!({}), json!([("2026-12-25", "2026-12-26", json!({}))]), "0")]
    fn a_config_is_suspended_while_it_is(
        #[case] config: Value,
        #[case] windows: Value,
        #[case] expected: &str,
    ) {
        let mut world = world(&config, &json!([]));
        let window = |w: &Value| {
            json!({"metadata": {"name": "w", "namespace": "ns"}, "spec": {
                "start": format!("{}T00:00:00Z", w[0].as_str().unwrap()), "end": format!("{}T00:00:00Z", w[1].as_str().unwrap()), "configSelector": w[2]}})
        };
        let windows: Vec<Value> = windows.as_array().unwrap().iter().map(window).collect();
        world.windows = serde_json::from_value(json!(windows)).unwrap();
        let all = lines(&world);
        assert!(
            all.contains(&format!("upgradeconfig_suspended weekly {expected}")),
            "{all:?}"
        );
    }

    #[rstest]
    #[case::missed("True", "NotCreatedInTime", true)]
    #[case::made_up_for("False", "JobCreated", false)]
    fn a_missed_run_is_told_until_a_later_one_has_its_job(
        #[case] status: &str,
        #[case] reason: &str,
        #[case] is_told: bool,
    ) {
        let condition = json!({"type": "RunMissed", "status": status, "reason": reason, "message": "m", "lastTransitionTime": NOW});
        let all = lines(&world(
            &json!({"status": {"conditions": [condition]}}),
            &json!([]),
        ));
        let line = format!("upgradeconfig_run_missed weekly,{reason} 1");
        assert_eq!(all.contains(&line), is_told, "{all:?}");
    }
}
