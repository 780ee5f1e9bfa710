//! The schedule is edited, or a pinned job deleted, between the pin and the run.

use super::*;
use crate::unreadable::{Kind, Unreadable};

/// The run of the 24th is pinned and recorded; then the config is edited.
fn pinned() -> (UpgradeConfig, World) {
    let (mut config, mut world) = (config(), world());
    step(&mut config, &mut world, at(PIN));
    step(&mut config, &mut world, at(PIN));
    assert_eq!(world.jobs.len(), 1);
    (config, world)
}

fn edit(config: &mut UpgradeConfig, cron: &str) {
    config.spec.schedule.cron = cron.to_owned();
    config.metadata.generation = config.metadata.generation.map(|g| g + 1);
}

fn starts(world: &World) -> Vec<String> {
    let mut all: Vec<_> = world.jobs.iter().map(|j| j.spec.start_after.0).collect();
    all.sort();
    all.iter().map(ToString::to_string).collect()
}

fn verdict<'a>(decision: &'a ConfigDecision, run: &str) -> (&'a str, &'a str) {
    let shown = decision.status.next_possible_schedules.iter();
    shown
        .filter(|n| n.time.0 == at(run))
        .find_map(|n| Some((n.verdict.as_deref()?, n.reason.as_deref().unwrap_or(""))))
        .unwrap_or(("", ""))
}

/// 20:00 is added to 22:00, which is pinned.
#[rstest]
#[case::before_its_pin_is_over("2026-11-24T17:30:00Z")]
#[case::long_after_its_pin("2026-11-24T18:40:00Z")]
fn a_run_that_is_added_before_a_pinned_one_makes_its_job(#[case] edited: &str) {
    let (mut config, mut world) = pinned();
    edit(&mut config, "0 20,22 * * 2");
    let decision = step(&mut config, &mut world, at(edited));
    let run = "2026-11-24T19:00:00Z";
    assert_eq!(decision.create.map(|j| j.spec.start_after.0), Some(at(run)));
    let decision = step(&mut config, &mut world, at(edited));
    assert_eq!(starts(&world), [run, RUN]);
    assert!(
        verdict(&decision, run).1.starts_with("UpgradeJob"),
        "{:?}",
        verdict(&decision, run)
    );
    assert!(
        verdict(&decision, RUN).1.starts_with("UpgradeJob"),
        "{:?}",
        verdict(&decision, RUN)
    );
    assert_eq!(last(&decision), Some(at(RUN)), "the newest that was decided");
    assert_eq!(condition(&decision, types::RUN_MISSED), ("", ""));
    let again = step(&mut config, &mut world, at(RUN));
    assert_eq!((again.create, again.notices), (None, vec![]));
}

#[test]
fn a_run_that_is_added_before_a_pinned_one_waits_for_its_pin() {
    let (mut config, mut world) = pinned();
    config.spec.pin_version_window = Some(crate::api::GoDuration("30m".to_owned()));
    edit(&mut config, "0 20,22 * * 2");
    let decision = step(&mut config, &mut world, at("2026-11-24T17:30:00Z"));
    assert_eq!(
        (decision.create, decision.wake_at),
        (None, Some(at("2026-11-24T18:30:00Z")))
    );
    let decision = step(&mut config, &mut world, at("2026-11-24T18:30:00Z"));
    assert_eq!(
        decision.create.map(|j| j.spec.start_after.0),
        Some(at("2026-11-24T19:00:00Z"))
    );
}

#[test]
fn a_run_that_was_added_before_a_pinned_one_and_not_made_is_missed_for_its_own_reason() {
    let (mut config, mut world) = pinned();
    edit(&mut config, "0 20,22 * * 2");
    world.cluster_version = Some(cluster_version(&Value::Null, "False"));
    let run = "2026-11-24T19:00:00Z";
    for waits in ["2026-11-24T17:30:00Z", "2026-11-24T18:59:59Z"] {
        let decision = step(&mut config, &mut world, at(waits));
        assert_eq!(
            condition(&decision, types::SCHEDULED),
            ("False", "UpdatesUnknown")
        );
        assert_eq!(verdict(&decision, run), ("WillRun", ""), "{waits}");
    }
    let decision = step(&mut config, &mut world, at("2026-11-24T19:01:01Z"));
    assert_eq!(
        condition(&decision, types::RUN_MISSED),
        ("True", "UpdatesUnknown")
    );
    let recorded = decision
        .status
        .recent_runs
        .iter()
        .find(|r| r.time.0 == at(run))
        .unwrap();
    assert_eq!(recorded.verdict, "Missed");
    assert!(
        recorded.reason.as_deref().unwrap().contains("server away"),
        "{recorded:?}"
    );
    assert_eq!(last(&decision), Some(at(RUN)));
    let again = step(&mut config, &mut world, at("2026-11-24T19:02:00Z"));
    assert_eq!(again.notices, [], "said once");
}

/// A run that was missed long ago is not the reason of one to come.
#[test]
fn the_reason_of_a_run_is_never_that_of_another() {
    let (mut config, mut world) = (config(), world());
    config.spec.pin_version_window = Some(crate::api::GoDuration("200h".to_owned()));
    config.metadata.creation_timestamp = Some(Time(at("2026-11-10T00:00:00Z")));
    // Nobody looked at the pin of the 17th; that of the 24th is waited for.
    let decision = step(&mut config, &mut world, at("2026-11-16T13:30:00Z"));
    assert_eq!(verdict(&decision, "2026-11-17T21:00:00Z").0, "Missed");
    let why = verdict(&decision, "2026-11-17T21:00:00Z").1.to_owned();
    assert!(why.contains("maxSchedulingDelay"), "{why}");
    step(&mut config, &mut world, at("2026-11-16T13:30:00Z"));
    assert_eq!(world.jobs.len(), 1);
    world.jobs.clear();
    let decision = step(&mut config, &mut world, at("2026-11-16T14:00:00Z"));
    assert_eq!(
        verdict(&decision, "2026-11-17T21:00:00Z"),
        ("Missed", why.as_str())
    );
    let deleted = verdict(&decision, RUN);
    assert!(
        deleted.0 == "Missed" && deleted.1.contains("was deleted"),
        "{deleted:?}"
    );
}

/// As an earlier version wrote it: `UpgradeMissed` would fire for what a person did.
#[rstest]
#[case::served("0 22 * * 2", "JobDeleted", "")]
#[case::not_served("0 22 * * 7", "JobDeleted", "")]
#[case::missed_for_another_reason("0 22 * * 2", "NotCreatedInTime", "True")]
fn a_run_whose_job_was_deleted_is_not_called_missed_any_more(
    #[case] cron: &str,
    #[case] reason: &str,
    #[case] expected: &str,
) {
    let (mut config, mut world) = pinned();
    let (said, conditions) = (at(PIN), &mut config.status.as_mut().unwrap().conditions);
    conditions::set(conditions, types::RUN_MISSED, true, reason, "m", None, said);
    edit(&mut config, cron);
    world.jobs.clear();
    let decision = step(&mut config, &mut world, at("2026-11-24T17:10:00Z"));
    assert_eq!(condition(&decision, types::RUN_MISSED).0, expected);
}

#[test]
fn a_pinned_job_that_was_deleted_is_not_made_again_and_said() {
    let (mut config, mut world) = pinned();
    let name = world.jobs[0].name_any();
    world.jobs.clear();
    let decision = step(&mut config, &mut world, at("2026-11-24T17:10:00Z"));
    assert_eq!(decision.create, None);
    // A person took it out: that is said, and nothing that somebody has to mend.
    assert_eq!(condition(&decision, types::RUN_MISSED), ("", ""));
    assert_eq!(
        (decision.notices.len(), decision.notices[0].reason.as_str()),
        (1, "JobDeleted")
    );
    assert!(
        decision.notices[0]
            .note
            .contains(&format!("UpgradeJob {name} was deleted"))
    );
    assert_eq!(verdict(&decision, RUN).0, "Missed");
    // Neither later, nor after the schedule was edited to and fro, nor by a clock that was set back.
    edit(&mut config, "30 21 * * 2");
    step(&mut config, &mut world, at("2026-11-24T17:20:00Z"));
    step(&mut config, &mut world, at("2026-11-24T17:20:01Z"));
    assert_eq!(
        starts(&world),
        ["2026-11-24T20:30:00Z"],
        "that of the edited schedule is another one"
    );
    edit(&mut config, "0 22 * * 2");
    for t in [
        "2026-11-24T17:30:00Z",
        "2026-11-20T08:00:00Z",
        "2026-11-24T20:59:59Z",
        "2026-11-24T21:00:01Z",
    ] {
        let decision = step(&mut config, &mut world, at(t));
        assert_eq!((decision.create, decision.notices), (None, vec![]), "{t}");
    }
    // The next run is as any other.
    finish(&mut world.jobs[0], types::SUCCEEDED, "Skipped");
    assert!(
        step(&mut config, &mut world, at("2026-12-01T17:00:00Z"))
            .create
            .is_some()
    );
    let decision = step(&mut config, &mut world, at("2026-12-01T17:00:00Z"));
    assert_eq!(condition(&decision, types::RUN_MISSED), ("", ""));
}

/// Only jobs that are gone before their run count: a job that ran may be deleted by anybody.
#[test]
fn a_job_that_is_deleted_after_its_run_is_nothing_to_tell() {
    let (mut config, mut world) = pinned();
    step(&mut config, &mut world, at(RUN));
    world.jobs.clear();
    let decision = step(&mut config, &mut world, at("2026-11-25T00:00:00Z"));
    assert_eq!(
        (&decision.notices[..], condition(&decision, types::RUN_MISSED)),
        (&[][..], ("", ""))
    );
}

#[test]
fn a_pinned_job_that_cannot_be_read_is_not_a_deleted_one() {
    let (mut config, mut world) = pinned();
    let name = world.jobs.remove(0).name_any();
    world.unreadable = vec![Unreadable::named(Kind::UpgradeJob, &name)];
    let decision = step(&mut config, &mut world, at("2026-11-24T17:10:00Z"));
    assert_eq!((decision.notices, decision.create), (vec![], None));
}

/// What the edited schedule would have had in the past was never a run.
#[test]
fn days_that_an_edit_adds_to_the_past_are_not_missed() {
    let (mut config, mut world) = pinned();
    step(&mut config, &mut world, at("2026-11-24T21:00:00Z"));
    finish(&mut world.jobs[0], types::SUCCEEDED, "Succeeded");
    step(&mut config, &mut world, at("2026-11-24T23:00:00Z"));
    edit(&mut config, "0 22 * * *");
    let decision = step(&mut config, &mut world, at("2026-11-28T10:00:00Z"));
    assert_eq!(
        (&decision.notices, condition(&decision, types::RUN_MISSED)),
        (&vec![], ("", ""))
    );
    assert_eq!(decision.wake_at, Some(at("2026-11-28T17:00:00Z")));
    let next = decision.status.next_possible_schedules[0].time.0;
    assert_eq!(next, at("2026-11-28T21:00:00Z"));
}

/// A run that the old schedule had while nobody was there is missed, whatever the edit made of it.
#[test]
fn a_run_that_was_missed_before_an_edit_is_missed_still() {
    let (mut config, mut world) = pinned();
    finish(&mut world.jobs[0], types::SUCCEEDED, "Succeeded");
    edit(&mut config, "0 22 * * *");
    let decision = step(&mut config, &mut world, at("2026-12-03T10:00:00Z"));
    let missed: Vec<String> = decision
        .status
        .recent_runs
        .iter()
        .filter(|r| r.verdict == "Missed")
        .map(|r| r.time.0.to_string())
        .collect();
    assert_eq!(missed, [NEXT_RUN]);
}

/// As with one that is created between pin and run: there was no time to be earlier.
#[test]
fn a_run_that_an_edit_adds_after_its_pin_is_made_at_once() {
    let (mut config, mut world) = (config(), world());
    step(&mut config, &mut world, at("2026-11-23T10:00:00Z"));
    edit(&mut config, "0 20 * * 1");
    let decision = step(&mut config, &mut world, at("2026-11-23T18:50:00Z"));
    assert_eq!(
        decision.create.map(|j| j.spec.start_after.0),
        Some(at("2026-11-23T19:00:00Z"))
    );
}

#[test]
fn what_became_of_recent_runs_stays_to_be_read_and_is_bounded() {
    let (mut config, mut world) = (config(), world());
    config.spec.schedule.cron = "0 22 * * *".to_owned();
    world
        .windows
        .push(window("2026-11-21T00:00:00Z", "2026-11-22T23:00:00Z"));
    let mut now = at("2026-11-20T08:00:00Z");
    let mut status = UpgradeConfigStatus::default();
    while now < at("2026-12-31T00:00:00Z") {
        status = step(&mut config, &mut world, now).status;
        for job in &mut world.jobs {
            if job.spec.start_after.0 < now {
                finish(job, types::SUCCEEDED, "Succeeded");
            }
        }
        now = now.checked_add(SignedDuration::from_mins(30)).unwrap();
        if now == at("2026-11-24T08:00:00Z") {
            let said: Vec<String> = status
                .recent_runs
                .iter()
                .map(|r| {
                    format!(
                        "{} {} {} {}",
                        r.time.0,
                        r.verdict,
                        r.upgrade_job.is_some(),
                        r.reason.as_deref().unwrap_or("")
                    )
                })
                .collect();
            let why = "UpgradeSuspensionWindow freeze (quarter end) until Mon 2026-11-23 00:00 (Europe/Zurich) / \
                       2026-11-22 23:00 UTC";
            assert_eq!(
                said,
                [
                    "2026-11-20T21:00:00Z JobCreated true ".to_owned(),
                    format!("2026-11-21T21:00:00Z Suspended false {why}"),
                    format!("2026-11-22T21:00:00Z Suspended false {why}"),
                    "2026-11-23T21:00:00Z JobCreated true ".to_owned(),
                ]
            );
        }
    }
    assert_eq!(status.recent_runs.len(), 20);
    assert_eq!(status.recent_runs[19].time.0, at("2026-12-30T21:00:00Z"));
}

/// The Event of a suspended run is gone after an hour; the condition tells until the run after it.
#[test]
fn the_condition_says_that_the_run_before_was_suspended() {
    let (mut config, mut world) = (config(), world());
    world
        .windows
        .push(window("2026-11-24T20:00:00Z", "2026-11-24T23:00:00Z"));
    step(&mut config, &mut world, at(PIN));
    step(&mut config, &mut world, at(RUN));
    world.windows.clear();
    let decision = step(&mut config, &mut world, at("2026-11-28T00:00:00Z"));
    assert_eq!(condition(&decision, types::SUSPENDED), ("False", "NotSuspended"));
    assert_eq!(
        message(&decision, types::SUSPENDED),
        "nothing suspends the next run; the run at Tue 2026-11-24 22:00 (Europe/Zurich) / 2026-11-24 21:00 UTC was \
         suspended: UpgradeSuspensionWindow freeze (quarter end) until Wed 2026-11-25 00:00 (Europe/Zurich) / \
         2026-11-24 23:00 UTC"
    );
    step(&mut config, &mut world, at("2026-12-01T17:00:00Z"));
    let decision = step(&mut config, &mut world, at("2026-12-01T17:00:01Z"));
    assert_eq!(
        message(&decision, types::SUSPENDED),
        "nothing suspends the next run"
    );
}

/// The run has come and waits for the clocks to agree, which it may for `maxSchedulingDelay`; then the schedule is suspended.
/// The run was announced, so it is on record what became of it.
#[test]
fn a_run_that_still_waits_when_its_schedule_is_suspended_is_recorded() {
    let (mut config, mut world) = (config(), world());
    config.spec.max_scheduling_delay = Some(crate::api::GoDuration("6h".to_owned()));
    config.spec.max_upgrade_start_delay = Some(crate::api::GoDuration("4h".to_owned()));
    world.outside = crate::outside::Outside {
        clock_ahead: SignedDuration::from_secs(-300),
        peer: None,
    };
    for now in [PIN, RUN, "2026-11-24T21:20:00Z"] {
        let decision = step(&mut config, &mut world, at(now));
        assert_eq!(last(&decision), None, "{now}");
        assert_eq!(
            decision.status.next_possible_schedules[0].time.0,
            at(RUN),
            "{now}"
        );
        assert!(
            decision
                .wake_at
                .is_some_and(|t| t > at(now).saturating_add(SignedDuration::from_mins(1)).unwrap()),
            "{now}"
        );
    }
    config.spec.schedule.suspend = true;
    config.metadata.generation = config.metadata.generation.map(|g| g + 1);
    let decision = step(&mut config, &mut world, at("2026-11-24T21:22:54Z"));
    assert_eq!(last(&decision), Some(at(RUN)));
    let recorded = decision
        .status
        .recent_runs
        .iter()
        .find(|r| r.time.0 == at(RUN))
        .unwrap();
    assert_eq!(recorded.verdict, "ScheduleSuspended");
    assert_eq!(decision.status.next_possible_schedules[0].time.0, at(NEXT_RUN));
}
