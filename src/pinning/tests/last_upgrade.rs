//! The condition `LastUpgradeSucceeded`.

use super::*;

/// A job of the config that starts that many days after the run, and ends like this.
fn ended(days: i64, name: &str, conditions: &[(&str, &str)]) -> UpgradeJob {
    let start = at(RUN) + SignedDuration::from_hours(24 * days);
    let mut job: UpgradeJob = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "ownerReferences": [{
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeConfig", "name": "c", "uid": "config-uid",
            "controller": true}]},
        "spec": {"startAfter": start, "startBefore": start + SignedDuration::from_hours(1)},
    }))
    .unwrap();
    for (type_, reason) in conditions {
        finish(&mut job, type_, reason);
    }
    job
}

/// Conditions that are true, and their reasons.
type Ending = &'static [(&'static str, &'static str)];
const STARTED: Ending = &[("Started", "Started")];
const SUCCEEDED: Ending = &[("Succeeded", "Succeeded")];
const FAILED: Ending = &[("Failed", "TimedOut")];
const SKIPPED: Ending = &[("Succeeded", "Skipped")];
const EXPIRED: Ending = &[("Succeeded", "Skipped"), ("Expired", "OperatorDown")];

#[rstest]
#[case::none(&[], ("", ""))]
#[case::not_ended(&[STARTED], ("", ""))]
#[case::skipped_on_purpose(&[SKIPPED], ("", ""))]
#[case::succeeded(&[SUCCEEDED], ("True", "Succeeded"))]
#[case::failed(&[SUCCEEDED, FAILED], ("False", "TimedOut"))]
#[case::could_not_start(&[SUCCEEDED, EXPIRED], ("False", "OperatorDown"))]
#[case::failed_then_skipped(&[FAILED, SKIPPED], ("False", "TimedOut"))]
#[case::mended(&[FAILED, SUCCEEDED], ("True", "Succeeded"))]
#[case::another_runs(&[FAILED, STARTED], ("False", "TimedOut"))]
fn the_newest_outcome_counts(#[case] jobs: &[Ending], #[case] expected: (&str, &str)) {
    let mut world = world();
    // The order in which they are listed means nothing.
    world.jobs = (0..)
        .zip(jobs)
        .map(|(n, conditions)| ended(n - 20, &format!("job-{}", 9 - n), conditions))
        .collect();
    world.jobs.reverse();
    world.configs = vec![config()];
    let decision = decide_at(&config(), &world, "2026-11-21T00:00:00Z");
    assert_eq!(condition(&decision, types::LAST_UPGRADE_SUCCEEDED), expected);
}

/// The same for a job that a person made: it has no config.
fn by_hand(days: i64, conditions: &[(&str, &str)]) -> UpgradeJob {
    let mut job = ended(days, "by-hand", conditions);
    job.metadata.owner_references = None;
    job
}

const HAND: i64 = -5;

#[rstest]
#[case::mends_what_failed(&[(-7, FAILED)], SUCCEEDED, ("True", "Succeeded"))]
#[case::mends_what_could_not_start(&[(-7, EXPIRED)], &[("Started", "Started"), ("Succeeded", "Succeeded")], ("True", "Succeeded"))]
#[case::not_what_came_later(&[(-3, FAILED)], SUCCEEDED, ("False", "TimedOut"))]
#[case::is_no_failure_of_the_config(&[(-7, SUCCEEDED)], FAILED, ("True", "Succeeded"))]
#[case::mends_nothing_by_failing(&[(-7, FAILED)], FAILED, ("False", "TimedOut"))]
fn a_job_made_by_hand_mends_a_config(
    #[case] jobs: &[(i64, Ending)],
    #[case] hand: Ending,
    #[case] expected: (&str, &str),
) {
    let mut world = world();
    let of_config = jobs
        .iter()
        .map(|(days, conditions)| ended(*days, "of-config", conditions));
    world.jobs = of_config.chain([by_hand(HAND, hand)]).collect();
    let config = config();
    world.configs = vec![config.clone()];
    let decision = decide_at(&config, &world, "2026-11-21T00:00:00Z");
    assert_eq!(condition(&decision, types::LAST_UPGRADE_SUCCEEDED), expected);
}

#[test]
fn to_delete_the_failed_job_is_to_acknowledge_it() {
    let (mut config, mut world) = (config(), world());
    let now = at("2026-11-21T00:00:00Z");
    world.configs = vec![config.clone()];
    world.jobs = vec![ended(-7, "sad", FAILED)];
    let decision = step(&mut config, &mut world, now);
    assert!(message(&decision, types::LAST_UPGRADE_SUCCEEDED).starts_with("UpgradeJob sad: "));
    world.jobs.clear();
    let decision = step(&mut config, &mut world, now);
    assert_eq!(condition(&decision, types::LAST_UPGRADE_SUCCEEDED), ("", ""));
}
