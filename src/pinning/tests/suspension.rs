use super::*;

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
