use k8s_openapi::api::core::v1::ObjectReference;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::simulator::rehearsal::fixtures::*;

const RUNS: [&str; 4] = [
    "2026-12-01T21:00:00Z",
    "2026-12-08T21:00:00Z",
    "2026-12-15T21:00:00Z",
    "2026-12-22T21:00:00Z",
];

/// Run and reason of those without a job.
fn skipped_of(recording: &Recording) -> Vec<(String, Fate, String)> {
    let all = Story::of(recording).skipped;
    all.into_iter()
        .map(|s| (s.run.to_string(), s.fate, s.reason))
        .collect()
}

fn next(run: &str, verdict: &str, reason: &str) -> Value {
    json!({"nextPossibleSchedules": [{"time": run, "verdict": verdict, "reason": reason}]})
}

fn event(uid: &str) -> ObjectReference {
    ObjectReference {
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

#[test]
fn every_run_is_a_job_or_skipped_with_its_reason() {
    let mut recording = recording();
    let config = config("c", &json!({}));
    recording.see_config(&config, at(FROM));
    let running = job(
        &config,
        RUNS[0],
        json!({"phase": "Running", "startedAt": RUNS[0]}),
    );
    recording.see_job(&running, at(RUNS[0]));
    let done = job(&config, RUNS[0], succeeded(RUNS[0], "2026-12-01T23:00:00Z"));
    recording.see_job(&done, at("2026-12-01T23:00:00Z"));
    let status = next(RUNS[1], "Suspended", "UpgradeSuspensionWindow w");
    recording.see_config(&with_status(&config, status), at("2026-12-08T20:00:00Z"));
    let status = json!({"lastScheduledUpgrade": RUNS[1]});
    recording.see_config(&with_status(&config, status), at(RUNS[1]));
    let status = json!({"lastScheduledUpgrade": RUNS[2], "conditions":
        [condition("RunMissed", "True", "PreviousJobRunning", "the run at X was missed: j has not ended")]});
    recording.see_config(&with_status(&config, status), at("2026-12-15T22:00:00Z"));
    recording.see_job(&job(&config, RUNS[3], skipped(RUNS[3], "window")), at(RUNS[3]));

    let story = Story::of(&recording);
    let jobs: Vec<_> = story
        .jobs
        .iter()
        .map(|t| (t.job.run, t.config.as_deref(), t.job.phase))
        .collect();
    assert_eq!(
        jobs,
        [
            (at(RUNS[0]), Some("c"), JobPhase::Succeeded),
            (at(RUNS[3]), Some("c"), JobPhase::Skipped)
        ]
    );
    assert_eq!(
        skipped_of(&recording),
        [
            (
                RUNS[1].to_owned(),
                Fate::Suspended,
                "UpgradeSuspensionWindow w".to_owned()
            ),
            (
                RUNS[2].to_owned(),
                Fate::Missed,
                "the run at X was missed: j has not ended".to_owned()
            ),
        ]
    );
    let expected = Totals {
        runs: 4,
        succeeded: 1,
        failed: 0,
        skipped: 3,
        unfinished: 0,
    };
    assert_eq!(story.totals(), expected);
    assert_eq!(story.longest().unwrap().1, SignedDuration::from_hours(2));
}

#[rstest]
#[case::nothing_said(json!({"lastScheduledUpgrade": RUNS[3]}), Fate::Unaccounted, "nothing was said about it")]
#[case::announced_as_missed(next(RUNS[3], "Missed", "too late"), Fate::Missed, "too late")]
#[case::switched_off(next(RUNS[3], "ScheduleSuspended", "suspend is true"), Fate::Suspended, "suspend is true")]
#[case::another_run(next(RUNS[2], "Suspended", "w"), Fate::Unaccounted, "nothing was said about it")]
#[case::not_served(json!({"conditions": [condition("Valid", "False", "Invalid", "spec.schedule: bad")]}),
    Fate::Invalid, "the UpgradeConfig is not valid: spec.schedule: bad")]
#[case::not_missed_any_more(
    json!({"lastScheduledUpgrade": RUNS[3], "conditions": [condition("RunMissed", "False", "JobCreated", "m")]}),
    Fate::Unaccounted, "nothing was said about it")]
fn the_last_that_was_said_of_a_run_is_its_reason(
    #[case] status: Value,
    #[case] fate: Fate,
    #[case] reason: &str,
) {
    let mut recording = recording();
    let config = config("c", &json!({"schedule": {"cron": "0 22 22 12 *"}}));
    recording.see_config(&with_status(&config, status), at(FROM));
    let expected = (RUNS[3].to_owned(), fate, reason.to_owned());
    assert_eq!(skipped_of(&recording), [expected]);
}

#[test]
fn a_suspension_that_was_lifted_is_no_reason() {
    let mut recording = recording();
    let config = config("c", &json!({"schedule": {"cron": "0 22 22 12 *"}}));
    for verdict in ["Suspended", "WillRun"] {
        recording.see_config(&with_status(&config, next(RUNS[3], verdict, "w")), at(FROM));
    }
    assert_eq!(skipped_of(&recording)[0].1, Fate::Unaccounted);
}

#[test]
fn runs_of_a_time_in_which_the_config_was_not_valid_say_so() {
    let mut recording = recording();
    let config = config("c", &json!({}));
    recording.see_config(&with_status(&config, json!({})), at(FROM));
    let bad = json!({"conditions": [condition("Valid", "False", "Invalid", "bad")]});
    recording.see_config(&with_status(&config, bad), at("2026-12-05T00:00:00Z"));
    recording.see_config(&with_status(&config, json!({})), at("2026-12-12T00:00:00Z"));
    let fates: Vec<_> = skipped_of(&recording)
        .into_iter()
        .map(|(_, fate, _)| fate)
        .collect();
    let lost = Fate::Unaccounted;
    assert_eq!(fates, [lost, Fate::Invalid, lost, lost]);
}

#[test]
fn one_text_covers_all_runs_that_were_recorded_together() {
    let mut recording = recording();
    let config = config("c", &json!({}));
    recording.see_config(&config, at(FROM));
    let text = "the run at Y and the 2 before it were missed: the operator did not run";
    let status = json!({"lastScheduledUpgrade": RUNS[2], "conditions":
        [condition("RunMissed", "True", "NotCreatedInTime", text)]});
    recording.see_config(&with_status(&config, status), at("2026-12-16T00:00:00Z"));
    let fates: Vec<_> = skipped_of(&recording)
        .into_iter()
        .map(|(_, fate, reason)| (fate, reason))
        .collect();
    assert_eq!(fates[..3], vec![(Fate::Missed, text.to_owned()); 3]);
    assert_eq!(fates[3].0, Fate::Unaccounted);
}

#[test]
fn an_event_explains_what_the_status_no_longer_does() {
    let mut recording = recording();
    let config = config("c", &json!({}));
    recording.see_config(&config, at(FROM));
    let named = "the run at Tue 2026-12-08 22:00 (Europe/Zurich) / 2026-12-08 21:00 UTC was missed: busy";
    let many = "the run at Tue 2026-12-22 22:00 (Europe/Zurich) / 2026-12-22 21:00 UTC and the one before it were missed: away";
    recording.see_event(&event("uid-c"), "PreviousJobRunning", named, at(RUNS[1]));
    recording.see_event(
        &event("uid-c"),
        "NotCreatedInTime",
        many,
        at("2026-12-23T00:00:00Z"),
    );
    recording.see_event(
        &event("uid-other"),
        "NotCreatedInTime",
        many,
        at("2026-12-09T00:00:00Z"),
    );
    let reasons: Vec<_> = skipped_of(&recording)
        .into_iter()
        .map(|(_, _, reason)| reason)
        .collect();
    // The first has only a text that speaks of runs before another.
    assert_eq!(reasons, [many, named, many, many]);
}

#[rstest]
#[case::due("2026-12-22T21:00:00Z", 4, Some(Fate::Undecided))]
#[case::still_waiting("2026-12-22T21:01:00Z", 4, Some(Fate::Undecided))]
#[case::decided_by_now("2026-12-22T21:10:00Z", 4, Some(Fate::Unaccounted))]
#[case::not_due("2026-12-22T20:59:59Z", 3, None)]
fn a_run_at_the_end_may_be_undecided(#[case] end: &str, #[case] runs: usize, #[case] fate: Option<Fate>) {
    let mut recording = recording();
    recording.end = at(end);
    let config = config("c", &json!({"maxSchedulingDelay": "4h"}));
    let status = json!({"lastScheduledUpgrade": RUNS[2], "conditions":
        [condition("Scheduled", "False", "UpdatesUnknown", "the update service is silent")]});
    recording.see_config(&with_status(&config, status), at(FROM));
    let skipped = skipped_of(&recording);
    assert_eq!(skipped.len(), runs);
    let last = skipped.iter().find(|(run, ..)| run == RUNS[3]);
    assert_eq!(last.map(|(_, fate, _)| *fate), fate);
    if fate == Some(Fate::Undecided) {
        let reason = "the rehearsal ended before it was decided: the update service is silent";
        assert_eq!(last.unwrap().2, reason);
    }
}

#[test]
fn an_edited_schedule_counts_from_its_edit_on() {
    let mut recording = recording();
    recording.see_config(&config("c", &json!({})), at(FROM));
    let later = config("c", &json!({"schedule": {"cron": "0 20 * * 5"}}));
    // The run at the very instant of the edit was the old schedule's.
    recording.see_config(&later, at(RUNS[1]));
    recording.see_config(&later, at("2026-12-12T00:00:00Z"));
    recording.config_gone(&later, at("2026-12-19T00:00:00Z"));
    let runs: Vec<_> = skipped_of(&recording).into_iter().map(|(run, ..)| run).collect();
    assert_eq!(
        runs,
        [RUNS[0], RUNS[1], "2026-12-11T19:00:00Z", "2026-12-18T19:00:00Z"]
    );
}

#[test]
fn a_config_has_no_runs_before_it_was_created() {
    let mut recording = recording();
    let mut late = config("c", &json!({}));
    late.metadata.creation_timestamp = serde_json::from_value(json!(RUNS[1])).unwrap();
    recording.see_config(&late, at("2026-12-08T21:00:00.4Z"));
    let runs: Vec<_> = skipped_of(&recording).into_iter().map(|(run, ..)| run).collect();
    assert_eq!(runs, [RUNS[2], RUNS[3]]);
}

#[test]
fn a_job_keeps_its_config_when_its_owner_reference_goes() {
    let mut recording = recording();
    let (a, mut b) = (config("a", &json!({})), config("b", &json!({})));
    // The label alone would name another.
    b.metadata.name = Some("a".to_owned());
    recording.see_config(&b, at(FROM));
    recording.see_config(&a, at(FROM));
    let mut of_b = job(&b, RUNS[0], json!({"phase": "Pending"}));
    recording.see_job(&of_b, at(FROM));
    of_b.metadata.owner_references = None;
    of_b.status = serde_json::from_value(succeeded(RUNS[0], RUNS[0])).unwrap();
    recording.see_job(&of_b, at(RUNS[0]));
    let story = Story::of(&recording);
    assert_eq!(story.jobs[0].uid, Some("uid-b"));
    assert_eq!(
        (
            story.skipped_of("uid-a").count(),
            story.skipped_of("uid-b").count()
        ),
        (4, 3)
    );
}

#[test]
fn a_job_without_owner_is_found_by_its_label_and_one_without_label_has_no_config() {
    let mut recording = recording();
    let long = config(&"c".repeat(100), &json!({}));
    recording.see_config(&long, at(FROM));
    let mut orphan = job(&long, RUNS[0], json!({"phase": "Pending"}));
    orphan.metadata.owner_references = None;
    recording.see_job(&orphan, at(FROM));
    let mut by_hand = orphan.clone();
    by_hand.metadata.labels = None;
    by_hand.metadata.uid = Some("z".to_owned());
    recording.see_job(&by_hand, at(FROM));
    let story = Story::of(&recording);
    let mut configs: Vec<_> = story.jobs.iter().map(|told| told.config.clone()).collect();
    configs.sort();
    assert_eq!(configs, [None, Some("c".repeat(100))]);
    assert_eq!(story.skipped.len(), 3);
}

#[rstest]
#[case("2026-12-22T20:59:59Z", 0)]
#[case("2026-12-22T21:00:00Z", 1)]
fn a_pinned_job_is_shown_if_it_starts_by_the_end(#[case] end: &str, #[case] shown: usize) {
    let mut recording = recording();
    recording.end = at(end);
    let config = config("c", &json!({}));
    recording.see_job(&job(&config, RUNS[3], json!({"phase": "Pending"})), at(FROM));
    let story = Story::of(&recording);
    assert_eq!(story.jobs.len(), shown);
    assert_eq!(story.totals().unfinished, shown);
}

proptest! {
    #[test]
    fn no_run_is_lost_or_doubled(
        fates in proptest::collection::vec(0..4_usize, 4),
        edit in proptest::option::of(0..28_i64),
    ) {
        let mut recording = recording();
        let config = config("c", &json!({}));
        recording.see_config(&config, at(FROM));
        for (run, fate) in RUNS.iter().zip(&fates) {
            match fate {
                0 => recording.see_job(&job(&config, run, succeeded(run, run)), at(run)),
                1 => recording.see_config(&with_status(&config, next(run, "Suspended", "w")), at(FROM)),
                2 => recording.see_event(&event("uid-c"), "", "the run at X and the one before it were missed", at(run)),
                _ => {}
            }
        }
        if let Some(day) = edit {
            let when = at(FROM) + SignedDuration::from_hours(24 * day);
            // Other fields of the config do not touch its runs.
            recording.see_config(&self::config("c", &json!({"pinVersionWindow": "5h"})), when);
        }
        let story = Story::of(&recording);
        let jobs = story.jobs.iter().map(|told| told.job.run.to_string());
        let mut all: Vec<_> = jobs.chain(story.skipped.iter().map(|s| s.run.to_string())).collect();
        all.sort();
        prop_assert_eq!(all, RUNS);
        prop_assert_eq!(story.jobs.len(), fates.iter().filter(|fate| **fate == 0).count());
    }
}
