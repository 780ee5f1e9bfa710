use jiff::{SignedDuration, ToSpan};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::UpgradeConfig,
    cli::manifests::Manifests,
    simulator::rehearsal::{Recording, fixtures::*},
};

const CONFIG: &str = "
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeConfig
metadata: {name: c, namespace: ns}
spec: {schedule: {cron: '@weekly'}, jobTemplate: {spec: {}}}
---";

const RUNS: [&str; 4] = [
    "2026-12-01T21:00:00Z",
    "2026-12-08T21:00:00Z",
    "2026-12-15T21:00:00Z",
    "2026-12-22T21:00:00Z",
];

fn told(recording: &Recording, files: &Manifests, monitoring: Monitoring) -> Vec<String> {
    let input = Input {
        manifests: &files.objects,
        namespace: "ns",
        monitoring,
    };
    warnings(&Story::of(recording), input)
}

/// Warnings about one config, its jobs and these files.
fn of(config: &UpgradeConfig, jobs: &[(&str, Value)], files: &str) -> Vec<String> {
    let mut recording = recording();
    recording.see_config(config, at(FROM));
    recording.see_pool(&pool("master", &json!({}), "False"), at(FROM));
    recording.see_pool(&pool("night", &json!({"name": "night"}), "False"), at(FROM));
    for (run, status) in jobs {
        recording.see_job(&job(config, run, status.clone()), at(run));
    }
    told(
        &recording,
        &manifests(&format!("{CONFIG}\n{files}")),
        Monitoring::Absent,
    )
}

/// Four upgrades that took so many minutes.
fn upgrades(minutes: i64) -> Vec<(&'static str, Value)> {
    let took = |run: &&'static str| {
        let end = (at(run) + minutes.minutes()).to_string();
        (*run, succeeded(run, &end))
    };
    RUNS.iter().map(took).collect()
}

fn window(name: &str, start: &str, end: &str) -> String {
    format!(
        "apiVersion: managedupgrade.appuio.io/v1beta1\nkind: UpgradeSuspensionWindow\nmetadata: {{name: {name}}}\n\
         spec: {{start: {start}, end: {end}, configSelector: {{}}}}\n---\n"
    )
}

fn hook(name: &str, rest: &str) -> String {
    format!(
        "apiVersion: managedupgrade.appuio.io/v1beta1\nkind: UpgradeJobHook\nmetadata: {{name: {name}, namespace: ns}}\n\
         spec: {{{rest}, template: {{spec: {{template: {{spec: {{containers: [{{name: x, image: x}}]}}}}}}}}}}\n---\n"
    )
}

fn none(warnings: &[String]) {
    assert_eq!(warnings, [] as [&str; 0]);
}

fn one(warnings: &[String], expected: &str) {
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains(expected), "{warnings:#?}");
}

#[test]
fn a_quiet_month_has_no_warnings() {
    none(&of(&config("c", &json!({})), &upgrades(120), ""));
}

#[rstest]
#[case::never(
    "30 2 31 2 *",
    "f.yaml:2: UpgradeConfig c: the schedule never fires within 40 years; check day and month"
)]
#[case::later(
    "0 22 1 7 *",
    "there is no run in the time of the rehearsal; the next one after it is at \
    Thu 2027-07-01 22:00 (Europe/Zurich) / 2027-07-01 20:00 UTC"
)]
fn a_schedule_without_runs(#[case] cron: &str, #[case] expected: &str) {
    one(
        &of(&config("c", &json!({"schedule": {"cron": cron}})), &[], ""),
        expected,
    );
}

#[rstest]
#[case::one_window(&[("w", "2026-11-01T00:00:00Z", "2027-02-01T00:00:00Z")],
    Some("all 4 runs are suspended: UpgradeSuspensionWindow w until Mon 2027-02-01 01:00 (Europe/Zurich)"))]
#[case::two_windows(
    &[("v", "2026-11-01T00:00:00Z", "2026-12-10T00:00:00Z"), ("w", "2026-12-10T00:00:00Z", "2026-12-30T00:00:00Z")],
    Some(" and 1 other window"))]
#[case::not_all(&[("w", "2026-11-01T00:00:00Z", "2026-12-22T00:00:00Z")], None)]
fn a_schedule_that_always_falls_into_a_suspension(
    #[case] windows: &[(&str, &str, &str)],
    #[case] expected: Option<&str>,
) {
    let files: String = windows
        .iter()
        .map(|(name, start, end)| window(name, start, end))
        .collect();
    let found = of(&config("c", &json!({})), &upgrades(1), &files);
    match expected {
        Some(expected) => one(&found, expected),
        None => none(&found),
    }
}

#[test]
fn a_schedule_that_is_switched_off() {
    let config = config("c", &json!({"schedule": {"suspend": true}}));
    one(
        &of(&config, &upgrades(1), ""),
        "all 4 runs are suspended: spec.schedule.suspend is true",
    );
}

#[rstest]
#[case("@odd", "2027-01-06T00:00:00Z", true)]
#[case::ends_before("@odd", "2027-01-05T00:00:00Z", false)]
#[case::even_does_not("@even", "2027-01-06T00:00:00Z", false)]
#[case::all_weeks("", "2027-01-06T00:00:00Z", false)]
fn odd_weeks_run_twice_in_a_row_after_week_53(#[case] week: &str, #[case] end: &str, #[case] warned: bool) {
    let mut recording = recording();
    recording.end = at(end);
    let config = config("c", &json!({"schedule": {"isoWeek": week}}));
    recording.see_config(&config, at(FROM));
    let runs = crate::schedule::Schedule::parse(&config.spec.schedule, &recording.zones)
        .unwrap()
        .schedule;
    for run in runs.upcoming(at(FROM), 9) {
        recording.see_job(&job(&config, &run.to_string(), json!({})), at(FROM));
    }
    let found = told(&recording, &Manifests::default(), Monitoring::Absent);
    if warned {
        one(
            &found,
            "in week 53 of 2026, at Tue 2026-12-29 22:00 (Europe/Zurich) / 2026-12-29 21:00 UTC, and in \
            week 1 of 2027, at Tue 2027-01-05 22:00",
        );
    } else {
        none(&found);
    }
}

#[test]
fn an_upgrade_timeout_that_is_too_short() {
    let mut recording = recording();
    let config = config("c", &json!({}));
    recording.see_config(&config, at(FROM));
    for run in RUNS {
        let (start, end) = (at(run) + 5.minutes(), at(run) + 4.hours());
        recording.see_cluster_version(&cluster_version("4.18.5", "Partial"), start);
        recording.see_cluster_version(&cluster_version("4.18.5", "Completed"), end + 42.minutes());
        let late = failed(run, &end.to_string(), "TimedOut", "not done");
        recording.see_job(&job(&config, run, late), end);
    }
    one(
        &told(&recording, &Manifests::default(), Monitoring::Absent),
        "UpgradeConfig c: 4 of 4 upgrades timed out: upgradeTimeout (4h from startAfter) is too short for what was \
         simulated; the cluster, left alone, came to rest 4h42m after startAfter at the latest",
    );
}

#[rstest]
#[case(210, None)]
#[case(
    220,
    Some("the longest upgrade took 3h40m of upgradeTimeout 4h: a slower night fails")
)]
fn an_upgrade_timeout_that_is_close(#[case] minutes: i64, #[case] expected: Option<&str>) {
    let found = of(&config("c", &json!({})), &upgrades(minutes), "");
    match expected {
        Some(expected) => one(&found, expected),
        None => none(&found),
    }
}

#[test]
fn a_window_that_is_too_short_in_other_ways() {
    let mut jobs = upgrades(60);
    jobs[1].1 = failed(
        RUNS[1],
        RUNS[1],
        "UnpausingPoolsExpired",
        "night could not be unpaused",
    );
    jobs[2].1 = json!({"phase": "Skipped", "finishedAt": RUNS[2], "conditions": [
        condition("Expired", "True", "LockHeld", "m"),
        condition("Succeeded", "True", "Skipped", "upgrade job x has the lock")]});
    assert_eq!(
        of(&config("c", &json!({})), &jobs, ""),
        [
            "f.yaml:2: UpgradeConfig c: 1 of 4 upgrades could not unpause held pools by delayMax: night could not be \
             unpaused",
            "f.yaml:2: UpgradeConfig c: 1 of 4 upgrades could not start within maxUpgradeStartDelay (1h): upgrade job x \
             has the lock",
        ]
    );
}

/// The first config runs on Tuesdays at 22:00 for 4 hours.
#[rstest]
#[case::in_its_window("30 22 * * 2", true)]
#[case::at_the_same_time("0 22 * * 2", true)]
#[case::just_after_it("0 2 * * 3", false)]
#[case::before_and_into_it("0 19 * * 2", true)]
#[case::just_before_it("0 18 * * 2", false)]
#[case::another_day("0 22 * * 4", false)]
fn two_configs_in_each_others_way(#[case] cron: &str, #[case] warned: bool) {
    let mut recording = recording();
    for (name, cron) in [("a", "0 22 * * 2"), ("b", cron)] {
        let config = config(name, &json!({"schedule": {"cron": cron}}));
        recording.see_config(&config, at(FROM));
        let schedule = crate::schedule::Schedule::parse(&config.spec.schedule, &recording.zones)
            .unwrap()
            .schedule;
        for run in schedule.upcoming(at(FROM), 4) {
            recording.see_job(&job(&config, &run.to_string(), json!({})), at(FROM));
        }
    }
    recording.end = at(FROM) + SignedDuration::from_hours(27 * 24);
    let found = told(&recording, &Manifests::default(), Monitoring::Absent);
    if warned {
        one(
            &found,
            "UpgradeConfigs a and b overlap: 4 runs begin while a window of the other (upgradeTimeout 4h and 4h) \
            is open, the first at Tue 2026-12-01 ",
        );
    } else {
        none(
            &found
                .into_iter()
                .filter(|w| w.contains("overlap"))
                .collect::<Vec<_>>(),
        );
    }
}

#[rstest]
#[case::matches("events: [Start], selector: {matchLabels: {team: a}}", None)]
#[case::all("events: [Start]", None)]
#[case::our_labels(
    "events: [Start], selector: {matchLabels: {managedupgrade.appuio.io/upgrade-config: c}}",
    None
)]
#[case::label_of_the_job(
    "events: [Start], selector: {matchLabels: {managedupgrade.appuio.io/version: 4.18.5}}",
    None
)]
#[case::no_match(
    "events: [Start], selector: {matchLabels: {team: b}}",
    Some("f.yaml:7: UpgradeJobHook h never runs: its selector matches no UpgradeJob")
)]
#[case::no_held_pool(
    "events: [MachineConfigPoolUnpause]",
    Some("never runs: no UpgradeJob that it matches holds a pool")
)]
#[case::and_another_event("events: [MachineConfigPoolUnpause, Start]", None)]
#[case::no_events(
    "events: []",
    Some("UpgradeJobHook h is not valid: spec.events: no event is listed")
)]
fn a_hook_that_never_runs(#[case] spec: &str, #[case] expected: Option<&str>) {
    let found = of(&config("c", &json!({})), &upgrades(1), &hook("h", spec));
    match expected {
        Some(expected) => one(&found, expected),
        None => none(&found),
    }
}

#[rstest]
#[case(json!([{"matchLabels": {"name": "night"}, "delayUpgrade": {"delayMin": "1h"}}]), None)]
#[case(json!([{"matchLabels": {"name": "night"}}, {"matchLabels": {"name": "day"}, "delayUpgrade": {"delayMin": "1h"}}]),
    Some("UpgradeConfig c: machineConfigPools[1].matchLabels selects none of the pools of the rehearsal (master, night)"))]
fn a_selector_of_pools_that_selects_none(#[case] pools: Value, #[case] expected: Option<&str>) {
    let spec = json!({"jobTemplate": {"spec": {"config": {"machineConfigPools": pools}}}});
    let found = of(&config("c", &spec), &upgrades(1), "");
    match expected {
        Some(expected) => one(&found, expected),
        None => none(&found),
    }
}

#[rstest]
#[case(json!({}), None)]
#[case(json!({"checkCriticalAlerts": false}), None)]
#[case(json!({"checkCriticalAlerts": true}), Some("critical alerts of the health checks are not put to the test"))]
#[case(json!({"customQueries": [{"query": "a"}]}), Some("customQueries of the health checks are not put"))]
#[case(json!({"checkCriticalAlerts": true, "customQueries": [{"query": "a"}, {"query": "b"}, {"query": "a"}]}),
    Some("critical alerts and customQueries of the health checks are not put"))]
fn checks_that_always_pass_are_said_once(#[case] check: Value, #[case] expected: Option<&str>) {
    let spec = json!({"jobTemplate": {"spec": {"config": {
        "preUpgradeHealthChecks": check.clone(), "postUpgradeHealthChecks": check}}}});
    let mut recording = recording();
    recording.end = at(RUNS[0]) - 1.hour();
    for name in ["c", "d"] {
        recording.see_config(&config(name, &spec), at(FROM));
    }
    let of = |monitoring| {
        let all = told(&recording, &Manifests::default(), monitoring);
        all.into_iter()
            .filter(|w| w.contains("put to the test"))
            .collect::<Vec<_>>()
    };
    none(&of(Monitoring::Simulated));
    match expected {
        Some(expected) => one(&of(Monitoring::Absent), expected),
        None => none(&of(Monitoring::Absent)),
    }
}

#[test]
fn objects_that_are_not_served_are_named_with_file_and_line() {
    let mut recording = recording();
    recording.end = at(RUNS[0]) - 1.hour();
    let bad = json!({"conditions": [condition("Valid", "False", "Invalid", "spec.schedule: bad cron")]});
    recording.see_config(&with_status(&config("c", &json!({})), bad), at(FROM));
    recording.refused("f.yaml:7", "UpgradeJobHook h", "spec.events: too few");
    let elsewhere = hook("g", "events: [Start]").replace("namespace: ns", "namespace: other");
    let windows = window("w", "2026-12-02T00:00:00Z", "2026-12-01T00:00:00Z");
    let files = manifests(&format!(
        "{CONFIG}\n{}{elsewhere}{windows}",
        hook("h", "events: []")
    ));
    assert_eq!(
        told(&recording, &files, Monitoring::Absent),
        [
            "f.yaml:7: UpgradeJobHook h: spec.events: too few",
            "f.yaml:2: UpgradeConfig c is not valid, and has no runs: spec.schedule: bad cron",
            "f.yaml:17: UpgradeSuspensionWindow w is not valid: spec.end: 2026-12-01T00:00:00Z is not later than \
             spec.start (2026-12-02T00:00:00Z): write a later time",
            "f.yaml:12: UpgradeJobHook g is in namespace other, and the operator serves ns: give --namespace other to \
             rehearse it",
        ]
    );
}

#[test]
fn a_run_that_was_lost_is_reported_as_an_error() {
    let mut recording = recording();
    let jobs = upgrades(1);
    recording.see_config(&config("c", &json!({})), at(FROM));
    for (run, status) in jobs.iter().skip(1) {
        recording.see_job(&job(&config("c", &json!({})), run, status.clone()), at(run));
    }
    one(
        &told(&recording, &Manifests::default(), Monitoring::Absent),
        "UpgradeConfig c: the run at Tue 2026-12-01 21:00 UTC made no UpgradeJob, and nothing says why",
    );
}
