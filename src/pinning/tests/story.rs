use super::*;

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
            let unfinished = world.jobs.iter().filter(|j| !j.is_finished()).count();
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
    }
}

#[rstest]
fn without_anything_in_the_way_every_run_has_its_job(
    #[values("0 22 * * 2", "30 2 * * *", "0 */6 * * *")] cron: &str,
    #[values("0", "30m", "4h")] pin: &str,
) {
    let (mut config, mut world) = (config(), world());
    let mut now = at("2026-10-20T00:00:00Z");
    let end = at("2026-11-03T00:00:00Z");
    config.metadata.creation_timestamp = Some(Time(now));
    config.spec.schedule.cron = cron.to_owned();
    config.spec.pin_version_window = Some(crate::api::GoDuration(pin.to_owned()));
    let schedule = Schedule::parse(&config.spec.schedule, &settings().zones)
        .unwrap()
        .schedule;
    // Also those that were to be pinned before the config was there.
    let mut expected = schedule.upcoming(now, 100);
    expected.retain(|run| *run < end);
    // Awake only when the decision asked for it, and when a job appears or ends.
    while now < end {
        let decision = step(&mut config, &mut world, now);
        if decision.create.is_none() {
            now = decision.wake_at.unwrap();
        }
        for job in &mut world.jobs {
            if job.spec.start_after.0 < now {
                finish(job, types::SUCCEEDED, "Succeeded");
            }
        }
    }
    let mut starts: Vec<Timestamp> = world.jobs.iter().map(|j| j.spec.start_after.0).collect();
    starts.retain(|start| *start < end);
    assert_eq!(starts, expected);
}
