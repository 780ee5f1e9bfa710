use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{
        UpgradeSuspensionWindow,
        conditions::{self, types},
    },
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
};

/// Tuesday 24 November 2026, 22:00 in Zurich; pinned four hours before.
const RUN: &str = "2026-11-24T21:00:00Z";
const PIN: &str = "2026-11-24T17:00:00Z";
const NEXT_RUN: &str = "2026-12-01T21:00:00Z";

fn at(t: &str) -> Timestamp {
    t.parse().unwrap()
}

fn config() -> UpgradeConfig {
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig",
        "metadata": {"name": "c", "namespace": "ns", "uid": "config-uid", "generation": 1,
            "creationTimestamp": "2026-11-20T08:00:00Z", "labels": {"team": "a"}},
        "spec": {
            "schedule": {"cron": "0 22 * * 2", "location": "Europe/Zurich"}, "pinVersionWindow": "4h",
            "jobTemplate": {"metadata": {"labels": {"tier": "prod"}, "annotations": {"note": "x"}},
                "spec": {"config": {"upgradeTimeout": "2h"}}},
        },
    }))
    .unwrap()
}

fn cluster_version(available: &Value, retrieved: &str) -> ClusterVersion {
    serde_json::from_value(json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": {"name": "version", "generation": 1}, "spec": {"clusterID": "x", "channel": "stable-4.18"},
        "status": {"desired": {"version": "4.18.2", "image": "i"}, "observedGeneration": 1, "versionHash": "x",
            "availableUpdates": available,
            "conditions": [{"type": "RetrievedUpdates", "status": retrieved, "message": "server away"}]},
    }))
    .unwrap()
}

fn offered() -> Value {
    json!([{"version": "4.18.9", "image": "image-9"}])
}

fn world() -> World {
    let pool: MachineConfigPool = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"}, "spec": {},
    }))
    .unwrap();
    World {
        cluster_version: Some(cluster_version(&offered(), "True")),
        pools: vec![pool],
        control_plane_topology: Some("HighlyAvailable".to_owned()),
        ..World::default()
    }
}

fn window(start: &str, end: &str) -> UpgradeSuspensionWindow {
    serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeSuspensionWindow",
        "metadata": {"name": "freeze", "namespace": "ns"},
        "spec": {"start": start, "end": end, "reason": "quarter end", "configSelector": {"matchLabels": {"team": "a"}}},
    }))
    .unwrap()
}

fn settings() -> ConfigSettings {
    ConfigSettings {
        zones: Zones::bundled("").unwrap(),
        channel_changed_at: None,
    }
}

fn decide_at(config: &UpgradeConfig, world: &World, t: &str) -> ConfigDecision {
    decide(config, world, at(t), &settings())
}

/// Decides and carries out, as the IO half does: create, then status.
fn step(config: &mut UpgradeConfig, world: &mut World, now: Timestamp) -> ConfigDecision {
    let decision = decide(config, world, now, &settings());
    if let Some(mut job) = decision.create.clone() {
        job.metadata.uid = Some(format!("uid-of-{}", job.name_any()));
        world.jobs.push(job);
    }
    config.status = Some(decision.status.clone());
    decision
}

fn last(decision: &ConfigDecision) -> Option<Timestamp> {
    decision.status.last_scheduled_upgrade.as_ref().map(|t| t.0)
}

/// Status and reason of a condition.
fn condition<'a>(decision: &'a ConfigDecision, type_: &str) -> (&'a str, &'a str) {
    conditions::get(&decision.status.conditions, type_)
        .map_or(("", ""), |c| (c.status.as_str(), c.reason.as_str()))
}

fn message<'a>(decision: &'a ConfigDecision, type_: &str) -> &'a str {
    conditions::get(&decision.status.conditions, type_).map_or("", |c| c.message.as_str())
}

fn finish(job: &mut UpgradeJob, type_: &str, reason: &str) {
    let status = job.status.get_or_insert_default();
    status.finished_at = Some(job.spec.start_before.clone());
    conditions::set(
        &mut status.conditions,
        type_,
        true,
        reason,
        "",
        None,
        job.spec.start_before.0,
    );
}

#[test]
fn before_its_pin_a_run_is_only_announced() {
    let decision = decide_at(&config(), &world(), "2026-11-24T16:59:59.999Z");
    assert_eq!(decision.create, None);
    assert_eq!(decision.wake_at, Some(at("2026-11-24T17:00:00.999Z")));
    assert_eq!(condition(&decision, types::SCHEDULED), ("True", "Scheduled"));
    assert_eq!(
        message(&decision, types::SCHEDULED),
        "next run at Tue 2026-11-24 22:00 (Europe/Zurich) / 2026-11-24 21:00 UTC, its UpgradeJob is created at \
         Tue 2026-11-24 18:00 (Europe/Zurich) / 2026-11-24 17:00 UTC"
    );
    assert_eq!(condition(&decision, types::VALID), ("True", "Valid"));
    assert_eq!(last(&decision), None);
    assert_eq!(
        decide_at(&config(), &world(), "2026-11-23T00:00:00Z").wake_at,
        Some(at(PIN))
    );
}

#[test]
fn at_its_pin_the_job_of_a_run_is_created() {
    let decision = decide_at(&config(), &world(), PIN);
    let job = decision.create.as_ref().unwrap();
    let hash = crate::api::names::hash("ns/c/config-uid", 7);
    assert_eq!(job.name_any(), format!("c-1795554000-{hash}"));
    assert_eq!(
        serde_json::to_value(job).unwrap(),
        json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
            "metadata": {
                "name": job.name_any(), "namespace": "ns",
                "labels": {"tier": "prod", "managedupgrade.appuio.io/upgrade-config": "c",
                    "managedupgrade.appuio.io/start": "1795554000", "managedupgrade.appuio.io/version": "4.18.9"},
                "annotations": {"note": "x"},
                "ownerReferences": [{"apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig",
                    "name": "c", "uid": "config-uid", "controller": true}],
            },
            "spec": {
                "startAfter": RUN, "startBefore": "2026-11-24T22:00:00Z",
                "desiredVersion": {"version": "4.18.9", "image": "image-9"},
                "config": serde_json::to_value(&config().spec.job_template.spec.config).unwrap(),
            },
        })
    );
    assert_eq!(last(&decision), None, "the run is recorded once its job was seen");
    assert_eq!(decision.notices[0].reason, "JobCreated");
}

#[test]
fn a_run_is_recorded_when_its_job_is_seen_and_makes_no_second_one() {
    let (mut config, mut world) = (config(), world());
    assert!(step(&mut config, &mut world, at(PIN)).create.is_some());
    let decision = step(&mut config, &mut world, at(PIN));
    assert_eq!(
        (decision.create.is_none(), last(&decision)),
        (true, Some(at(RUN)))
    );
    assert_eq!(decision.adopted, Some(world.jobs[0].name_any()));
    let shown = &decision.status.next_possible_schedules[0];
    assert_eq!(
        shown.reason,
        Some(format!("UpgradeJob {} to 4.18.9", world.jobs[0].name_any()))
    );
    // Nothing changes any more.
    let again = step(&mut config, &mut world, at("2026-11-24T17:00:07Z"));
    assert_eq!(
        (&again.status, &again.notices, &again.adopted),
        (&decision.status, &vec![], &None)
    );
    // A lost status (a restart between create and status, an old copy) makes no second job either.
    config.status = None;
    let decision = step(&mut config, &mut world, at("2026-11-24T17:30:00Z"));
    assert_eq!(
        (decision.create.is_none(), last(&decision)),
        (true, Some(at(RUN)))
    );
}

#[rstest]
#[case::ours_without_owner(json!([]), json!({"managedupgrade.appuio.io/upgrade-config": "c", "managedupgrade.appuio.io/start": "1795554000"}), true)]
#[case::of_the_peer(json!([{"apiVersion": "v", "kind": "UpgradeConfig", "name": "c", "uid": "config-uid", "controller": true}]), json!({}), true)]
#[case::of_the_config_before_it_was_created_again(
    json!([{"apiVersion": "v", "kind": "UpgradeConfig", "name": "c", "uid": "old-uid", "controller": true}]),
    json!({"managedupgrade.appuio.io/upgrade-config": "c", "managedupgrade.appuio.io/start": "1795554000"}), false)]
#[case::of_another_config(json!([]), json!({"managedupgrade.appuio.io/upgrade-config": "d", "managedupgrade.appuio.io/start": "1795554000"}), false)]
#[case::of_another_run(json!([]), json!({"managedupgrade.appuio.io/upgrade-config": "c", "managedupgrade.appuio.io/start": "1"}), false)]
#[case::by_hand(json!([]), json!({}), false)]
fn a_job_of_the_same_run_is_adopted(#[case] owners: Value, #[case] labels: Value, #[case] adopted: bool) {
    let mut world = world();
    let mut job: UpgradeJob = serde_json::from_value(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "j", "ownerReferences": owners, "labels": labels},
        "spec": {"startAfter": RUN, "startBefore": RUN, "config": {}},
    }))
    .unwrap();
    finish(&mut job, types::SUCCEEDED, "Succeeded");
    world.jobs.push(job);
    let decision = decide_at(&config(), &world, PIN);
    assert_eq!(decision.create.is_none(), adopted);
    assert_eq!(decision.adopted.is_some(), adopted);
}

#[test]
fn the_first_run_is_strictly_after_the_creation_of_the_config() {
    let mut config = config();
    config.metadata.creation_timestamp = Some(Time(at(RUN)));
    let decision = decide_at(&config, &world(), "2026-11-24T21:00:01Z");
    assert_eq!((decision.create, decision.notices.len()), (None, 0));
    assert_eq!(decision.wake_at, Some(at("2026-12-01T17:00:00Z")));
}

#[rstest]
#[case::until_the_delay("2026-11-24T18:00:00Z", true)]
#[case::not_after_it("2026-11-24T18:00:01Z", false)]
fn a_job_is_created_late_within_the_scheduling_delay(#[case] t: &str, #[case] created: bool) {
    let decision = decide_at(&config(), &world(), t);
    assert_eq!(decision.create.is_some(), created);
    if !created {
        assert_eq!(last(&decision), Some(at(RUN)));
        assert_eq!(
            condition(&decision, types::RUN_MISSED),
            ("True", "NotCreatedInTime")
        );
        assert!(decision.notices[0].warning);
        assert!(
            decision.notices[0]
                .note
                .starts_with("the run at Tue 2026-11-24 22:00 (Europe/Zurich)")
        );
        let shown = &decision.status.next_possible_schedules[0];
        assert_eq!(
            (shown.time.0, shown.verdict.as_deref()),
            (at(RUN), Some("Missed"))
        );
    }
}

#[test]
fn a_run_without_pin_window_is_created_at_the_run_but_not_when_it_could_not_start_any_more() {
    let mut config = config();
    config.spec.pin_version_window = None;
    config.spec.max_upgrade_start_delay = Some(crate::api::GoDuration("30m".to_owned()));
    assert!(
        decide_at(&config, &world(), "2026-11-24T20:59:59Z")
            .create
            .is_none()
    );
    assert!(
        decide_at(&config, &world(), "2026-11-24T21:29:59Z")
            .create
            .is_some()
    );
    let decision = decide_at(&config, &world(), "2026-11-24T21:30:00Z");
    assert_eq!(
        (
            decision.create.is_none(),
            condition(&decision, types::RUN_MISSED).0
        ),
        (true, "True")
    );
}

#[test]
fn a_missed_run_stays_said_until_a_later_one_has_its_job() {
    let (mut config, mut world) = (config(), world());
    step(&mut config, &mut world, at("2026-11-24T20:00:00Z"));
    let decision = step(&mut config, &mut world, at("2026-11-30T00:00:00Z"));
    assert_eq!(
        (condition(&decision, types::RUN_MISSED).0, decision.notices.len()),
        ("True", 0)
    );
    step(&mut config, &mut world, at("2026-12-01T17:00:00Z"));
    let decision = step(&mut config, &mut world, at("2026-12-01T17:00:01Z"));
    assert_eq!(condition(&decision, types::RUN_MISSED), ("False", "JobCreated"));
}

#[test]
fn runs_of_a_long_absence_are_recorded_together_and_none_is_made_up_for() {
    let mut config = config();
    config.spec.schedule.cron = "*/5 * * * *".to_owned();
    config.spec.pin_version_window = None;
    config.spec.max_scheduling_delay = Some(crate::api::GoDuration("2m".to_owned()));
    let (mut world, now) = (world(), at("2026-12-20T08:03:00Z"));
    let mut passes = 0;
    let decision = loop {
        let decision = step(&mut config, &mut world, now);
        assert!(decision.notices.len() <= 1 && decision.create.is_none());
        passes += 1;
        if decision.wake_at != now.checked_add(SignedDuration::from_secs(1)).ok() {
            break decision;
        }
    };
    // 30 days of a run every five minutes, a thousand at a time.
    assert_eq!((passes, last(&decision)), (9, Some(at("2026-12-20T08:00:00Z"))));
    assert!(message(&decision, types::RUN_MISSED).contains("before it were missed"));
}

#[test]
fn while_updates_are_unknown_the_run_waits_until_it_begins() {
    let (mut config, mut world) = (config(), world());
    world.cluster_version = Some(cluster_version(&Value::Null, "False"));
    let decision = step(&mut config, &mut world, at("2026-11-24T17:30:00Z"));
    assert_eq!(decision.create, None);
    assert_eq!(
        condition(&decision, types::SCHEDULED),
        ("False", "UpdatesUnknown")
    );
    assert!(message(&decision, types::SCHEDULED).contains("server away"));
    assert_eq!(decision.wake_at, Some(at("2026-11-24T17:31:00Z")));
    // Beyond the delay, known at last.
    let decision = step(
        &mut config.clone(),
        &mut world.clone(),
        at("2026-11-24T20:59:00Z"),
    );
    assert_eq!(
        (condition(&decision, types::SCHEDULED).1, last(&decision)),
        ("UpdatesUnknown", None)
    );
    let mut known = world.clone();
    known.cluster_version = Some(cluster_version(&offered(), "True"));
    assert!(
        decide_at(&config, &known, "2026-11-24T20:59:00Z")
            .create
            .is_some()
    );
    // Never known.
    let decision = decide_at(&config, &world, "2026-11-24T21:01:01Z");
    assert_eq!(
        (decision.create.is_none(), last(&decision)),
        (true, Some(at(RUN)))
    );
    assert_eq!(
        condition(&decision, types::RUN_MISSED),
        ("True", "UpdatesUnknown")
    );
}

#[rstest]
#[case::none_offered(json!([]), "no update is offered in channel stable-4.18: hooks and pools only")]
#[case::null(
    Value::Null,
    "no update is offered in channel stable-4.18: hooks and pools only"
)]
fn without_an_update_the_run_is_a_maintenance_run_with_its_cause(
    #[case] available: Value,
    #[case] why: &str,
) {
    let mut world = world();
    world.cluster_version = Some(cluster_version(&available, "True"));
    let decision = decide_at(&config(), &world, PIN);
    let job = decision.create.as_ref().unwrap();
    assert_eq!(job.spec.desired_version, None);
    assert_eq!(
        job.annotations()
            .get(crate::api::annotations::VERSION_CHOICE)
            .map(String::as_str),
        Some(why)
    );
    assert!(!job.labels().contains_key(crate::api::labels::TARGET_VERSION));
    assert!(message(&decision, types::SCHEDULED).ends_with(&format!("without an update ({why})")));
}

#[test]
fn a_suspended_schedule_passes_its_runs_by_and_can_be_resumed_until_the_run() {
    let (mut config, mut world) = (config(), world());
    config.spec.schedule.suspend = true;
    let decision = step(&mut config, &mut world, at(PIN));
    assert_eq!((decision.create.is_none(), last(&decision)), (true, None));
    assert_eq!(
        condition(&decision, types::SUSPENDED),
        ("True", "ScheduleSuspended")
    );
    assert!(
        decision
            .status
            .next_possible_schedules
            .iter()
            .all(|n| n.verdict.as_deref() == Some("ScheduleSuspended"))
    );

    let mut resumed = config.clone();
    resumed.spec.schedule.suspend = false;
    assert!(
        decide_at(&resumed, &world, "2026-11-24T20:00:00Z")
            .create
            .is_some()
    );

    let decision = step(&mut config, &mut world, at(RUN));
    assert_eq!(
        (decision.create.is_none(), last(&decision)),
        (true, Some(at(RUN)))
    );
    assert_eq!(
        (decision.notices[0].reason.as_str(), decision.notices[0].warning),
        ("ScheduleSuspended", false)
    );
    assert_eq!(condition(&decision, types::RUN_MISSED), ("", ""));
    config.spec.schedule.suspend = false;
    let decision = step(&mut config, &mut world, at("2026-11-24T21:00:05Z"));
    assert_eq!(
        (decision.create, decision.wake_at),
        (None, Some(at("2026-12-01T17:00:00Z")))
    );
}

#[test]
fn a_run_in_a_window_makes_no_job() {
    let (mut config, mut world) = (config(), world());
    world
        .windows
        .push(window("2026-11-24T20:00:00Z", "2026-11-24T23:00:00Z"));
    let decision = step(&mut config, &mut world, at("2026-11-24T10:00:00Z"));
    let reason = "UpgradeSuspensionWindow freeze (quarter end) until Wed 2026-11-25 00:00 (Europe/Zurich) / \
                  2026-11-24 23:00 UTC";
    let shown: Vec<_> = decision.status.next_possible_schedules.iter().take(2).collect();
    assert_eq!(
        (shown[0].verdict.as_deref(), shown[0].reason.as_deref()),
        (Some("Suspended"), Some(reason))
    );
    assert_eq!(
        (shown[1].verdict.as_deref(), shown[1].reason.as_deref()),
        (Some("WillRun"), None)
    );
    assert_eq!(
        condition(&decision, types::SUSPENDED),
        ("True", "SuspensionWindow")
    );

    let decision = step(&mut config, &mut world, at(PIN));
    assert_eq!((decision.create.is_none(), last(&decision)), (true, None));
    let decision = step(&mut config, &mut world, at(RUN));
    assert_eq!(
        (decision.create.is_none(), last(&decision)),
        (true, Some(at(RUN)))
    );
    assert_eq!(decision.notices[0].reason, "SuspensionWindow");
    assert!(
        decision.notices[0]
            .note
            .contains("was suspended: UpgradeSuspensionWindow freeze (quarter end)")
    );
    assert_eq!(condition(&decision, types::SUSPENDED), ("False", "NotSuspended"));
    // The next one runs.
    assert!(
        step(&mut config, &mut world, at("2026-12-01T17:00:00Z"))
            .create
            .is_some()
    );
}

#[rstest]
#[case::ends_before_the_run("2026-11-24T20:00:00Z")]
#[case::ends_at_the_run(RUN)]
fn when_the_pin_lies_in_a_window_the_job_is_created_at_its_end(#[case] end: &str) {
    let (mut config, mut world) = (config(), world());
    world.windows.push(window("2026-11-24T16:00:00Z", end));
    let decision = step(&mut config, &mut world, at(PIN));
    assert_eq!(decision.create, None);
    assert_eq!(
        condition(&decision, types::SCHEDULED),
        ("False", "SuspensionWindow")
    );
    assert!(decision.wake_at.unwrap() <= at(end));
    let end = at(end).checked_add(SignedDuration::from_millis(3)).unwrap();
    let decision = step(&mut config.clone(), &mut world.clone(), end);
    assert_eq!(decision.create.unwrap().spec.start_after.0, at(RUN));
    // Also where nobody looked meanwhile.
    config.status = None;
    assert!(step(&mut config, &mut world, end).create.is_some());
}

#[test]
fn while_a_job_is_unfinished_no_other_is_pinned() {
    let (mut config, mut world) = (config(), world());
    step(&mut config, &mut world, at(PIN));
    step(&mut config, &mut world, at(PIN));
    world.jobs[0].status.get_or_insert_default().started_at = Some(Time(at(RUN)));
    let decision = step(&mut config, &mut world, at("2026-12-01T17:00:00Z"));
    assert_eq!(decision.create, None);
    assert_eq!(
        condition(&decision, types::SCHEDULED),
        ("False", "PreviousJobRunning")
    );
    assert_eq!(decision.wake_at, Some(at("2026-12-01T18:00:00Z")));
    let mut ended = world.clone();
    finish(&mut ended.jobs[0], types::FAILED, "TimedOut");
    assert!(
        decide_at(&config, &ended, "2026-12-01T17:59:00Z")
            .create
            .is_some()
    );
    let decision = decide_at(&config, &world, "2026-12-01T18:00:01Z");
    assert_eq!(
        (decision.create.is_none(), last(&decision)),
        (true, Some(at(NEXT_RUN)))
    );
    assert_eq!(
        condition(&decision, types::RUN_MISSED),
        ("True", "PreviousJobRunning")
    );
    assert!(decision.notices[0].note.contains(&world.jobs[0].name_any()));
}

#[test]
fn a_pinned_run_that_was_rescheduled_does_not_hide_the_new_one() {
    let (mut config, mut world) = (config(), world());
    step(&mut config, &mut world, at(PIN));
    step(&mut config, &mut world, at(PIN));
    // Half an hour later the run is moved from 22:00 to 21:30.
    config.spec.schedule.cron = "30 21 * * 2".to_owned();
    let decision = step(&mut config, &mut world, at("2026-11-24T17:30:00Z"));
    assert_eq!(
        decision.create.unwrap().spec.start_after.0,
        at("2026-11-24T20:30:00Z")
    );
}

#[rstest]
#[case("External", true, "hosted outside")]
#[case("SingleReplica", false, "no MachineConfigPools")]
fn unsupported_clusters_get_no_jobs(#[case] topology: &str, #[case] pools: bool, #[case] why: &str) {
    let mut world = world();
    world.control_plane_topology = Some(topology.to_owned());
    if !pools {
        world.pools.clear();
    }
    let decision = decide_at(&config(), &world, PIN);
    assert_eq!((&decision.create, last(&decision)), (&None, None));
    assert_eq!(
        condition(&decision, types::VALID),
        ("False", "UnsupportedTopology")
    );
    assert!(message(&decision, types::VALID).contains(why));
    assert!(decision.status.next_possible_schedules.is_empty());
}

#[rstest]
#[case(
    "/spec/schedule/cron",
    "0 22 * * 7",
    "spec.schedule: cron \"0 22 * * 7\": day of week"
)]
#[case(
    "/spec/schedule/location",
    "UTC+2",
    "spec.schedule: location: \"UTC+2\" is an offset"
)]
#[case("/spec/schedule/isoWeek", "odd", "spec.schedule: isoWeek \"odd\"")]
#[case(
    "/spec/pinVersionWindow",
    "4 hours",
    "spec.pinVersionWindow: \"4 hours\" is not a duration"
)]
fn a_bad_config_says_what_is_wrong_and_gets_no_jobs(
    #[case] field: &str,
    #[case] value: &str,
    #[case] why: &str,
) {
    let mut bad = serde_json::to_value(config()).unwrap();
    bad["spec"]["schedule"]["isoWeek"] = json!("");
    *bad.pointer_mut(field).unwrap() = json!(value);
    let (mut config, mut world) = (serde_json::from_value(bad).unwrap(), world());
    let decision = step(&mut config, &mut world, at(PIN));
    assert_eq!((&decision.create, decision.wake_at), (&None, None));
    assert_eq!(condition(&decision, types::VALID), ("False", "Invalid"));
    assert!(
        message(&decision, types::VALID).starts_with(why),
        "{}",
        message(&decision, types::VALID)
    );
    assert_eq!(decision.notices.len(), 1);
    assert_eq!(step(&mut config, &mut world, at(RUN)).notices, [], "said once");
}

#[test]
fn a_schedule_that_never_fires_is_said_once() {
    let (mut config, mut world) = (config(), world());
    config.spec.schedule.cron = "30 2 31 2 *".to_owned();
    let decision = step(&mut config, &mut world, at(PIN));
    assert_eq!(condition(&decision, types::SCHEDULED), ("False", "NeverRuns"));
    assert_eq!((decision.notices.len(), decision.wake_at), (1, None));
    assert_eq!(step(&mut config, &mut world, at(RUN)).notices, []);
}

#[test]
fn warnings_about_the_schedule_are_in_the_condition() {
    let mut config = config();
    config.spec.schedule.cron = "TZ=Asia/Tokyo 0 22 * * 2".to_owned();
    let decision = decide_at(&config, &world(), PIN);
    assert_eq!(condition(&decision, types::VALID).0, "True");
    assert!(message(&decision, types::VALID).contains("Asia/Tokyo"));
}

#[test]
fn a_config_that_is_deleted_is_left_alone() {
    let mut config = config();
    config.metadata.deletion_timestamp = Some(Time(at(PIN)));
    let decision = decide_at(&config, &world(), PIN);
    assert_eq!(
        (decision.create, decision.status, decision.wake_at),
        (None, UpgradeConfigStatus::default(), None)
    );
}

/// One letter a job, oldest first: Succeeded, sKipped, Failed, Running, Exit hook running; returns those deleted.
fn kept_of(outcomes: &str, successful: Option<i32>, failed: Option<i32>) -> String {
    let (mut config, mut world) = (config(), world());
    config.spec.successful_jobs_history_limit = successful;
    config.spec.failed_jobs_history_limit = failed;
    for (n, outcome) in outcomes.chars().enumerate() {
        let run = at(RUN)
            .checked_sub(SignedDuration::from_hours(
                24 * 7 * (40 - i64::try_from(n).unwrap()),
            ))
            .unwrap();
        let mut job = job::of_run(&config, run, None, None);
        job.metadata.uid = Some(n.to_string());
        match outcome {
            'S' => finish(&mut job, types::SUCCEEDED, "Succeeded"),
            'K' => finish(&mut job, types::SUCCEEDED, "Skipped"),
            'F' => finish(&mut job, types::FAILED, "TimedOut"),
            'E' => {
                finish(&mut job, types::SUCCEEDED, "Succeeded");
                let hook = json!({"hookEvent": "Finish", "upgradeJobHook": "h", "status": "active"});
                job.status
                    .get_or_insert_default()
                    .hook_tracker
                    .push(serde_json::from_value(hook).unwrap());
            }
            _ => {}
        }
        world.jobs.push(job);
    }
    let deleted = decide_at(&config, &world, "2026-11-21T00:00:00Z").delete_jobs;
    let deleted: BTreeSet<usize> = deleted.iter().map(|(_, uid)| uid.parse().unwrap()).collect();
    outcomes
        .chars()
        .enumerate()
        .map(|(n, o)| if deleted.contains(&n) { '-' } else { o })
        .collect()
}

#[rstest]
#[case::four_by_default("SSSSSS", None, None, "--SSSS")]
#[case::failed_are_kept_by_default("FFFFFFF", None, None, "FFFFFFF")]
#[case::skipped_counts_as_successful("SSKSKS", Some(2), None, "----KS")]
#[case::the_last_real_success_stays("SSKKK", Some(2), None, "-S-KK")]
#[case::zero_is_unlimited("SSSSSS", Some(0), Some(-1), "SSSSSS")]
#[case::failed("FSFSF", Some(1), Some(1), "---SF")]
#[case::running_is_never_deleted("RSS", Some(1), None, "R-S")]
#[case::exit_hook_is_waited_for("ESS", Some(1), None, "E-S")]
fn old_jobs_go(
    #[case] jobs: &str,
    #[case] successful: Option<i32>,
    #[case] failed: Option<i32>,
    #[case] kept: &str,
) {
    assert_eq!(kept_of(jobs, successful, failed), kept);
}

#[derive(Debug, Clone)]
struct Story {
    cron: &'static str,
    pin: &'static str,
    windows: Vec<(i64, i64)>,
    suspended: Vec<(i64, i64)>,
    down: Vec<(i64, i64)>,
    unknown: Vec<(i64, i64)>,
    job_minutes: i64,
}

fn spans() -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec(
        (0..20_000i64, 1..3_000i64).prop_map(|(from, length)| (from, from + length)),
        0..3,
    )
}

prop_compose! {
    fn story()(
        cron in prop::sample::select(vec!["0 22 * * 2", "30 2 * * *", "0 */6 * * *"]),
        pin in prop::sample::select(vec!["0", "30m", "4h", "26h"]),
        windows in spans(), suspended in spans(), down in spans(), unknown in spans(), job_minutes in 10..900i64,
    ) -> Story {
        Story { cron, pin, windows, suspended, down, unknown, job_minutes }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Two weeks around a clock change, every five minutes, with everything that can happen.
    #[test]
    fn every_run_makes_one_job_or_is_recorded(story in story()) {
        let begin = at("2026-10-20T00:00:00Z");
        let minute = |n: i64| begin.checked_add(SignedDuration::from_mins(n)).unwrap();
        let inside = |spans: &[(i64, i64)], n: i64| spans.iter().any(|(from, to)| (*from..*to).contains(&n));
        let (mut config, mut world) = (config(), world());
        config.metadata.creation_timestamp = Some(Time(begin));
        config.spec.schedule.cron = story.cron.to_owned();
        config.spec.pin_version_window = Some(crate::api::GoDuration(story.pin.to_owned()));
        world.windows = story.windows.iter()
            .map(|(from, to)| window(&minute(*from).to_string(), &minute(*to).to_string())).collect();
        let mut recorded = Vec::new();
        for n in (0..20_160).step_by(5) {
            if inside(&story.down, n) {
                continue;
            }
            let now = minute(n);
            config.spec.schedule.suspend = inside(&story.suspended, n);
            let retrieved = if inside(&story.unknown, n) { "False" } else { "True" };
            world.cluster_version = Some(cluster_version(&offered(), retrieved));
            for job in &mut world.jobs {
                if now >= job.spec.start_after.0.checked_add(SignedDuration::from_mins(story.job_minutes)).unwrap() {
                    finish(job, types::SUCCEEDED, "Succeeded");
                }
            }
            let unfinished = world.jobs.iter().filter(|j| !job::is_finished(j)).count();
            let decision = step(&mut config, &mut world, now);
            if let Some(job) = &decision.create {
                prop_assert_eq!(unfinished, 0);
                prop_assert!(!config.spec.schedule.suspend);
                prop_assert!(now < job.spec.start_before.0, "created when it cannot start any more");
                prop_assert!(!inside(&story.windows, n), "created inside a window");
            }
            prop_assert!(decision.wake_at.is_some_and(|t| t > now));
            recorded.extend(last(&decision));
        }
        prop_assert!(recorded.is_sorted(), "time ran backwards");
        let schedule = Schedule::parse(&config.spec.schedule, &settings().zones).unwrap().schedule;
        let starts: Vec<Timestamp> = world.jobs.iter().map(|j| j.spec.start_after.0).collect();
        prop_assert_eq!(starts.iter().collect::<BTreeSet<_>>().len(), starts.len(), "a run has two jobs");
        prop_assert!(starts.iter().all(|start| schedule.contains(*start)));
        // Whatever was not in the way of anything has run.
        let untouched = story.windows.is_empty() && story.suspended.is_empty() && story.down.is_empty()
            && story.unknown.is_empty() && story.job_minutes < 300 && story.pin != "26h";
        if untouched {
            let due = schedule.upcoming(begin, 100).into_iter().filter(|run| *run < minute(20_000)).count();
            prop_assert!(starts.len() >= due);
        }
    }
}
