use super::*;

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
    let shown = &decision.status.next_possible_schedules[0];
    assert_eq!(
        shown.reason,
        Some(format!("UpgradeJob {} to 4.18.9", world.jobs[0].name_any()))
    );
    // Nothing changes any more.
    let again = step(&mut config, &mut world, at("2026-11-24T17:00:07Z"));
    assert_eq!((&again.status, &again.notices), (&decision.status, &vec![]));
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
    assert_eq!(last(&decision) == Some(at(RUN)), adopted);
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

/// Nothing was upgraded, so whatever upgrades since makes up for it; and nobody is asked to wait for the next run.
#[rstest]
#[case::it_has_started("2026-11-26T21:00:00Z", true, ("False", "JobCreated"))]
#[case::it_waits_for_its_start("2026-11-26T21:00:00Z", false, ("True", "NotCreatedInTime"))]
#[case::it_was_before("2026-11-23T21:00:00Z", true, ("True", "NotCreatedInTime"))]
fn a_missed_run_is_made_up_for_by_a_job_made_by_hand(
    #[case] start: &str,
    #[case] has_started: bool,
    #[case] expected: (&str, &str),
) {
    let (mut config, mut world) = (config(), world());
    step(&mut config, &mut world, at("2026-11-24T20:00:00Z"));
    let started = json!({"type": "Started", "status": "True", "reason": "Started", "message": "", "lastTransitionTime": start});
    let conditions = if has_started { vec![started] } else { Vec::new() };
    let job = json!({
        "metadata": {"name": "by-hand", "namespace": "ns", "uid": "by-hand"},
        "spec": {"startAfter": start, "startBefore": "2026-11-30T00:00:00Z"}, "status": {"conditions": conditions},
    });
    world.jobs = vec![serde_json::from_value(job).unwrap()];
    let decision = step(&mut config, &mut world, at("2026-11-27T00:00:00Z"));
    assert_eq!(condition(&decision, types::RUN_MISSED), expected);
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
    // It is waited for until the run begins, however short maxSchedulingDelay is.
    step(&mut config, &mut world, at("2026-12-01T17:00:01Z"));
    let mut ended = world.clone();
    finish(&mut ended.jobs[0], types::FAILED, "TimedOut");
    for in_time in ["2026-12-01T17:59:00Z", "2026-12-01T20:59:59Z"] {
        assert!(decide_at(&config, &ended, in_time).create.is_some(), "{in_time}");
    }
    let decision = decide_at(&config, &world, "2026-12-01T21:05:00Z");
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

#[test]
fn a_clock_that_steps_back_makes_no_second_job_and_records_nothing_twice() {
    let (mut config, mut world) = (config(), world());
    step(&mut config, &mut world, at(PIN));
    let recorded = step(&mut config, &mut world, at(PIN));
    for earlier in [
        "2026-11-24T16:00:00Z",
        "2026-11-20T08:00:00Z",
        "2026-11-01T00:00:00Z",
    ] {
        let decision = step(&mut config, &mut world, at(earlier));
        assert_eq!(
            (&decision.create, &decision.notices),
            (&None, &vec![]),
            "{earlier}"
        );
        assert_eq!(last(&decision), last(&recorded), "{earlier}");
    }
    // Also where its job is gone by then.
    world.jobs.clear();
    assert_eq!(step(&mut config, &mut world, at(PIN)).create, None);
}

#[test]
fn hundreds_of_missed_runs_are_one_record() {
    let mut config = config();
    config.spec.schedule.cron = "0 * * * *".to_owned();
    let mut world = world();
    // 24 runs a day for 25 days.
    let decision = step(&mut config, &mut world, at("2026-12-15T08:30:00Z"));
    assert_eq!((decision.create.is_some(), decision.notices.len()), (true, 2));
    let missed: Vec<_> = decision.notices.iter().filter(|n| n.warning).collect();
    assert!(
        missed[0].note.contains("before it were missed"),
        "{}",
        missed[0].note
    );
    assert_eq!(last(&decision), Some(at("2026-12-15T11:00:00Z")));
}

#[test]
fn a_config_that_is_created_again_in_mid_run_waits_for_the_running_job() {
    let (mut old, mut world) = (config(), world());
    step(&mut old, &mut world, at(PIN));
    // It was started, which dropped its owner reference; then the config was deleted, and created again.
    world.jobs[0].metadata.owner_references = None;
    world.jobs[0].status.get_or_insert_default().started_at = Some(Time(at(RUN)));
    let mut new = config();
    new.metadata.uid = Some("another-uid".to_owned());
    new.metadata.creation_timestamp = Some(Time(at("2026-11-24T21:10:00Z")));
    new.spec.schedule.cron = "30 22 * * 2".to_owned();
    new.spec.pin_version_window = None;
    let decision = step(&mut new, &mut world, at("2026-11-24T21:30:00Z"));
    assert_eq!(decision.create, None);
    assert_eq!(
        condition(&decision, types::SCHEDULED),
        ("False", "PreviousJobRunning")
    );
    finish(&mut world.jobs[0], types::SUCCEEDED, "Succeeded");
    let decision = step(&mut new, &mut world, at("2026-11-24T22:00:00Z"));
    assert!(
        decision.create.is_some(),
        "{}",
        message(&decision, types::SCHEDULED)
    );
}

#[test]
fn a_run_waits_for_the_list_of_updates_also_while_an_earlier_run_is_still_ahead() {
    let (mut config, mut world) = (config(), world());
    config.spec.schedule.cron = "0 22 * * *".to_owned();
    config.spec.pin_version_window = Some(crate::api::GoDuration("26h".to_owned()));
    // The run of the 21st was due at 19:00 on the 20th, when nobody looked.
    let decision = step(&mut config, &mut world, at("2026-11-20T22:00:00Z"));
    assert_eq!(last(&decision), Some(at("2026-11-21T21:00:00Z")), "missed");
    // That of the 22nd is due at 19:00 on the 21st; its updates are unknown until 20:30.
    world.cluster_version = Some(cluster_version(&Value::Null, "False"));
    step(&mut config, &mut world, at("2026-11-21T19:00:00Z"));
    step(&mut config, &mut world, at("2026-11-21T19:59:00Z"));
    world.cluster_version = Some(cluster_version(&offered(), "True"));
    let decision = step(&mut config, &mut world, at("2026-11-21T20:30:00Z"));
    assert_eq!(
        decision.create.map(|j| j.spec.start_after.0),
        Some(at("2026-11-22T21:00:00Z"))
    );
}

/// A window of a week over a weekly schedule: each job is unfinished when the next one is to be pinned.
#[test]
fn a_run_that_is_pinned_before_the_one_before_it_has_ended_is_not_lost() {
    let (mut config, mut world) = (config(), world());
    config.spec.pin_version_window = Some(serde_json::from_value(json!("168h")).unwrap());
    step(&mut config, &mut world, at("2026-11-20T08:00:00Z"));
    step(&mut config, &mut world, at("2026-11-20T08:00:01Z"));
    assert_eq!(world.jobs.len(), 1);
    world.jobs[0].status.get_or_insert_default().started_at = Some(Time(at(RUN)));
    // The next one is due now, and again long after maxSchedulingDelay.
    for waits in [RUN, "2026-11-24T21:00:01Z", "2026-11-24T22:20:00Z"] {
        let decision = step(&mut config, &mut world, at(waits));
        assert_eq!(decision.create, None);
        assert_eq!(
            condition(&decision, types::SCHEDULED),
            ("False", "PreviousJobRunning")
        );
    }
    finish(&mut world.jobs[0], types::SUCCEEDED, "Succeeded");
    let decision = step(&mut config, &mut world, at("2026-11-24T22:22:00Z"));
    assert_eq!(decision.create.unwrap().spec.start_after.0, at(NEXT_RUN));
}

/// As a GitOps tool does that prunes and creates: the job of the run went with the old config.
#[rstest]
#[case::before_the_pin("2026-11-24T16:00:00Z", "2026-11-24T17:30:00Z", true)]
#[case::between_pin_and_run("2026-11-24T20:40:00Z", "2026-11-24T20:40:10Z", true)]
#[case::right_before_the_run("2026-11-24T20:59:50Z", "2026-11-24T20:59:55Z", true)]
#[case::looked_at_too_late("2026-11-24T18:40:00Z", "2026-11-24T19:50:00Z", false)]
fn a_config_that_is_created_again_before_a_run_makes_its_job(
    #[case] created: &str,
    #[case] looked_at: &str,
    #[case] is_made: bool,
) {
    let mut config = config();
    config.metadata.creation_timestamp = Some(Time(at(created)));
    let decision = decide_at(&config, &world(), looked_at);
    let run = decision.create.as_ref().map(|job| job.spec.start_after.0);
    assert_eq!(run, is_made.then_some(at(RUN)));
}
